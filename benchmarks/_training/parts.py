"""What the training networks are made with: transformers' classes by name, and small wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from foretune.workload.catalog import _definitions as d

Definition = tuple[nn.Module, tuple[Tensor, ...]]
"""A network and its example arguments."""

VOCABULARY = 1000
"""Of all text networks: an embedding is a copy of rows, whatever the length of its table."""


def made(model: str, config: str, **fields: Any) -> Any:
    """A model of transformers with random weights, its configuration changed by some fields.

    Attention is products and softmax one by one, as in the catalog.
    """
    import transformers

    wanted = getattr(transformers, config)(**fields)
    wanted.use_cache = False
    wanted._attn_implementation = "eager"
    return getattr(transformers, model)(wanted)


def text(model: str, config: str, length: int, batch: int = 1, **fields: Any) -> Definition:
    """An encoder of token indices of shape (batch, length) to its last hidden state."""
    module = made(model, config, vocab_size=VOCABULARY, **fields)
    tokens = d.tokens(length, VOCABULARY).repeat(batch, 1)
    return d.Pick(module, "last_hidden_state"), (tokens,)


def decoder(model: str, config: str, length: int, **fields: Any) -> Definition:
    """A causal language model without its head, with the mask and positions of a fixed length."""
    module = made(model, config, vocab_size=VOCABULARY, **fields)
    constants = {"attention_mask": d.causal_mask(length), "position_ids": d.positions(length)}
    return d.Pick(module, "last_hidden_state", **constants), (d.tokens(length, VOCABULARY),)


def vision(
    model: str, config: str, field: str, size: int, batch: int = 1, **fields: Any
) -> Definition:
    """A network of a square image to one field of its output."""
    module = made(model, config, **fields)
    return d.Pick(module, field), (d.normal(batch, 3, size, size),)


class Call(nn.Module):
    """Calls a module in a way of its own.

    Args:
        module: What has the weights.
        call: Of the module and the inputs to the output.
        constants: Further inputs that are the same in each call.
    """

    def __init__(self, module: nn.Module, call: Callable[..., Any], *constants: Tensor) -> None:
        super().__init__()
        self.module = module
        self.call = call
        self.names = tuple(f"constant{at}" for at in range(len(constants)))
        for name, value in zip(self.names, constants, strict=True):
            self.register_buffer(name, value)

    def forward(self, *inputs: Tensor) -> Any:
        """Whatever the call makes of the inputs and the constants."""
        return self.call(self.module, *inputs, *(getattr(self, name) for name in self.names))


def conv(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int] = 3,
    stride: int = 1,
    activation: Callable[[], nn.Module] | None = nn.ReLU,
    **options: Any,
) -> nn.Sequential:
    """A 2-D convolution that keeps the size at stride 1, batch norm, and an activation."""
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    dilation = options.get("dilation", 1)
    padding = tuple(dilation * (side - 1) // 2 for side in sides)
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, sides, stride, padding, bias=False, **options),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class Residual(nn.Module):
    """Adds what a module makes of its input to the input."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.module(x)
        return y


class Branches(nn.Module):
    """Several modules beside each other, their channels joined."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)
