"""Why a module cannot be exported, or cannot have a state, in words that name a remedy."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from foretune.errors import UnsupportedModelError


def registering(path: str, value: str) -> str:
    """The line of Python that makes an attribute of a module's part a buffer."""
    where, _, name = path.rpartition(".")
    return f"{'.'.join(filter(None, ('self', where)))}.register_buffer({name!r}, {value})"


def no_buffer(name: str, attribute: str) -> UnsupportedModelError:
    if attribute.startswith("lifted_tensor"):  # PyTorch's name for what the module does not name
        return UnsupportedModelError(
            f"model {name!r} writes a tensor that is neither an attribute of a module nor an "
            "input, one in a container or a global variable: make it a buffer with "
            "register_buffer: an input and an output of the artifact"
        )
    return UnsupportedModelError(
        f"model {name!r} writes its own attribute {attribute!r}, which PyTorch does not export: "
        "make it a buffer with register_buffer: an input and an output of the artifact"
    )


def why_no_state(path: str, old: Any, new: Any) -> str:
    """Why a buffer that is assigned cannot be a state; empty if it can."""
    if old is None:
        value = f"torch.zeros({tuple(new.shape)}, dtype={new.dtype})"
        return (
            f"gives its buffer {path!r} a value in a call, and a state has one before: start with "
            f"{registering(path, value)}, or call the module once before it is imported"
        )
    if new is None:
        return (
            f"sets its buffer {path!r} to None in a call, and a state is always a tensor: write "
            "zeros there, and a flag into another buffer"
        )
    if new.shape != old.shape:
        return (
            f"gives its buffer {path!r} another shape in a call, {tuple(new.shape)} in place of "
            f"{tuple(old.shape)}, and shapes of artifacts are fixed: register it at its largest "
            "size and write into it"
        )
    if new.dtype != old.dtype:
        return (
            f"gives its buffer {path!r} another type in a call, {new.dtype} in place of "
            f"{old.dtype}: register it with that type, or convert what is assigned"
        )
    return ""


def set_to_none(error: BaseException) -> str:
    """The buffer that PyTorch's export would not set to None; empty if that was not it.

    It raises inside of the assignment, without the name.
    """
    if "got <class 'NoneType'>" in str(error):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_name == "register_buffer":
                return str(frame.f_locals.get("name", ""))
    return ""


def is_of_packed_sequence(error: BaseException) -> bool:
    """Whether it was raised while sequences were packed, or in a layer that reads packed ones."""
    from torch.nn.utils import rnn

    return any(
        frame.f_code.co_filename == rnn.__file__ or frame.f_locals.get("batch_sizes") is not None
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def aliased(name: str, shared: Sequence[str]) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"model {name!r} writes a buffer that shares its memory with another one: "
        f"{' and '.join(map(repr, shared))} are one tensor, and states are apart: register one of "
        "them alone, or a copy (tensor.clone())"
    )
