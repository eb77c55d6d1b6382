"""A random network: operators drawn one after the other on the tensors there are so far.

Every operator is run eagerly as it is drawn, on the network's example, so that the next one knows
the shapes; one that PyTorch refuses, or whose values leave the range in which a comparison says
something, is drawn again. Values are *exact* where rounding cannot have touched them: operators
that jump (``argmax``, comparisons, rounding) take only those, because a last bit decides there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

_ATTEMPTS = 60
_LARGEST = 1 << 14
"""Elements of the largest tensor: the networks are to be many, not large."""
_SIZES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16)
_DTYPES = (*(torch.float32,) * 6, torch.float64, torch.float16, torch.bfloat16)


@dataclass
class Value:
    """A tensor of the network on its example.

    Attributes:
        tensor: What it is on the example.
        exact: Whether no rounding went into it.
    """

    tensor: torch.Tensor
    exact: bool


@dataclass
class Step:
    """One operator: what is called, and on which values.

    Attributes:
        name: Of the operator, for people.
        call: A module or function of tensors; a module's weights become the network's.
        operands: Indices of values.
        exact: Whether exact operands give an exact result.
    """

    name: str
    call: Callable[..., torch.Tensor]
    operands: tuple[int, ...]
    exact: bool = False


@dataclass
class Draw:
    """What an operator is drawn from.

    Attributes:
        rng: Decides everything.
        values: The tensors there are.
        dtype: The floating-point type of inputs and weights.
    """

    rng: np.random.Generator
    values: list[Value]
    dtype: torch.dtype

    def choice(self, options: Any) -> Any:
        """One of a sequence."""
        return options[int(self.rng.integers(len(options)))]

    def flip(self) -> bool:
        """True or False."""
        return bool(self.rng.integers(2))

    def value(self, accepts: Callable[[Value], bool]) -> int | None:
        """The index of a value that is accepted, recent ones more often; None without one."""
        found = [i for i, value in enumerate(self.values) if accepts(value)]
        if not found:
            return None
        return found[-1] if self.flip() else int(self.choice(found))

    def floats(self, *ranks: int) -> int | None:
        """The index of a floating-point value of one of these ranks, of any if none is given."""
        return self.value(
            lambda v: v.tensor.dtype == self.dtype and (not ranks or v.tensor.ndim in ranks)
        )

    def axis(self, index: int) -> int:
        """An axis of a value, from the end half of the time."""
        rank = max(self.values[index].tensor.ndim, 1)
        axis = int(self.rng.integers(rank))
        return axis - rank if self.flip() else axis


class Network(nn.Module):
    """Runs the steps in order and returns several of the values."""

    def __init__(self, steps: list[Step], outputs: list[int], inputs: int) -> None:
        super().__init__()
        self.steps = steps
        self.outputs = outputs
        self.inputs = inputs
        weighted = [step.call for step in steps if isinstance(step.call, nn.Module)]
        self.weighted = nn.ModuleList(weighted)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for step in self.steps:
            values.append(step.call(*[values[index] for index in step.operands]))
        return tuple(values[index] for index in self.outputs)

    @property
    def operators(self) -> list[str]:
        """Names of its operators, in order."""
        return [step.name for step in self.steps]


def draw(seed: int) -> tuple[Network, tuple[torch.Tensor, ...]]:
    """The network of a seed and an example of its inputs."""
    from tests.graph.random_networks.operators import OPERATORS

    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    state = Draw(rng, [], _DTYPES[int(rng.integers(len(_DTYPES)))])
    for _ in range(int(rng.integers(1, 4))):
        state.values.append(Value(_input(state), True))
    inputs = tuple(value.tensor for value in state.values)
    steps: list[Step] = []
    wanted = int(rng.integers(3, 13))
    for _ in range(_ATTEMPTS):
        step = state.choice(OPERATORS)(state)
        made = None if step is None else _made(step, state)
        if step is None or made is None:
            continue
        steps.append(step)
        state.values.append(made)
        if len(steps) == wanted:
            break
    return Network(steps, _outputs(state, len(inputs)), len(inputs)).eval(), inputs


def _input(state: Draw) -> torch.Tensor:
    kind = state.choice(("image", "image", "sequence", "any", "any", "whole", "flags"))
    if kind == "image":
        shape = [state.choice((1, 2)), *(state.choice(_SIZES) for _ in range(3))]
    elif kind == "sequence":
        shape = [state.choice((1, 3)), state.choice(_SIZES), state.choice((4, 6, 8, 12))]
    else:
        shape = [state.choice(_SIZES[:7]) for _ in range(int(state.rng.integers(0, 6)))]
    if kind == "whole":
        dtype = state.choice((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8))
        return torch.from_numpy(np.asarray(state.rng.integers(0, 8, shape))).to(dtype)
    if kind == "flags":
        return torch.from_numpy(np.asarray(state.rng.integers(0, 2, shape) == 1))
    # Quarters: exact in every type, and so are their sums and small products.
    drawn = np.asarray(state.rng.integers(-8, 9, shape) / 4 + state.rng.normal(0, 0.5, shape))
    return torch.from_numpy(drawn).to(state.dtype)


def _made(step: Step, state: Draw) -> Value | None:
    """The value of a step on the example; None where it cannot be or says nothing."""
    operands = [state.values[index] for index in step.operands]
    if isinstance(step.call, nn.Module):
        step.call.to(state.dtype).eval().requires_grad_(False)
    try:
        with torch.no_grad():
            tensor = step.call(*[operand.tensor for operand in operands])
    # An operator that PyTorch does not take on these operands: another is drawn.
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
        return None
    if not isinstance(tensor, torch.Tensor) or not 0 < tensor.numel() <= _LARGEST:
        return None
    if tensor.ndim > 6 or tensor.is_complex():
        return None
    if tensor.is_floating_point():
        limit = 50.0 if tensor.dtype in (torch.float16, torch.bfloat16) else 1e4
        if not bool(torch.isfinite(tensor).all()) or float(tensor.abs().max()) > limit:
            return None
    exact = step.exact and all(operand.exact for operand in operands)
    return Value(tensor, exact)


def _outputs(state: Draw, inputs: int) -> list[int]:
    made = list(range(inputs, len(state.values)))
    if not made:
        return [0]
    chosen = {made[-1]}
    for index in made[:-1]:
        if state.rng.random() < 0.15:
            chosen.add(index)
    found = sorted(chosen, reverse=state.flip())
    if state.rng.random() < 0.05:
        found.append(found[0])  # The same tensor twice.
    if state.rng.random() < 0.05:
        found.append(0)  # An input as it came.
    return found
