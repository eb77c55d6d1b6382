"""Convolutional networks of transformers, with other widths and resolutions than the catalog's."""

from __future__ import annotations

from torch import nn

from benchmarks._training.parts import Definition, vision


def resnet34() -> Definition:
    """ResNet of basic blocks (ResNet-34), 192 pixels."""
    return vision("ResNetForImageClassification", "ResNetConfig", "logits", 192,
                  layer_type="basic", hidden_sizes=[64, 128, 256, 512],
                  depths=[2, 2, 2, 2])  # fmt: skip


def resnet_wide() -> Definition:
    """ResNet of bottleneck blocks with widths of 320 to 1536, 256 pixels."""
    return vision("ResNetForImageClassification", "ResNetConfig", "logits", 256,
                  embedding_size=48, hidden_sizes=[320, 640, 1152, 1536],
                  depths=[2, 2, 2, 2])  # fmt: skip


def regnet_y() -> Definition:
    """RegNet Y 800MF: groups of 16 channels, squeeze and excite; 208 pixels."""
    return vision("RegNetForImageClassification", "RegNetConfig", "logits", 208,
                  hidden_sizes=[64, 144, 320, 784], depths=[1, 2, 2, 1], groups_width=16,
                  layer_type="y")  # fmt: skip


def convnext_tiny() -> Definition:
    """ConvNeXt tiny: 7x7 depthwise, layer norm over channels; 192 pixels."""
    return vision("ConvNextForImageClassification", "ConvNextConfig", "logits", 192,
                  depths=[1, 1, 2, 1])  # fmt: skip


def convnextv2_atto() -> Definition:
    """ConvNeXt V2 atto: global response norm; widths of 40 to 320, 160 pixels."""
    return vision("ConvNextV2ForImageClassification", "ConvNextV2Config", "logits", 160,
                  hidden_sizes=[40, 80, 160, 320], depths=[1, 1, 1, 1])  # fmt: skip


def mobilenet_v1() -> Definition:
    """MobileNetV1 0.75, 192 pixels: depthwise and 1x1 with ReLU6."""
    return vision("MobileNetV1ForImageClassification", "MobileNetV1Config", "logits", 192,
                  depth_multiplier=0.75, tf_padding=False)  # fmt: skip


def mobilenet_v2_wide() -> Definition:
    """MobileNetV2 1.4, 160 pixels."""
    return vision("MobileNetV2ForImageClassification", "MobileNetV2Config", "logits", 160,
                  depth_multiplier=1.4, tf_padding=False)  # fmt: skip


def efficientnet_wide() -> Definition:
    """EfficientNet of width 1.2 at 240 pixels, one block per stage."""
    module, inputs = vision(
        "EfficientNetForImageClassification", "EfficientNetConfig", "logits", 240,
        width_coefficient=1.2, depth_coefficient=0.3, image_size=240, hidden_dim=1536,
    )  # fmt: skip
    module.model.efficientnet.pooler = nn.AdaptiveAvgPool2d(1)
    return module, inputs


def poolformer_s12() -> Definition:
    """PoolFormer s12: average pooling in the place of attention, group norm; 176 pixels."""
    return vision("PoolFormerForImageClassification", "PoolFormerConfig", "logits", 176,
                  depths=[1, 1, 2, 1])  # fmt: skip


def levit() -> Definition:
    """LeViT 192: attention with biases, hard swish; two images of 224 pixels."""
    return vision("LevitForImageClassification", "LevitConfig", "logits", 224, batch=2,
                  hidden_sizes=[192, 288, 384], num_attention_heads=[3, 5, 6],
                  key_dim=[32, 32, 32], depths=[2, 2, 2])  # fmt: skip


def big_transfer() -> Definition:
    """BiT: ResNet V2 with group norm in front and weights standardised; 160 pixels."""
    return vision("BitForImageClassification", "BitConfig", "logits", 160,
                  depths=[1, 1, 2, 1], hidden_sizes=[192, 384, 768, 1536],
                  num_groups=16)  # fmt: skip


def cvt_13() -> Definition:
    """CvT 13: projections of attention are depthwise convolutions; 192 pixels."""
    return vision("CvtForImageClassification", "CvtConfig", "logits", 192, depth=[1, 2, 3])


def focalnet() -> Definition:
    """FocalNet: depthwise context of several sizes, gates; widths of 72 to 576, 160 pixels."""
    return vision("FocalNetForImageClassification", "FocalNetConfig", "logits", 160,
                  image_size=160, embed_dim=72, depths=[1, 1, 2, 1])  # fmt: skip


def hgnet() -> Definition:
    """HGNet V2: many 3x3 layers joined, light blocks with 5x5 depthwise; 224 pixels."""
    return vision("HGNetV2ForImageClassification", "HGNetV2Config", "logits", 224)


def swiftformer() -> Definition:
    """SwiftFormer s: additive attention, depthwise blocks; 192 pixels."""
    return vision("SwiftFormerModel", "SwiftFormerConfig", "last_hidden_state", 192,
                  depths=[1, 1, 2, 1], embed_dims=[48, 64, 168, 224])  # fmt: skip


def mobilevitv2() -> Definition:
    """MobileViT V2: separable attention in unfolded patches; 256 pixels."""
    return vision("MobileViTV2ForImageClassification", "MobileViTV2Config", "logits", 256,
                  base_attn_unit_dims=[128, 192, 256], n_attn_blocks=[1, 1, 1])  # fmt: skip


NETWORKS = (
    resnet34, resnet_wide, regnet_y, convnext_tiny, convnextv2_atto, mobilenet_v1,
    mobilenet_v2_wide, efficientnet_wide, poolformer_s12, levit, big_transfer, cvt_13, focalnet,
    hgnet, swiftformer, mobilevitv2,
)  # fmt: skip
