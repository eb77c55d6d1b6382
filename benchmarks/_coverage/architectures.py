"""Architectures with random weights: model types of transformers and networks of pytorchcv.

A network is called ``LIBRARY/KIND/NAME``; its name seeds the weights.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks._coverage.small_transformers import CACHED, TYPES, small_config
from benchmarks._coverage.suite import NOT_EXPORTABLE, Result, Suite, export_error, outcome_of
from foretune.hardware import Hardware

_LENGTH = 16
_SAMPLES = 800

CONVOLUTIONAL = (
    "airnet50_1x64d_r2", "alexnet", "bagnet9", "bam_resnet18", "bisenet_resnet18_celebamaskhq",
    "bninception", "cbam_resnet18", "cgnet_cityscapes", "channelnet", "condensenet74_c4_g4",
    "dabnet_cityscapes", "darknet_tiny", "darknet53", "densenet121", "diaresnet18", "dla34",
    "dpn68", "edanet_cityscapes", "efficientnet_b0", "enet_cityscapes", "erfnet_cityscapes",
    "fastscnn_cityscapes", "fbnet_cb", "ghostnet", "hardnet39ds", "hrnet_w18_small_v1",
    "ibn_resnet50", "igcv3_w1", "inceptionv3", "isqrtcovresnet18", "lednet_cityscapes",
    "linknet_cityscapes", "lwopenpose2d_mobilenet_cmupan_coco", "menet108_8x1_g3", "mixnet_s",
    "mnasnet_b1", "mobilenet_w1", "mobilenetv2_w1", "mobilenetv3_large_w1", "nin_cifar10",
    "peleenet", "preresnet18", "proxylessnas_mobile", "pyramidnet110_a48_cifar10", "regnetx002",
    "resnet18", "resnext26_32x4d", "scnet50", "selecsls42b", "senet16", "seresnet18",
    "shufflenet_g1_w1", "shufflenetv2_w1", "sknet50", "spnasnet", "squeezenet_v1_0",
    "squeezeresnet_v1_0", "unet_cityscapes", "vgg11", "vovnet27s", "wrn16_10_cifar10", "xception",
    "zfnet",
)  # fmt: skip
"""Networks of pytorchcv: one or two of each family that runs without a download."""


@dataclass(frozen=True)
class Network:
    """A network in evaluation mode with its example inputs, as ``foretune tune`` takes them."""

    module: Any
    inputs: Any


class Architectures(Suite):
    title = "architectures of transformers and pytorchcv"
    patience_s = 400.0
    tasks_each = 8

    def names(self) -> tuple[list[str], Mapping[str, str]]:
        names = [f"transformers/{kind}/{name}" for kind, table in TYPES.items() for name in table]
        names += [f"transformers/cached/{name}" for name in CACHED]
        return names + [f"pytorchcv/convolutional/{name}" for name in CONVOLUTIONAL], {}

    def attempt(self, name: str, hardware: Hardware) -> Result:
        import transformers

        transformers.logging.set_verbosity_error()
        try:
            network = make(name)
        except Exception as error:  # libraries of models are older than their dependencies
            return {"outcome": NOT_EXPORTABLE, "message": f"not made: {error}"[:300]}
        keyed = isinstance(network.inputs, dict)
        args, kwargs = ((), network.inputs) if keyed else (network.inputs, None)
        error = export_error(network.module, args, kwargs)
        if error:
            return {"outcome": NOT_EXPORTABLE, "message": error}
        own = name.rsplit("/", 1)[-1]
        return outcome_of(lambda: _verified(network, own, hardware), own)


def _verified(network: Network, name: str, hardware: Hardware) -> str:
    from foretune.graph import compile_model, extract, verify
    from foretune.workload import Model, from_object

    model = from_object((network.module, network.inputs), name)
    assert isinstance(model, Model)
    artifact = compile_model(model, hardware, {}, extract(model, hardware))
    check = verify(artifact, model)
    return "" if check.ok else f"differs by {check.max_relative_error:.2g}"


def make(name: str) -> Network:
    """Builds a network with random weights."""
    import torch

    torch.manual_seed(zlib.crc32(name.encode()))
    library, kind, model = name.split("/")
    if library == "pytorchcv":
        return _convolutional(model)
    return _transformer(kind, model)


def _convolutional(name: str) -> Network:
    import torch
    from pytorchcv.model_provider import get_model

    module = get_model(name).eval()
    size = getattr(module, "in_size", (224, 224))
    if name.endswith(("cityscapes", "celebamaskhq")):
        # Full-size street scenes take minutes with schedules that nobody tuned.
        module = get_model(name, in_size=(128, 256)).eval()
        size = (128, 256)
    _awake(module, torch.randn(2, 3, *size))
    return Network(module, (torch.randn(1, 3, *size),))


def _awake(module: Any, images: Any) -> None:
    """Running statistics as trained networks have them: of data, and a little beside it.

    With means of 0 and variances of 1, activations of random weights grow from layer to layer,
    until two ways to round the same sum end in other classes.
    """
    import torch

    norms = [
        part
        for part in module.modules()
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_mean is not None
    ]
    if not norms:
        return
    for norm in norms:
        norm.train()
        norm.momentum = None  # the average of all that follows
    with torch.no_grad():
        module(images)
        module(torch.randn_like(images))
    for norm in norms:
        norm.eval()
        norm.running_mean += 0.1 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean)
        # Of a vector and two images it may be tiny by chance.
        norm.running_var.clamp_(min=0.25 * float(norm.running_var.mean()))
        norm.running_var *= torch.empty_like(norm.running_var).uniform_(0.8, 1.25)


def _transformer(kind: str, model: str) -> Network:
    import torch
    import transformers

    types = TYPES["decoder" if kind == "cached" else kind]
    config = small_config(model, types[model])
    config.use_cache = kind == "cached"
    config.return_dict = True
    classes = transformers.models.auto.modeling_auto
    decoder = kind in ("decoder", "cached")
    names = classes.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if decoder else classes.MODEL_MAPPING_NAMES
    if model == "glpn":
        names = classes.MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES
    named = names[model]
    made = getattr(transformers, named[0] if isinstance(named, (tuple, list)) else named)
    module = made(config).eval()
    tokens = torch.randint(3, 100, (1, _LENGTH))
    mask = torch.ones_like(tokens)
    if kind == "cached":
        return _cached(module, config)
    if kind == "sequence":
        inputs = {"input_ids": tokens, "decoder_input_ids": tokens[:, :5].clone()}
        return Network(module, inputs)
    if kind in ("encoder", "decoder"):
        return Network(module, {"input_ids": tokens, "attention_mask": mask})
    if kind == "speech":
        return Network(module, _sound(module, config))
    pictures = torch.randn(1, 3, 64, 64)
    if kind == "vision":
        _awake(module, torch.randn(2, 3, 64, 64))
        return Network(module, {"pixel_values": pictures})
    text = {"input_ids": tokens, "attention_mask": mask}
    return Network(module, {**text, "pixel_values": pictures})


def _sound(module: Any, config: Any) -> dict[str, Any]:
    import torch

    name = module.main_input_name
    if name == "input_values" and not hasattr(config, "max_length"):
        return {name: torch.randn(1, _SAMPLES)}
    if config.model_type == "audio-spectrogram-transformer":
        return {name: torch.randn(1, config.max_length, config.num_mel_bins)}
    decoder = {"decoder_input_ids": torch.randint(3, 100, (1, 5))}
    if config.model_type == "whisper":
        return {name: torch.randn(1, config.num_mel_bins, 64), **decoder}
    if config.model_type == "speech_to_text":
        return {name: torch.randn(1, 64, config.num_mel_bins), **decoder}
    return {name: torch.randn(1, _SAMPLES)}


def _cached(module: Any, config: Any) -> Network:
    """One step of decoding: a token and the cache of earlier ones in, logits and the cache out."""
    import torch
    from transformers import DynamicCache

    class Step(torch.nn.Module):
        """Caches as plain tensors, as somebody who exports a decoder passes them."""

        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, token: Any, mask: Any, caches: list[Any]) -> Any:
            cache = DynamicCache()
            for layer in range(len(caches) // 2):
                cache.update(caches[2 * layer], caches[2 * layer + 1], layer)
            output = self.network(
                input_ids=token, attention_mask=mask, past_key_values=cache, use_cache=True
            )
            layers = output.past_key_values.layers
            return output.logits, [t for layer in layers for t in (layer.keys, layer.values)]

    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    layers = config.num_hidden_layers
    caches = [torch.randn(1, heads, _LENGTH, size) for _ in range(2 * layers)]
    token = torch.randint(3, 100, (1, 1))
    return Network(Step().eval(), (token, torch.ones(1, _LENGTH + 1, dtype=torch.long), caches))
