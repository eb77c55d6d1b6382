"""Plain attributes of a module: what a program that was exported cannot remember.

Numbers, words, lists and the like are read while a module is exported and are constants of the
program from then on. A module that changes them computes something else in its next call.
"""

from __future__ import annotations

import collections
import functools
from typing import Any

_DEPTH = 4
"""Containers and objects inside of each other that are looked into."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Attributes:
    """The attributes of a module and of its parts: as they were, and as each call leaves them.

    Args:
        module: A ``torch.nn.Module``. Its parameters, buffers and parts are not looked at.
    """

    def __init__(self, module: Any) -> None:
        self._parts = list(module.named_modules())
        self._derived = [derived(part) for _, part in self._parts]
        self._start = self._after = self._held()
        self._seen = self._latest = self._look()

    def note(self) -> None:
        """To be called at the end of a call: PyTorch puts back what it traced afterwards."""
        self._after, self._latest = self._held(), self._look()

    def advance(self) -> list[str]:
        """Makes the attributes what they were when noted; returns the names of those that changed.

        Changed since the last time that this was called.
        """
        before, self._seen = self._seen, self._latest
        names = [
            name
            for name in dict.fromkeys((*before, *self._seen))
            if before.get(name) != self._seen.get(name)
        ]
        if names:
            self._put(*self._after)
        return names

    def restore(self) -> None:
        """Makes them what they were at first, and containers among them hold what they held."""
        self._put(*self._start)

    def _held(self) -> tuple[list[dict[str, Any]], list[tuple[Any, Any]]]:
        """Values by part, and what containers among them hold."""
        values = [own for _, _, own in self._each()]
        held = [value for own in values for value in own.values()]
        return values, [(value, value.copy()) for value in held if isinstance(value, _CONTAINERS)]

    def _put(self, values: list[dict[str, Any]], contents: list[tuple[Any, Any]]) -> None:
        for (_, part, have), own in zip(self._each(), values, strict=True):
            for name in have:
                if name not in own:
                    del vars(part)[name]
            vars(part).update(own)
        for container, content in contents:
            container.clear()
            fill = container.extend if isinstance(container, _LISTS) else container.update
            fill(content)

    def _look(self) -> dict[str, Any]:
        return {
            f"{path}.{name}" if path else name: _frozen(value, _DEPTH)
            for path, _, own in self._each()
            for name, value in own.items()
        }

    def _each(self) -> list[tuple[str, Any, dict[str, Any]]]:
        """Path, part and its attributes that are its own."""
        return [
            (path, part, {n: v for n, v in _own(part).items() if n not in derived})
            for (path, part), derived in zip(self._parts, self._derived, strict=True)
        ]


def derived(part: Any) -> frozenset[str]:
    """Attributes of a module that PyTorch itself computes from its parameters in each call.

    Recurrent layers list their weights; weight norm, spectral norm and pruning write a weight ahead
    of each call. Nobody reads what the call before has left there.
    """
    import torch

    names = set(_LISTS_OF_WEIGHTS) if isinstance(part, torch.nn.RNNBase) else set()
    for hook in part._forward_pre_hooks.values():
        if type(hook).__module__.startswith("torch.nn.utils."):
            names |= {vars(hook)[key] for key in ("name", "_tensor_name") if key in vars(hook)}
    return frozenset(names)


_LISTS_OF_WEIGHTS = ("_flat_weights", "_flat_weight_refs")
_LISTS = (list, collections.deque)
_CONTAINERS = (*_LISTS, dict, set)


@functools.cache
def _of_every_module() -> frozenset[str]:
    import torch

    return frozenset(vars(torch.nn.Module())) | {"forward"}


def _own(part: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if name not in _of_every_module()}


class _Same:
    """Something that is equal to itself alone."""

    def __init__(self, value: Any) -> None:
        self._value = value  # kept, so that no other object gets its place in memory

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


def _frozen(value: Any, depth: int) -> Any:
    """What can be compared with the same later, when ``value`` may have changed."""
    if isinstance(value, _PLAIN):
        return type(value), repr(value)
    if not depth:
        return _Same(value)
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value), tuple(_frozen(part, depth - 1) for part in value)
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(_frozen(part, depth - 1) for part in value)
    if isinstance(value, dict):
        items = ((_frozen(k, depth - 1), _frozen(v, depth - 1)) for k, v in value.items())
        return type(value), tuple(items)
    return _Same(value), _frozen(_fields(value), depth - 1)


def _fields(value: Any) -> dict[str, Any] | None:
    """Of an object of somebody's own class."""
    import torch

    library = type(value).__module__.partition(".")[0]
    known = isinstance(value, (torch.Tensor, torch.nn.Module, type)) or callable(value)
    if known or library in ("builtins", "torch", "numpy"):
        return None
    return getattr(value, "__dict__", None)
