"""Whole networks with seeded random weights: architectures are real, nothing is downloaded.

The first seven are Table 1 of the compiler-world-model paper, the next three are added by the
Felix paper (DCGAN, ViT-B/32, LLaMA; its other networks are among the seven). The last four are of
no paper: popular networks with operators that the ten lack. Text models take token indices and give
their last hidden state; image and video models give class scores.

Attention is transformers' "eager" form, products and softmax one by one: the subgraphs that the
paper's table names. The fused form comes out of ``torch.export`` with tests for rows that are
masked whole, which these inputs never have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from foretune.errors import MissingDependencyError

if TYPE_CHECKING:
    from foretune.workload import Model

_SEED = 0

Definition = tuple[Any, tuple[Any, ...]]
"""A ``torch.nn.Module`` and its example arguments."""


def build(name: str) -> Model:
    """The network of that name as a model.

    Raises:
        MissingDependencyError: PyTorch or transformers is not installed.
    """
    from foretune.workload.importers.torch import import_module

    module, inputs = define(name)
    return import_module(module, inputs, name)


def define(name: str) -> Definition:
    """The PyTorch module of a network, in evaluation mode, and its example arguments.

    Weights and inputs are the same in every process; the caller's random state is left alone.
    """
    try:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            module, inputs = NETWORKS[name]()
            from foretune.workload.catalog import _definitions

            _definitions.calibrate(module, inputs)
    except ImportError as error:
        raise MissingDependencyError(
            f"network {name!r} needs {error.name or 'PyTorch'}: "
            "pip install 'foretune[torch,models]'"
        ) from error
    return module.eval().requires_grad_(False), inputs


def resnet50() -> Definition:
    """ResNet-50, image 1x3x224x224."""
    from transformers.models.resnet import ResNetConfig, ResNetForImageClassification

    from foretune.workload.catalog import _definitions as d

    module = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    return d.Pick(module, "logits"), (d.image(3, 224, 224),)


def bert_base() -> Definition:
    """BERT-base, 128 tokens."""
    import torch
    from transformers.models.bert import BertConfig, BertModel

    from foretune.workload.catalog import _definitions as d

    config = BertConfig(attn_implementation="eager")
    module = BertModel(config, add_pooling_layer=False)
    constants = {
        "token_type_ids": torch.zeros(1, 128, dtype=torch.int64),
        "position_ids": d.positions(128),
    }
    inputs = (d.tokens(128, config.vocab_size),)
    return d.Pick(module, "last_hidden_state", **constants), inputs


def mobilenet_v2() -> Definition:
    """MobileNetV2 1.0, image 1x3x224x224."""
    from transformers.models.mobilenet_v2 import (
        MobileNetV2Config,
        MobileNetV2ForImageClassification,
    )

    from foretune.workload.catalog import _definitions as d

    # Symmetric padding, as in the PyTorch original; TensorFlow's needs pads of its own.
    config = MobileNetV2Config(num_labels=1000, tf_padding=False)
    return d.Pick(MobileNetV2ForImageClassification(config), "logits"), (d.image(3, 224, 224),)


def gpt2() -> Definition:
    """GPT-2 (124 M), 128 tokens, without the language-model head."""
    from transformers.models.gpt2 import GPT2Config, GPT2Model

    from foretune.workload.catalog import _definitions as d

    config = GPT2Config(use_cache=False, attn_implementation="eager")
    module = d.Pick(
        GPT2Model(config),
        "last_hidden_state",
        attention_mask=d.causal_mask(128),
        position_ids=d.positions(128),
    )
    return module, (d.tokens(128, config.vocab_size),)


def resnet18_3d() -> Definition:
    """ResNet-18 with 3-D convolutions, video 1x3x16x112x112."""
    from foretune.workload.catalog import _definitions as d

    return d.ResNet18Video(), (d.image(3, 16, 112, 112),)


def opt_1_3b_attention() -> Definition:
    """One self-attention block of OPT-1.3B, 1x128x2048."""
    from transformers.models.opt.configuration_opt import OPTConfig
    from transformers.models.opt.modeling_opt import OPTAttention

    from foretune.workload.catalog import _definitions as d

    config = OPTConfig(
        hidden_size=2048, ffn_dim=8192, num_attention_heads=32, attn_implementation="eager"
    )
    block = d.CausalAttention(OPTAttention(config, layer_idx=0), tokens=128)
    return block, (d.normal(1, 128, 2048),)


def gpt_neo_2_7b_attention() -> Definition:
    """One self-attention block of GPT-Neo at the 1x128x768 of the paper's table (12 heads).

    GPT-Neo-2.7B itself is 2560 wide; 768 is the width of its 125 M sibling, whose block this is.
    """
    from transformers.models.gpt_neo.configuration_gpt_neo import GPTNeoConfig
    from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

    from foretune.workload.catalog import _definitions as d

    config = GPTNeoConfig(
        hidden_size=768, num_heads=12, num_layers=2, attention_types=[[["global", "local"], 1]]
    )
    return d.First(GPTNeoSelfAttention(config, "global", 0)), (d.normal(1, 128, 768),)


def vit_b_32() -> Definition:
    """Vision transformer ViT-B/32, image 1x3x224x224."""
    from transformers.models.vit import ViTConfig, ViTForImageClassification

    from foretune.workload.catalog import _definitions as d

    module = ViTForImageClassification(
        ViTConfig(patch_size=32, num_labels=1000, attn_implementation="eager")
    )
    return d.Pick(module, "logits"), (d.image(3, 224, 224),)


def dcgan() -> Definition:
    """DCGAN generator, noise 1x100x1x1 to an image of 64x64."""
    from foretune.workload.catalog import _definitions as d

    return d.Generator(), (d.normal(1, 100, 1, 1),)


def llama_block() -> Definition:
    """One decoder block of LLaMA-7B, 100 tokens (1x100x4096)."""
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    from foretune.workload.catalog import _definitions as d

    config = LlamaConfig(num_hidden_layers=1, attn_implementation="eager")
    block = d.DecoderBlock(LlamaDecoderLayer(config, 0), LlamaRotaryEmbedding(config), tokens=100)
    return block, (d.normal(1, 100, config.hidden_size),)


def efficientnet_b0() -> Definition:
    """EfficientNet-B0 (depthwise convolutions, squeeze and excite), image 1x3x224x224."""
    import torch
    from transformers.models.efficientnet import (
        EfficientNetConfig,
        EfficientNetForImageClassification,
    )

    from foretune.workload.catalog import _definitions as d

    config = EfficientNetConfig(
        width_coefficient=1.0,
        depth_coefficient=1.0,
        image_size=224,
        hidden_dim=1280,
        num_labels=1000,
    )
    module = EfficientNetForImageClassification(config)
    # The same mean as one window larger than the image, which OpenVINO refuses.
    module.efficientnet.pooler = torch.nn.AdaptiveAvgPool2d(1)
    return d.Pick(module, "logits"), (d.image(3, 224, 224),)


def unet() -> Definition:
    """U-Net for segmentation, 32 to 512 channels with batch norm, image 1x3x256x256."""
    from foretune.workload.catalog import _definitions as d

    return d.UNet(), (d.image(3, 256, 256),)


def detr() -> Definition:
    """DETR, a detector: ResNet-50, encoder and decoder, 100 boxes with classes; 1x3x480x640."""
    from foretune.workload.catalog import _definitions as d

    picture = d.image(3, 480, 640)
    return d.detector(picture), (picture,)


def wav2vec2() -> Definition:
    """wav2vec 2.0 base, a second of speech: 1x16000."""
    from transformers.models.wav2vec2 import Wav2Vec2Config, Wav2Vec2Model

    from foretune.workload.catalog import _definitions as d

    module = Wav2Vec2Model(Wav2Vec2Config(attn_implementation="eager"))
    return d.Pick(module, "last_hidden_state"), (d.normal(1, 16000),)


NETWORKS: dict[str, Callable[[], Definition]] = {
    builder.__name__: builder
    for builder in (
        resnet50,
        bert_base,
        mobilenet_v2,
        gpt2,
        resnet18_3d,
        opt_1_3b_attention,
        gpt_neo_2_7b_attention,
        vit_b_32,
        dcgan,
        llama_block,
        efficientnet_b0,
        unet,
        detr,
        wav2vec2,
    )
}
"""Definitions by name: seven of one paper, three of the other, four of no paper."""
