"""Vision transformers: odd token counts and widths that the catalog does not have."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from benchmarks._training.parts import VOCABULARY, Call, Definition, made, vision
from foretune.workload.catalog import _definitions as d


def deit_small() -> Definition:
    """DeiT small, 384 wide, 198 tokens of 224 pixels."""
    return vision("DeiTModel", "DeiTConfig", "last_hidden_state", 224, hidden_size=384,
                  num_attention_heads=6, intermediate_size=1536, num_hidden_layers=2)  # fmt: skip


def vit_odd() -> Definition:
    """ViT of 226 tokens (240 pixels in patches of 16) and 320 wide."""
    return vision("ViTForImageClassification", "ViTConfig", "logits", 240, image_size=240,
                  hidden_size=320, num_attention_heads=5, intermediate_size=1280,
                  num_hidden_layers=2, num_labels=101)  # fmt: skip


def swin_tiny() -> Definition:
    """Swin tiny: windows of 7x7, shifted; 224 pixels."""
    return vision("SwinForImageClassification", "SwinConfig", "logits", 224, depths=[2, 2, 2, 2])


def mobilevit_small() -> Definition:
    """MobileViT small: convolutions and attention in unfolded patches; 192 pixels."""
    return vision("MobileViTForImageClassification", "MobileViTConfig", "logits", 192)


def segformer_b0() -> Definition:
    """SegFormer b0: keys of a smaller image, depthwise in the MLP, upsampling; 256 pixels."""
    return vision("SegformerForSemanticSegmentation", "SegformerConfig", "logits", 256,
                  depths=[1, 1, 1, 1])  # fmt: skip


def pvt_v2_b1() -> Definition:
    """PVT V2 b1: widths of 64 to 512, 192 pixels."""
    return vision("PvtV2ForImageClassification", "PvtV2Config", "logits", 192, image_size=192,
                  hidden_sizes=[64, 128, 320, 512], depths=[1, 1, 1, 1])  # fmt: skip


def dinov2_small() -> Definition:
    """DINOv2 small: patches of 14, layer scale; 257 tokens of 384, 224 pixels."""
    return vision("Dinov2Model", "Dinov2Config", "last_hidden_state", 224, image_size=224,
                  patch_size=14, hidden_size=384, num_attention_heads=6,
                  num_hidden_layers=2)  # fmt: skip


def clip() -> Definition:
    """CLIP with towers of odd widths: text 448 wide of 29 tokens, images 576 wide of 145."""
    towers = {
        "text_config": {"vocab_size": VOCABULARY, "hidden_size": 448, "intermediate_size": 1792,
                        "num_attention_heads": 7, "num_hidden_layers": 2, "eos_token_id": 2},
        "vision_config": {"hidden_size": 576, "intermediate_size": 2304, "image_size": 192,
                          "num_attention_heads": 9, "num_hidden_layers": 2, "patch_size": 16},
    }  # fmt: skip
    module = made("CLIPModel", "CLIPConfig", projection_dim=320, **towers)

    def call(model: Any, tokens: Tensor, pixels: Tensor) -> Any:
        return model(input_ids=tokens, pixel_values=pixels).logits_per_image

    return Call(module, call), (d.tokens(29, VOCABULARY), d.image(3, 192, 192))


def siglip() -> Definition:
    """SigLIP vision tower, 768 wide, 144 tokens of 192 pixels, pooled by attention."""
    return vision("SiglipVisionModel", "SiglipVisionConfig", "pooler_output", 192, image_size=192,
                  num_hidden_layers=2)  # fmt: skip


def beit() -> Definition:
    """BEiT with relative biases, 640 wide, 122 tokens of 176 pixels."""
    return vision("BeitModel", "BeitConfig", "last_hidden_state", 176, image_size=176,
                  hidden_size=640, num_attention_heads=10, intermediate_size=2560,
                  num_hidden_layers=2, use_relative_position_bias=True)  # fmt: skip


def swinv2_small() -> Definition:
    """Swin V2: cosine attention in windows of 8, norms behind; widths of 64 to 256, 256 pixels."""
    return vision("Swinv2Model", "Swinv2Config", "last_hidden_state", 256, image_size=256,
                  embed_dim=64, depths=[2, 2, 2], num_heads=[2, 4, 8],
                  window_size=8)  # fmt: skip


def hiera() -> Definition:
    """Hiera: attention in mask units that pools its queries; 80 to 640 wide, 224 pixels."""
    return vision("HieraModel", "HieraConfig", "last_hidden_state", 224, embed_dim=80,
                  depths=[1, 1, 2, 1], num_heads=[1, 2, 4, 8])  # fmt: skip


def depth_estimator() -> Definition:
    """GLPN: SegFormer's encoder and a decoder with gates that says depth; 192 pixels."""
    return vision("GLPNForDepthEstimation", "GLPNConfig", "predicted_depth", 192,
                  depths=[1, 1, 1, 1])  # fmt: skip


NETWORKS = (
    deit_small, vit_odd, swin_tiny, mobilevit_small, segformer_b0, pvt_v2_b1, dinov2_small, clip,
    siglip, beit, swinv2_small, hiera, depth_estimator,
)  # fmt: skip
