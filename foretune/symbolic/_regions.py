"""Which part of a buffer is touched while some loops run and the others stand still."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from foretune.symbolic._index import Digit, Index, number
from foretune.symbolic._scalar import Scalar


@dataclass(frozen=True)
class Region:
    """An interval of one dimension.

    Attributes:
        start: Its first element, in terms of the loops that stand still.
        extent: Its length.
    """

    start: Index
    extent: Scalar


def region_of(index: Index, fixed: Collection[int]) -> Region:
    """What an index touches while all loops but those numbered in ``fixed`` run."""
    still = tuple(
        (c, atom)
        for c, atom in index.terms
        if all(d.loop in fixed for d in Index(c, ((c, atom),)).atoms() if isinstance(d, Digit))
    )
    moving = Index(
        index.algebra.number(0), tuple(term for term in index.terms if term not in still)
    )
    low, high = moving.range(lambda _: None)
    return Region(Index(index.constant + low, still), high - low + 1)


def united(a: Region, b: Region) -> Region:
    """The smallest interval that holds both; the loops that stand still have the same part in both.

    Where they have not, the larger extent from the first start.
    """
    zero = a.extent.algebra.number(0)
    difference = a.start + b.start.scaled(a.extent.algebra.number(-1))
    if difference.terms:
        return Region(a.start, a.extent.maximum(b.extent))
    shift = zero - difference.constant
    low = zero.minimum(shift)
    high = a.extent.maximum(b.extent + shift)
    return Region(a.start + Index(low), high - low)


def without_start(index: Index, region: Region) -> Index:
    """An index counted from the start of a region."""
    rest = index + region.start.scaled(index.algebra.number(-1))
    return rest if rest.terms else number(index.algebra, 0)
