"""The joined ranker in a run: two looks at a candidate, and shares that the run corrects.

Idea. Thousands of candidates are ranked by the members that read decisions; those from which a
batch is about to be drawn are looked at by all (``look``). Of each program that is measured the
opinion of every member is kept. Shares start as they were learned on other workloads, and ridge
regression moves them to where they explain this workload's measurements (``Shares.corrected``). On
top of that trees grow on what is left, as for every pretrained model.

Opinions are up to a constant of the workload, and those of all members have another one than those
of some. So what few have seen is moved by what the others think of the workload on average, over
the programs that all have looked at: only then do scores of both kinds compare.

Symbols: n candidates; k members, of which the first read decisions only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import BoolArray, FloatArray
from foretune._options import require_type
from foretune.cost import rankers
from foretune.cost._base import Abilities, CostModel
from foretune.cost._opinions import answers
from foretune.cost._prior import Measured, Prior
from foretune.cost.gbdt import GradientBoosting
from foretune.cost.joined import JoinedRanker
from foretune.cost.pretrained import (
    ACTIONS,
    TRUST,
    InformedModel,
    gbdt,
    refuse_learning,
    remembered,
)
from foretune.cost.shipped import is_known, shipped
from foretune.errors import BadInputError
from foretune.space import Candidate

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.records import Trial

WEIGHTS = "joined"
_KEEP = 48


class JoinedPrior(Prior):
    """What members of a joined ranker expect: some of any candidate, all of what was looked at.

    Args:
        ranker: Whose members.
        remembered: Candidates whose opinions are kept.
    """

    def __init__(self, ranker: JoinedRanker, remembered: int) -> None:
        self._ranker, self._most = ranker, remembered
        self._width, self._first = len(ranker.members), len(ranker.far_members)
        self._rows: OrderedDict[tuple[str, str], FloatArray] = OrderedDict()
        self._looked: dict[str, dict[str, FloatArray]] = {}
        """By workload and candidate, the opinions of all members."""

    def opinions(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Opinions, shape (n, k): NaN of members that have not looked at a program."""
        table = np.full((len(candidates), self._width), np.nan)
        if not candidates:
            return table
        new = self._unknown(candidates)
        if new:
            some = self._asked(new, self._ranker.far_members)
            for candidate, row in zip(new, some, strict=True):
                padded = np.full(self._width, np.nan)
                padded[: self._first] = row
                self._rows[candidate.workload.key, candidate.key] = padded
        for at, candidate in enumerate(candidates):
            place = (candidate.workload.key, candidate.key)
            table[at] = self._rows[place]
            self._rows.move_to_end(place)
        while len(self._rows) > max(self._most, len(candidates)):
            (workload, key), _ = self._rows.popitem(last=False)
            self._looked.get(workload, {}).pop(key, None)
        return table

    def look(self, candidates: Sequence[Candidate]) -> None:
        """Has all members look at candidates that only some have seen."""
        rows = self.opinions(candidates)
        due = np.isnan(rows).any(axis=1) & ~np.isnan(rows).all(axis=1)
        some = [candidates[at] for at in np.flatnonzero(due).tolist()]
        new = {(c.workload.key, c.key): c for c in some}
        nearer = list(self._ranker.members)[self._first :]
        if new and nearer:
            for place, answer in zip(new, self._asked(list(new.values()), nearer), strict=True):
                row = np.concatenate([self._rows[place][: self._first], answer])
                # What one cannot score cannot be applied.
                legal = not np.isnan(row).any()
                self._rows[place] = row if legal else np.full_like(row, np.nan)
                if legal:
                    workload, key = place
                    self._looked.setdefault(workload, {})[key] = row

    def refused(self, candidates: Sequence[Candidate]) -> BoolArray:
        """Which candidates a closer look found illegal, shape (n,)."""
        return np.asarray(np.isnan(self.opinions(candidates)).all(axis=1))

    def weighed(self, opinions: FloatArray, measured: Measured, strength: float) -> FloatArray:
        """Scores by the shares that a workload's measurements correct, shape (n,).

        Args:
            opinions: Shape (n, k).
            measured: Of the same workload.
            strength: Not looked at: shares have doubts of their own.
        """
        del strength
        scores = self._shared(opinions, measured)
        far = self._is_far(opinions) & ~np.isnan(opinions).all(axis=1)
        if far.any():
            scores[far] += self._shift(measured)
        return scores

    def alone(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Scores by the shares as they were learned, shape (n,); NaN for what was refused."""
        opinions = self.opinions(candidates)
        names = np.array([candidate.workload.key for candidate in candidates])
        scores = np.full(len(candidates), np.nan)
        for workload in dict.fromkeys(names.tolist()):
            mine = names == workload
            scores[mine] = self.weighed(opinions[mine], Measured(workload), self.strength)
        scores[np.isnan(opinions).all(axis=1)] = np.nan
        return scores

    def _shift(self, measured: Measured) -> float:
        """By how much all members think more of the programs they looked at than some did."""
        rows = np.array(list(self._looked.get(measured.workload, {}).values()))
        if not len(rows):
            return 0.0
        some = rows.copy()
        some[:, self._first :] = np.nan
        return float((self._shared(rows, measured) - self._shared(some, measured)).mean())

    def _is_far(self, opinions: FloatArray) -> BoolArray:
        """Of which programs only some members have an opinion, shape (n,)."""
        return np.asarray(np.isnan(opinions[:, self._first :]).any(axis=1))

    def _shared(self, opinions: FloatArray, measured: Measured) -> FloatArray:
        """Opinions times shares, shape (n,); 0 where there are none."""
        far = self._is_far(opinions)
        scores = np.zeros(len(opinions))
        for mask, shares, width in (
            (far, self._ranker.far, self._first),
            (~far, self._ranker.near, self._width),
        ):
            if mask.any():
                rows, speeds = _speeds(measured, width)
                scores[mask] = opinions[mask, :width] @ shares.corrected(rows, speeds)
        return np.nan_to_num(scores)

    def _unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        places = {(c.workload.key, c.key): c for c in candidates}
        return [c for place, c in places.items() if place not in self._rows]

    def _asked(self, candidates: Sequence[Candidate], members: Sequence[str]) -> FloatArray:
        """Opinions of some members, shape (n, members)."""
        return answers(
            candidates,
            lambda programs, machine: self._ranker.opinions(
                programs, machine, machine.key, members
            ),
            len(members),
        )


def _speeds(measured: Measured, width: int) -> tuple[FloatArray, FloatArray]:
    """Opinions of the first members and speeds of what ran, of those that all have seen."""
    if not measured.opinions:
        return np.zeros((0, width)), np.zeros(0)
    rows, seconds = measured.table()
    rows = rows[:, :width]
    known = ~np.isnan(seconds) & ~np.isnan(rows).any(axis=1)
    return rows[known], -np.log2(seconds[known])


class JoinedModel(InformedModel):
    """Trees and perceptrons: on decisions for the many, on behaviour for the few.

    Args:
        rng: Seeds the trees of the run; drawn from once.
        hardware: What the candidates will run on; says which weights are meant. A CPU if None.
        ranker: A trained ranker ``joined``, a file of one, or the name of weights that come with
            the package.
        keep: Candidates per batch that all members look at; 0: decisions alone are looked at.
        online: Whether the run's measurements are learned from.
        options: As ``GradientBoosting`` takes them.

    Raises:
        BadInputError: There are no such weights, or an option is unknown or makes no sense.
        RecordError: A file cannot be read, is damaged, or is of another version.
    """

    def __init__(
        self,
        *,
        rng: np.random.Generator,
        hardware: Hardware | None = None,
        ranker: JoinedRanker | Path | str = WEIGHTS,
        keep: int = _KEEP,
        online: bool = True,
        **options: Any,
    ) -> None:
        require_type("cost model 'joined'", "keep", keep, int)
        require_type("cost model 'joined'", "online", online, bool)
        if keep < 0:
            raise BadInputError(f"cost model 'joined': keep >= 0 must hold, but got {keep}")
        self.ranker = _trained(ranker, "llvm" if hardware is None else hardware.kind)
        self._keep = keep
        self._members = JoinedPrior(self.ranker, remembered(options))
        correction = None
        if online:
            learning = {**ACTIONS, "trust": TRUST, **options}
            correction = GradientBoosting(
                rng=rng, hardware=hardware, prior=self._members, **learning
            )
        else:
            refuse_learning(options)
        super().__init__(self._members, correction)

    @property
    def abilities(self) -> Abilities:
        """It looks closer at ``keep`` candidates."""
        return replace(super().abilities, closer=self._keep)

    def update(self, records: Sequence[Trial[Candidate]]) -> None:
        """Adds records; all members look at what was measured."""
        if self._correction is not None:
            self._members.look([each.candidate for each in records])
        super().update(records)

    def look(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Scores by all members, shape (n,); NaN for a candidate that cannot be applied."""
        self._members.look(candidates)
        return self.predict(candidates).score


def joined(
    *, rng: np.random.Generator, hardware: Hardware | None = None, **options: Any
) -> CostModel[Candidate]:
    """Trees and perceptrons, on decisions and on behaviour, with shares that the run corrects.

    Where no such weights come with the package for the kind of hardware, or not enough is known of
    the hardware, this is ``gbdt``.

    Args:
        rng: Seeds the trees of the run.
        hardware: What the candidates will run on.
        options: As ``JoinedModel`` takes them.

    Raises:
        BadInputError: An option is unknown, makes no sense, or has no effect on this hardware.
    """
    if "ranker" not in options and hardware is not None and is_known(hardware):
        ranker = shipped(WEIGHTS, hardware.kind)
        if isinstance(ranker, JoinedRanker):
            options["ranker"] = ranker
    if "ranker" in options:
        return JoinedModel(rng=rng, hardware=hardware, **options)
    if "keep" in options:
        raise BadInputError(
            "joined: keep is for the ranker that comes with the package, but it does not fit this "
            "target: leave it out, or name a file of weights (.npz) as the cost model"
        )
    return gbdt(rng=rng, hardware=hardware, **options)


def _trained(ranker: JoinedRanker | Path | str, kind: str) -> JoinedRanker:
    made: object = ranker
    if isinstance(ranker, Path) or (isinstance(ranker, str) and ranker.endswith(".npz")):
        made = rankers.load_for_run(Path(ranker))
    elif isinstance(ranker, str):
        made = shipped(ranker, kind)
    if not isinstance(made, JoinedRanker):
        raise BadInputError(
            f"the cost model 'joined' is made of a ranker 'joined', but got {ranker!r} for targets "
            f"of kind {kind!r}: train one with `foretune train joined` and give the file"
        )
    return made
