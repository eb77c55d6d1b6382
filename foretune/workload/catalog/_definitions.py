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


class Pick(nn.Module):
    """Calls a transformers model and gives one field of its output, a plain tensor."""

    def __init__(self, model: nn.Module, field: str) -> None:
        super().__init__()
        self.model = model
        self.field = field

    def forward(self, x: Tensor) -> Any:
        """Any input the model takes, to the field."""
        return getattr(self.model(x), self.field)


class First(nn.Module):
    """Calls a module that gives a tuple and gives its first element."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """(batch, tokens, width) to the same shape."""
        return self.module(x)[0]


class DecoderBlock(nn.Module):
    """A LLaMA decoder layer with its rotary embedding for a fixed number of tokens."""

    def __init__(self, layer: nn.Module, rotary: nn.Module, tokens: int) -> None:
        super().__init__()
        self.layer = layer
        width = torch.zeros(1, tokens, 1)
        cosine, sine = rotary(width, torch.arange(tokens)[None])
        self.cosine = nn.Buffer(cosine.detach())
        self.sine = nn.Buffer(sine.detach())

    def forward(self, x: Tensor) -> Any:
        """(1, tokens, width) to the same shape."""
        output = self.layer(x, position_embeddings=(self.cosine, self.sine))
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
