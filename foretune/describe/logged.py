"""Nests of measured programs, whether they have candidates or are from a log.

A log holds decisions and no programs. Who knows what some tool makes of them rebuilds these: the
package ``foretune_research`` does for AutoTVM, Ansor and Kernel Tuner. What nobody knows has no
nests, and nothing is claimed of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import IndexArray
from foretune._registry import Registry
from foretune.describe._candidates import nests_of

if TYPE_CHECKING:
    from foretune.dataset import Group
    from foretune.describe._nests import Nests

Batches = list[tuple[IndexArray, "Nests"]]
"""Of each structure, the numbers of the programs and their nests in that order."""

BUILDERS: Registry[Batches] = Registry(
    "builder of nests", "foretune.nest_builders", {}, studied=["logs"]
)
"""Called with a group of logged programs; what they cannot rebuild is in no batch."""


def nests_of_group(group: Group) -> Batches:
    """Nests of the programs of a group; those that nobody can rebuild are in none."""
    ours = [(row, p.candidate) for row, p in enumerate(group.programs) if p.candidate is not None]
    if ours:
        numbers = np.asarray([row for row, _ in ours], np.intp)
        candidates = [candidate for _, candidate in ours]
        return [(numbers[rows], nests) for rows, nests in nests_of(candidates)]
    for name in BUILDERS.names():
        built = BUILDERS.factory(name)(group)
        if built:
            return built
    return []
