"""Columns of programs: what a source says of their behaviour, beside what other devices took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import BoolArray, FloatArray, IndexArray
from foretune.cost.behaviour.columns import NAMES, columns, predicted
from foretune.cost.behaviour.memory import Memory
from foretune.cost.behaviour.scores import AnalyticScores, ScoreSource
from foretune.describe import joined

if TYPE_CHECKING:
    from foretune.cost.behaviour.reading import Batches
    from foretune.dataset import Program
    from foretune.describe import Behaviours, Nests
    from foretune.hardware import Device


def asked(
    source: ScoreSource,
    workload: str,
    programs: Sequence[Program],
    batches: Batches,
    device: Device,
    memory: Memory | None = None,
    *,
    fills: bool = True,
) -> tuple[FloatArray, BoolArray]:
    """What a regressor reads of programs.

    Args:
        source: Of scores.
        workload: Its key, for the memory.
        programs: Of the workload, n of them.
        batches: Those that are asked about, with their rows.
        device: Which they are judged on.
        memory: What other devices took; None: it is not looked at.
        fills: Whether formulas answer where the source says nothing.

    Returns:
        Columns, shape (n, len(NAMES)), NaN for a program that is in no batch; of which programs
        something was said, shape (n,).
    """
    ask = source.behaviours if fills else source.told
    keys = [] if memory is None else [program.key for program in programs]
    table = np.full((len(programs), len(NAMES)), np.nan)
    known = np.zeros(len(programs), dtype=bool)
    for rows, nests in joined(batches) if source.joins else batches:
        behaviours = ask(nests, device)
        remembered = None
        if memory is not None:
            own = [keys[row] for row in rows]
            remembered = _remembered(source, memory, workload, own, nests, behaviours, device)
        table[rows] = columns(behaviours, nests, remembered, device)
        known[rows] = fills | ~np.isnan(behaviours.scores).all(axis=1)
    return table, known


def _remembered(
    source: ScoreSource,
    memory: Memory,
    workload: str,
    keys: Sequence[str],
    nests: Nests,
    behaviours: Behaviours,
    device: Device,
) -> FloatArray:
    if source.name != AnalyticScores.name:
        return memory.columns(device, workload, keys)
    theirs = {
        other.key: predicted(source.behaviours(nests, other), nests)
        for other in memory.others(device, workload)
    }
    return memory.columns(device, workload, keys, predicted(behaviours, nests), theirs)


def part_of(batch: tuple[IndexArray, Nests], survivors: IndexArray) -> tuple[IndexArray, Nests]:
    """What survives of a batch."""
    rows, nests = batch
    kept = np.isin(rows, survivors)
    return (rows, nests) if kept.all() else (rows[kept], nests.take(np.flatnonzero(kept)))
