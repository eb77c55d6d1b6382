"""Kinds of scheduling actions, and the numbers that stand for what they name."""

from __future__ import annotations

import functools
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

from foretune.space import ComputeLocation
from foretune.space.actions import Slot

OWN_KINDS = (
    "split",
    "reorder",
    "fuse",
    "annotate",
    "unannotate",
    "compute_at",
    "reverse_compute_at",
    "compute_inline",
    "reverse_compute_inline",
    "cache_read",
    "cache_write",
    "rfactor",
    "bind",
    "vectorize",
    "parallel",
    "unroll",
    "set_scope",
    "storage_align",
    "decompose_reduction",
    "tensorize",
    "blockize",
    "transform_layout",
    "transform_block_layout",
    "re_index",
    "pad_einsum",
    "add_unit_loop",
)
"""Kinds of actions of our candidates and of MetaSchedule's traces of any version."""

ANSOR_KINDS = (
    "AN",
    "FU",
    "PR",
    "RE",
    "SP",
    "FSP",
    "FFSP",
    "SA",
    "CA",
    "CI",
    "CR",
    "CHR",
    "CHW",
    "RF",
)
"""Codes of the steps in Ansor's logs."""

PARAMETER = "parameter"
"""The action that stands for one parameter of a kernel tuner's configuration."""
OTHER = "other"

KINDS = (*OWN_KINDS, *ANSOR_KINDS, PARAMETER, OTHER)

_KIND_INDEX = {kind: at for at, kind in enumerate(KINDS)}
_KIND_INDEX.update({kind.lower(): _KIND_INDEX[kind] for kind in ANSOR_KINDS})

_LEVELS = 8.0
"""A loop's level counts an eighth of an axis, so that levels of one axis stay beside each other."""
_HASHES = 64
_SPECIAL = {"auto": 0.0, "root": -1.0, "inline": -2.0}
_LOOP_NUMBER = re.compile(r"loop(\d+)")
_TVM_LOOP = re.compile(r"(\w+?)_(\d+)")


def kind_index(kind: str) -> int:
    """Place of a kind in ``KINDS``; that of ``OTHER`` if it is not known."""
    return _KIND_INDEX.get(kind, _KIND_INDEX[OTHER])


def scaled(value: float) -> float:
    """A number of any size made small: sign(x) log2(1 + |x|)."""
    return math.copysign(math.log2(1 + abs(value)), value)


def name_number(text: str, axes: Mapping[str, tuple[str, ...]]) -> float:
    """A small number for the name of a loop, a block or an annotation, equal in every process.

    A loop counts one for its place among the axes of its block and an eighth for its level; names
    of which nothing is known are hashed into [0, 1). The largest step of Ansor's unroll pragma is
    scaled like any number.

    Before → after: with axes ``{"C": ("i", "j")}``, ``"C.j.2"`` → 2.25, ``"root"`` → -1,
    ``"auto_unroll_max_step$64"`` → log2(65).

    Args:
        text: The name.
        axes: Block -> names of its loops, where known.
    """
    if text in _SPECIAL:
        return _SPECIAL[text]
    _, dollar, number = text.rpartition("$")
    if dollar and number.isdigit():
        return scaled(int(number))
    # A fused loop begins where its first one does.
    parts = text.partition("+")[0].split(".")
    level = int(parts.pop()) if len(parts) > 1 and parts[-1].isdigit() else 0
    axis = _axis(parts, axes)
    if axis is None:
        matched = _TVM_LOOP.fullmatch(text)
        axis = _axis_anywhere(matched[1] if matched else text, axes)
        level = int(matched[2]) if matched else 0
    if axis is None:
        return (zlib.crc32(text.encode()) % _HASHES) / _HASHES
    return 1.0 + axis + level / _LEVELS


def _axis(parts: list[str], axes: Mapping[str, tuple[str, ...]]) -> int | None:
    if numbered := _LOOP_NUMBER.fullmatch(parts[-1]):
        return int(numbered[1])
    own = axes.get(".".join(parts[:-1]), ())
    return own.index(parts[-1]) if parts[-1] in own else None


def _axis_anywhere(name: str, axes: Mapping[str, tuple[str, ...]]) -> int | None:
    return next((own.index(name) for own in axes.values() if name in own), None)


class LocationNames:
    """Names of locations, which depend on the locations decided earlier, as numbers.

    Args:
        sketch: Whose locations.
    """

    def __init__(self, sketch: Any) -> None:
        self._sketch = sketch
        self._known: dict[tuple[int, tuple[int, ...], int], float] = {}

    def numbers(self, decisions: tuple[Any, ...]) -> dict[int, float]:
        """Variable -> number of the location decided, for one candidate."""
        table: dict[int, float] = {}
        for key in self._sketch.contexts(decisions):
            if key not in self._known:
                name = self._sketch.locations.name(*key)
                self._known[key] = name_number(name, self._sketch.axes)
            table[key[0]] = self._known[key]
        return table


@functools.lru_cache(maxsize=512)
def location_names(sketch: Any) -> LocationNames:
    """The names of a sketch's locations, kept from call to call."""
    return LocationNames(sketch)


def is_location(sketch: Any, slot: Slot) -> bool:
    """Whether a slot is filled by a compute location."""
    return isinstance(sketch.variables[slot.variable], ComputeLocation)
