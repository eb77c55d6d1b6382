"""What a search does between two batches of measurements, and how long that takes it.

Programs are not run: a cost model of another seed stands in for measurements. So nothing here
depends on how fast programs are, and what else the machine does matters little.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks._at_once import at_once
from foretune import cost, search
from foretune.bench import Side
from foretune.cost import CostModel, FloatArray, Prediction
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records import Record
from foretune.search import Strategy
from foretune.search.mcts import Mcts
from foretune.space import Candidate, Space
from foretune.tuning import prepare

ENDS = (128, 512)
"""Programs measured at the end of what is timed: early and late in a run."""
BATCH = 16
"""The tuner's own in runs of some hundred trials."""
_BATCHES = 8
"""Timed before each of these ends."""


class Counted(CostModel):
    """A cost model that counts what it is asked about.

    Args:
        model: Who answers.

    Attributes:
        drafted, scored: Candidates so far.
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.drafted = 0
        self.scored = 0

    def fit(self, records: Sequence[Record]) -> None:
        self.model.fit(records)

    def update(self, records: Sequence[Record]) -> None:
        self.model.update(records)

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        self.scored += len(candidates)
        return self.model.predict(candidates)

    def draft(self, candidates: Sequence[Candidate]) -> FloatArray:
        self.drafted += len(candidates)
        return self.model.draft(candidates)

    @property
    def ready(self) -> bool:
        return self.model.ready

    @property
    def informed(self) -> bool:
        return self.model.informed

    @property
    def informed_draft(self) -> bool:
        return self.model.informed_draft


@dataclass(frozen=True)
class _Batch:
    """One call of ``ask``: programs measured after it, and what it took."""

    measured: int
    asked: int
    drafted: int
    scored: int
    expanded: int
    asking_s: float
    making_s: float


def overhead(
    workload: str,
    hardware: Hardware,
    side: Side,
    *,
    ends: Sequence[int] = ENDS,
    batch: int = BATCH,
) -> list[dict[str, Any]]:
    """What a side looks at, and its processor time, early and late in a run.

    Args:
        workload: An INPUT of the command line: one workload.
        hardware: What for.
        side: One of ours that needs no language model.
        ends: Programs measured at the end of what is timed. The first batch, in which roots are
            made and weights are read, is not.
        batch: Candidates per batch.

    Returns:
        A row for each of ``ends`` that the space is large enough for: ``measured``;
        ``drafted, scored``, candidates that the cost model is asked about for each one measured;
        ``expansions`` of the tree per batch and ``ask_ms``, milliseconds per batch; per expansion
        ``search_ms`` and ``all_ms``. What making the proposed programs takes (TVM, for any
        strategy) is in ``all_ms`` and ``ask_ms``, but not in ``search_ms``. Without a tree
        ``expansions`` is 0 and the last two are None.
    """
    (program,) = prepare(workload, hardware).workloads
    space = Space.generate(program, hardware)
    model = Counted(cost.create(side.cost_model, rng=0, hardware=hardware))
    truth = cost.create("gbdt", rng=1, hardware=hardware)
    strategy = search.create(side.strategy, space, model, 0)
    batches: list[_Batch] = []
    while not batches or batches[-1].measured < max(ends):
        asked, done = _ask(strategy, model, batches[-1].measured if batches else 0, batch)
        if not asked:
            break
        batches.append(done)
        scores = truth.predict(asked).score.tolist()
        records = [_record(*pair) for pair in zip(asked, scores, strict=True)]
        model.update(records)
        strategy.tell(records)
    rows = []
    for end in ends:
        timed = [b for b in batches[1:] if end - _BATCHES * batch < b.measured <= end]
        if timed and batches[-1].measured >= end:
            rows.append({"measured": end, **_row(timed)})
    return rows


def overhead_alone(workload: str, hardware: Hardware, side: Side) -> list[dict[str, Any]]:
    """``overhead`` in a process of its own, in which nothing is known of the programs yet.

    Batches are those of the side, or of ``BATCH`` where it has none of its own.
    """
    (rows,) = at_once(1, _overhead, workload, hardware, side)
    found: list[dict[str, Any]] = rows
    return found


def _overhead(place: int, together: Any, *arguments: Any) -> list[dict[str, Any]]:
    del place, together
    workload, hardware, side = arguments
    return overhead(workload, hardware, side, batch=side.batch or BATCH)


def _ask(
    strategy: Strategy, model: Counted, measured: int, batch: int
) -> tuple[list[Candidate], _Batch]:
    drafted, scored, expanded = model.drafted, model.scored, _expanded(strategy)
    began = time.process_time()
    asked = strategy.ask(batch)
    asking = time.process_time() - began
    began = time.process_time()
    for candidate in asked:
        candidate.schedule()
    making = time.process_time() - began
    return asked, _Batch(
        measured + len(asked),
        len(asked),
        model.drafted - drafted,
        model.scored - scored,
        _expanded(strategy) - expanded,
        asking,
        making,
    )


def _expanded(strategy: Strategy) -> int:
    return strategy.expanded if isinstance(strategy, Mcts) else 0


def _record(candidate: Candidate, score: float) -> Record:
    measurement = Measurement(Status.OK, (1e-3 * 2.0**-score,), (True,))
    return Record.of(candidate, measurement, "overhead", {})


def _row(timed: Sequence[_Batch]) -> dict[str, Any]:
    asked = sum(each.asked for each in timed)
    expanded = sum(each.expanded for each in timed)
    asking = 1e3 * sum(each.asking_s for each in timed)
    making = 1e3 * sum(each.making_s for each in timed)
    return {
        "drafted": sum(each.drafted for each in timed) / asked,
        "scored": sum(each.scored for each in timed) / asked,
        "expansions": expanded / len(timed),
        "ask_ms": asking / len(timed),
        "all_ms": asking / expanded if expanded else None,
        "search_ms": max(0.0, asking - making) / expanded if expanded else None,
    }
