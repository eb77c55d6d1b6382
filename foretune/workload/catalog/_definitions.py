"""PyTorch modules of the catalog that are not in transformers, and wrappers for those that are.

Imports PyTorch, so it is itself imported only when a network is built.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def normal(*shape: int) -> Tensor:
    """Standard normal values from a generator of their own."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def image(*shape: int) -> Tensor:
    """A batch of one image or video: (1, channels, ..., height, width)."""
    return normal(1, *shape)


def tokens(length: int, vocabulary: int) -> Tensor:
    """A batch of one sentence: int64 indices of shape (1, length)."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(vocabulary, (1, length), generator=generator)


def calibrate(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Gives a network with batch norms weights under which its activations keep their scale.

    Fresh random weights make the signal fade from layer to layer until the output is all but zero,
    and then every wrong kernel passes a comparison of outputs. Convolutions are drawn anew by the
    rule of He et al. (2015); each batch norm takes the statistics of the example input.
    """
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Conv3d)):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(layer, nn.ConvTranspose2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    module.eval()
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        module(*inputs)
    module.eval()


def positions(length: int) -> Tensor:
    """Token positions of shape (1, length)."""
    return torch.arange(length)[None]


class Pick(nn.Module):
    """Calls a transformers model and gives one field of its output, a plain tensor.

    Args:
        model: Takes one tensor.
        field: Of its output.
        constants: Further arguments that do not depend on the input; given here, the model does
            not compute them anew in every call.
    """

    def __init__(self, model: nn.Module, field: str, **constants: Tensor) -> None:
        super().__init__()
        self.model = model
        self.field = field
        self.names = tuple(constants)
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        """Any input the model takes, to the field."""
        constants = {name: getattr(self, name) for name in self.names}
        return getattr(self.model(x, **constants), self.field)


class First(nn.Module):
    """Calls a module that gives a tuple and gives its first element."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """(batch, tokens, width) to the same shape."""
        return self.module(x)[0]


def causal_mask(tokens: int) -> Tensor:
    """Added to the scores: 0 where a token may look, the lowest number elsewhere."""
    lowest = torch.finfo(torch.float32).min
    return torch.full((1, 1, tokens, tokens), lowest).triu(1)


class CausalAttention(nn.Module):
    """An attention block with the causal mask of a fixed number of tokens."""

    def __init__(self, block: nn.Module, tokens: int) -> None:
        super().__init__()
        self.block = block
        self.mask = nn.Buffer(causal_mask(tokens))

    def forward(self, x: Tensor) -> Any:
        """(1, tokens, width) to the same shape."""
        return self.block(x, attention_mask=self.mask)[0]


class DecoderBlock(nn.Module):
    """A LLaMA decoder layer with rotary embedding and mask for a fixed number of tokens."""

    def __init__(self, layer: nn.Module, rotary: nn.Module, tokens: int) -> None:
        super().__init__()
        self.layer = layer
        width = torch.zeros(1, tokens, 1)
        cosine, sine = rotary(width, torch.arange(tokens)[None])
        self.cosine = nn.Buffer(cosine.detach())
        self.sine = nn.Buffer(sine.detach())
        self.mask = nn.Buffer(causal_mask(tokens))

    def forward(self, x: Tensor) -> Any:
        """(1, tokens, width) to the same shape."""
        position = (self.cosine, self.sine)
        output = self.layer(x, attention_mask=self.mask, position_embeddings=position)
        return output[0] if isinstance(output, tuple) else output


class _BasicBlock(nn.Module):
    """Two 3x3x3 convolutions with batch norm and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm3d(outputs)
        self.conv2 = nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm3d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return torch.relu(y + self.shortcut(x))


class ResNet18Video(nn.Module):
    """R3D-18 (Tran et al., 2018): ResNet-18 with every convolution over time as well."""

    def __init__(self, classes: int = 400) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False),
            nn.BatchNorm3d(64),
            nn.ReLU(),
        )
        widths = (64, 64, 128, 256, 512)
        blocks: list[nn.Module] = []
        for index in range(4):
            inputs, outputs = widths[index], widths[index + 1]
            blocks.append(_BasicBlock(inputs, outputs, 1 if index == 0 else 2))
            blocks.append(_BasicBlock(outputs, outputs, 1))
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 3, frames, height, width) to (1, classes)."""
        y = self.blocks(self.stem(x))
        scores: Tensor = self.classifier(y.mean(dim=(2, 3, 4)))
        return scores


class Generator(nn.Module):
    """The generator of DCGAN (Radford et al., 2016): five transposed convolutions."""

    def __init__(self, noise: int = 100, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = (noise, width * 8, width * 4, width * 2, width)
        for index in range(4):
            stride, padding = (1, 0) if index == 0 else (2, 1)
            layers += [
                nn.ConvTranspose2d(
                    channels[index], channels[index + 1], 4, stride, padding, bias=False
                ),
                nn.BatchNorm2d(channels[index + 1]),
                nn.ReLU(),
            ]
        layers += [nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(1, noise, 1, 1) to an image (1, 3, 64, 64) with values in -1 to 1."""
        y: Tensor = self.layers(x)
        return y
