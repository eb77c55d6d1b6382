"""Sampling from a model of transformers with a generator of its own.

Imported where a model answers, never earlier: PyTorch is optional.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OwnDraws(TorchFunctionMode):
    """Inside, in this thread alone, tokens are drawn from a generator that nobody else uses.

    PyTorch's own state is shared by all threads: seeding it here would change what others draw, the
    training of a cost model for example, and their draws would change the answer. ``generate``
    takes no generator, so the one function that it draws with is given one.

    Args:
        seed: Of the generator.
        device: Where the model runs.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        super().__init__()
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func is torch.multinomial:
            given["generator"] = self._generator
        return func(*args, **given)
