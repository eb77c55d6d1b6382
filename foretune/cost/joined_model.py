"""The joined ranker in a run: two looks at a candidate, and shares that the run corrects.

Idea. Thousands of candidates are ranked by the members that read decisions; those from which a
batch is about to be drawn are looked at by all (``look``). Of each program that is measured the
opinion of every member is kept. Shares start as they were learned on other workloads, and ridge
regression moves them to where they explain this workload's measurements (``Shares.corrected``). On
top of that trees grow on what is left, as for every pretrained model.

Opinions are up to a constant of the workload, and those of all members have another one than those
of some. So what few have seen is moved by what the others think of the workload on average, over
the programs that all have looked at: only then do scores of both kinds compare.

The spread of a prediction says how far members and trees disagree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from foretune._options import require_type
from foretune.cost import rankers
from foretune.cost._base import CostModel, FloatArray, Prediction
from foretune.cost._opinions import answers, illegal_last
from foretune.cost.gbdt import GradientBoosting, _Group
from foretune.cost.joined import JoinedRanker
from foretune.cost.pretrained import TRUST, action_rows, gbdt, is_known, only_row, shipped
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.records import Record
    from foretune.space import Candidate

WEIGHTS = "joined"
_KEEP = 48


class JoinedModel(CostModel):
    """Trees and perceptrons: on decisions for the many, on behaviour for the few.

    Always ``ready`` and ``informed``.

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

    ranker_name: ClassVar[str] = JoinedRanker.name

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
        self._keep, self._online = keep, online
        self._rows: OrderedDict[tuple[str, str], FloatArray] = OrderedDict()
        self._looked: dict[str, dict[str, FloatArray]] = {}
        self._trees = _Corrected(
            self.ranker,
            self._looked,
            rng=rng,
            hardware=hardware,
            prior_of=self._known,
            **{"extract": action_rows, "aggregate": only_row, "trust": TRUST, **options},
        )

    @property
    def informed(self) -> bool:
        """True: the members were trained on other workloads."""
        return True

    @property
    def closer(self) -> int:  # type: ignore[override]
        """``keep``."""
        return self._keep

    def fit(self, records: Sequence[Record]) -> None:
        """Forgets every record of this run, but not what the members were trained on."""
        self._trees.fit([])
        self.update(records)

    def update(self, records: Sequence[Record]) -> None:
        """Adds records; one with a known candidate replaces the earlier measurement."""
        if self._online:
            known = [record.candidate for record in records if record.candidate is not None]
            self._look(known)
            self._trees.update(records)

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        """Scores candidates; NaN for one that a closer look found illegal."""
        found = self._trees.predict(candidates)
        rows = self._known(candidates)
        score = np.where(np.isnan(rows).all(axis=1), np.nan, found.score)
        return Prediction(score, np.hypot(found.spread, self._disagreement(rows)))

    def look(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Scores by all members, shape (n,); NaN for a candidate that cannot be applied."""
        self._look(candidates)
        return self.predict(candidates).score

    def draft(self, candidates: Sequence[Candidate]) -> FloatArray:
        """The score: decisions alone are looked at, so that thousands can be drafted."""
        return illegal_last(self.predict(candidates).score)

    def _disagreement(self, rows: FloatArray) -> FloatArray:
        """Spread of the members' opinions around their joint one, shape (n,)."""
        first = len(self.ranker.far_members)
        far = np.isnan(rows[:, first:]).any(axis=1)
        spread = np.zeros(len(rows))
        for mask, shares, width in (
            (far, self.ranker.far, first),
            (~far, self.ranker.near, rows.shape[1]),
        ):
            belief = np.array(shares.belief)
            if mask.any() and belief.sum() > 0:
                known = rows[mask, :width]
                weights = belief / belief.sum()
                middle = known @ weights
                around = ((known - middle[:, None]) ** 2) @ weights
                spread[mask] = np.nan_to_num(np.sqrt(around)) * belief.sum()
        return spread

    def _known(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Opinions, shape (n, members): NaN of members that have not looked at a program."""
        width, first = len(self.ranker.members), len(self.ranker.far_members)
        found = np.full((len(candidates), width), np.nan)
        if not candidates:
            return found
        new = self._unknown(candidates)
        if new:
            for candidate, row in zip(new, self._asked(new, self.ranker.far_members), strict=True):
                padded = np.full(width, np.nan)
                padded[:first] = row
                self._rows[candidate.workload.key, candidate.key] = padded
        for at, candidate in enumerate(candidates):
            place = (candidate.workload.key, candidate.key)
            found[at] = self._rows[place]
            self._rows.move_to_end(place)
        while len(self._rows) > max(self._trees.config.cache, len(candidates)):
            (workload, key), _ = self._rows.popitem(last=False)
            self._looked.get(workload, {}).pop(key, None)
        return found

    def _unknown(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        places = {(c.workload.key, c.key): c for c in candidates}
        return [c for place, c in places.items() if place not in self._rows]

    def _look(self, candidates: Sequence[Candidate]) -> None:
        """Has all members look at candidates that only some have seen."""
        rows = self._known(candidates)
        due = np.isnan(rows).any(axis=1) & ~np.isnan(rows).all(axis=1)
        some = [candidates[at] for at in np.flatnonzero(due).tolist()]
        new = {(c.workload.key, c.key): c for c in some}
        first = len(self.ranker.far_members)
        nearer = list(self.ranker.members)[first:]
        if new and nearer:
            for place, found in zip(new, self._asked(list(new.values()), nearer), strict=True):
                row = np.concatenate([self._rows[place][:first], found])
                # What one cannot score cannot be applied.
                legal = not np.isnan(row).any()
                self._rows[place] = row if legal else np.full_like(row, np.nan)
                if legal:
                    workload, key = place
                    self._looked.setdefault(workload, {})[key] = row

    def _asked(self, candidates: Sequence[Candidate], members: Sequence[str]) -> FloatArray:
        """Opinions of some members, shape (n, members)."""
        return answers(
            candidates,
            lambda programs, machine: self.ranker.opinions(programs, machine, machine.key, members),
            len(members),
        )


def joined(
    *, rng: np.random.Generator, hardware: Hardware | None = None, **options: Any
) -> CostModel:
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


class _Corrected(GradientBoosting):
    """Trees on top of opinions whose shares are corrected by each workload's measurements.

    Args:
        ranker: Whose opinions.
        looked: By workload, the opinions of all members of each program that all have looked at;
            kept by the caller.
        options: As ``GradientBoosting`` takes them.
    """

    def __init__(
        self,
        ranker: JoinedRanker,
        looked: Mapping[str, Mapping[str, FloatArray]],
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._ranker, self._looked = ranker, looked

    def _margins(self, workloads: Sequence[str], fits: FloatArray) -> FloatArray:
        found = super()._margins(workloads, fits)
        far = self._is_far(fits)
        shifts = {key: self._shift(key) for key in set(workloads)} if far.any() else {}
        found[far] += [shifts[key] for key, few in zip(workloads, far, strict=True) if few]
        return found

    def _shift(self, workload: str) -> float:
        """By how much all members think more of the programs they looked at than some did."""
        rows = np.array(list(self._looked.get(workload, {}).values()))
        if not len(rows):
            return 0.0
        group = self._groups.get(workload, _Group())
        some = rows.copy()
        some[:, len(self._ranker.far_members) :] = np.nan
        return float((self._weighed(group, rows) - self._weighed(group, some)).mean())

    def _is_far(self, fits: FloatArray) -> npt.NDArray[np.bool_]:
        """Of which programs only some members have an opinion, shape (n,)."""
        first = len(self._ranker.far_members)
        return np.asarray(np.isnan(fits[:, first:]).any(axis=1))

    def _weighed(self, group: _Group, fits: FloatArray) -> FloatArray:
        first = len(self._ranker.far_members)
        far = self._is_far(fits)
        found = np.zeros(len(fits))
        for mask, shares, width in (
            (far, self._ranker.far, first),
            (~far, self._ranker.near, fits.shape[1]),
        ):
            if mask.any():
                rows, speeds = _measured(group, width)
                found[mask] = fits[mask, :width] @ shares.corrected(rows, speeds)
        return np.nan_to_num(found)


def _measured(group: _Group, width: int) -> tuple[FloatArray, FloatArray]:
    """Opinions of the first members and speeds of what ran, of those that all have seen."""
    if not group.fits:
        return np.zeros((0, width)), np.zeros(0)
    rows = np.array(list(group.fits.values()))[:, :width]
    seconds = np.array(list(group.seconds.values()))
    known = ~np.isnan(seconds) & ~np.isnan(rows).any(axis=1)
    return rows[known], -np.log2(seconds[known])


def _trained(ranker: JoinedRanker | Path | str, kind: str) -> JoinedRanker:
    found: object = ranker
    if isinstance(ranker, Path) or (isinstance(ranker, str) and ranker.endswith(".npz")):
        found = rankers.load_for_run(Path(ranker))
    elif isinstance(ranker, str):
        found = shipped(ranker, kind)
    if not isinstance(found, JoinedRanker):
        raise BadInputError(
            f"the cost model 'joined' is made of a ranker 'joined', but got {ranker!r} for targets "
            f"of kind {kind!r}: train one with `foretune train joined` and give the file"
        )
    return found
