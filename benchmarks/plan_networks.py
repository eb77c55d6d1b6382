"""Networks whose plans are collected, each as an INPUT: ``benchmarks/plan_networks.py:NAME``.

Families of transformers with random weights and inputs of several sizes, and the torch code of the
training networks. ``python -m benchmarks plan_networks`` writes the lists, one to learn from, one
to judge on alone, which is of the catalog::

    foretune graph collect --networks @benchmarks/plan_networks.txt --threads 1 --work-dir DIR
    foretune graph collect --networks @benchmarks/plan_networks_judged.txt --threads 1 --work-dir J

Networks of large tables or hundreds of layers are left out: their plans take seconds each.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

Definition = tuple[Any, tuple[Any, ...]]

LIST = Path(__file__).with_suffix(".txt")
JUDGED_LIST = LIST.with_stem(f"{LIST.stem}_judged")
JUDGED = (
    "resnet50", "mobilenet_v2", "efficientnet_b0", "unet", "dcgan", "resnet18_3d", "bert_base",
    "vit_b_32", "wav2vec2", "gpt2",
)  # fmt: skip

VISION: dict[str, tuple[str, str, dict[str, Any]]] = {
    "resnet18": ("ResNetModel", "ResNetConfig", {
        "layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}),
    "resnet26": ("ResNetModel", "ResNetConfig", {"depths": [2, 2, 2, 2]}),
    "regnet": ("RegNetModel", "RegNetConfig", {
        "hidden_sizes": [32, 64, 160, 384], "depths": [1, 2, 4, 1], "groups_width": 16}),
    "mobilenet_v1": ("MobileNetV1Model", "MobileNetV1Config", {"tf_padding": False}),
    "mobilenet_v2": ("MobileNetV2Model", "MobileNetV2Config", {
        "depth_multiplier": 0.5, "tf_padding": False}),
    "efficientnet": ("EfficientNetModel", "EfficientNetConfig", {
        "width_coefficient": 0.75, "depth_coefficient": 0.5, "hidden_dim": 960}),
    "convnext": ("ConvNextModel", "ConvNextConfig", {
        "hidden_sizes": [48, 96, 192, 384], "depths": [2, 2, 4, 2]}),
    "poolformer": ("PoolFormerModel", "PoolFormerConfig", {
        "hidden_sizes": [32, 64, 160, 256], "depths": [1, 1, 2, 1]}),
    "vit": ("ViTModel", "ViTConfig", {
        "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3,
        "intermediate_size": 768}),
}  # fmt: skip
"""Name to model, configuration and its fields."""
SIZES = (64, 128, 224)

_WIDTH = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 256}
TEXT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", {**_WIDTH, "intermediate_size": 1024}),
    "distilbert": ("DistilBertModel", "DistilBertConfig", {
        "n_layers": 4, "n_heads": 4, "dim": 256, "hidden_dim": 1024}),
    "albert": ("AlbertModel", "AlbertConfig", {**_WIDTH, "intermediate_size": 1024}),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", {
        **_WIDTH, "intermediate_size": 1024, "embedding_size": 256}),
}  # fmt: skip
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt_neox": ("GPTNeoXModel", "GPTNeoXConfig", {**_WIDTH, "intermediate_size": 1024}),
    "llama": ("LlamaModel", "LlamaConfig", {
        **_WIDTH, "intermediate_size": 688, "num_key_value_heads": 2}),
    "qwen2": ("Qwen2Model", "Qwen2Config", {
        **_WIDTH, "intermediate_size": 704, "num_key_value_heads": 2}),
}  # fmt: skip
LENGTHS = (16, 64, 128)

TRAINING = {
    "convolutional": (
        "resnet34", "regnet_y", "convnext_tiny", "convnextv2_atto", "poolformer_s12", "levit",
        "cvt_13", "focalnet", "hgnet", "swiftformer", "mobilevitv2",
    ),
    "classifiers": (
        "vgg_narrow", "inception", "densenet", "shufflenet", "squeezenet", "mobilenet_v3",
        "resnext",
    ),
    "generative": ("discriminator", "unet_24", "unet_40", "vae_decoder", "espcn", "edsr"),
}  # fmt: skip
"""Modules of ``benchmarks._training`` with the networks taken from each."""


KIN = {
    "bert": ("bert", "distilbert", "albert", "squeezebert", "vit"),
    "decoder": ("gpt_neox", "llama", "qwen2"),
    "resnet": ("resnet", "training_resnet", "training_resnext"),
    "regnet": ("regnet", "training_regnet"),
    "inverted": ("mobilenet_v2", "efficientnet", "training_mobilenet_v3", "training_mobilevitv2"),
    "mobilenet_v1": ("mobilenet_v1",),
    "convnext": ("convnext", "training_convnext"),
    "poolformer": ("poolformer", "training_poolformer"),
    "unet": ("training_unet", "training_vae_decoder"),
    "superresolution": ("training_espcn", "training_edsr"),
}
"""Architectures that resemble each other, by how names begin; others are alone."""


def kin_of(name: str) -> str:
    """What a network resembles: models that are judged on it must not have learned from its kin."""
    matching = {
        begin: kin for kin, begins in KIN.items() for begin in begins if name.startswith(begin)
    }
    return matching[max(matching, key=len)] if matching else name


def _prepared(name: str, make: Callable[[], Definition]) -> Definition:
    """A network with weights that only its name decides, under which its signal keeps its scale."""
    import torch

    from foretune.workload.catalog import _definitions

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(name.encode()))
        module, inputs = make()
        _definitions.calibrate(module, inputs)
    return module.eval().requires_grad_(False), inputs


def _vision(name: str, size: int) -> Definition:
    from benchmarks._training import parts

    model, config, fields = VISION[name]
    fields = {**fields, "image_size": size} if "ViT" in config else fields
    return parts.vision(model, config, "last_hidden_state", size, **fields)


def _text(name: str, length: int) -> Definition:
    from benchmarks._training import parts

    if name in DECODERS:
        model, config, fields = DECODERS[name]
        return parts.decoder(model, config, length, **fields)
    model, config, fields = TEXT[name]
    return parts.text(model, config, length, **fields)


def _training(module: str, name: str) -> Definition:
    import importlib

    made: Definition = getattr(importlib.import_module(f"benchmarks._training.{module}"), name)()
    return made


def _networks() -> dict[str, Callable[[], Definition]]:
    found: dict[str, Callable[[], Definition]] = {}
    for name in VISION:
        found |= {f"{name}_{n}": lambda name=name, n=n: _vision(name, n) for n in SIZES}
    for name in (*TEXT, *DECODERS):
        found |= {f"{name}_{n}": lambda name=name, n=n: _text(name, n) for n in LENGTHS}
    for module, names in TRAINING.items():
        found |= {f"training_{n}": lambda m=module, n=n: _training(m, n) for n in names}
    return {
        name: lambda name=name, make=make: _prepared(name, make) for name, make in found.items()
    }


NETWORKS = _networks()
globals().update(NETWORKS)


def lists() -> dict[Path, str]:
    """File to its text."""
    learned = [f"benchmarks/plan_networks.py:{name}" for name in NETWORKS]
    return {
        file: "".join(f"{name}\n" for name in names)
        for file, names in ((LIST, learned), (JUDGED_LIST, JUDGED))
    }


def main(arguments: list[str] | None = None) -> None:
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    for written, text in lists().items():
        written.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
