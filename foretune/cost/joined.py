"""Several rankers joined into one: each says what it expects, and shares say whom to believe.

Idea. Trees and perceptrons on decisions are cheap and see thousands of candidates; those that are
told how a program would behave see further, and cost a hundred times as much. Their errors differ.
So their opinions, in log2 of a slow-down, are added up with shares that were learned where none of
them had seen the workload: the training workloads are dealt to a few folds, each member is trained
on the others and judges the fold, and least squares within workloads gives the shares, none below
0. Then every member is trained anew on all workloads.

There are two sets of shares: of all members, for a program that all have seen (``near``), and of
those that read decisions only (``far``), for one that nobody has looked at yet.

How far shares differ from workload to workload is kept as well (``doubts``): a run corrects them by
its own measurements, the faster the more they differ (``foretune.cost.joined_model``).

Source: stacked generalisation (Wolpert, 1992), with shares that cannot be negative (Breiman, 1996).
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.optimize import nnls

from foretune._arrays import Array, FloatArray, IndexArray
from foretune._model_file import check
from foretune._options import refuse_unknown, require_type
from foretune.cost._ranker import TEXT, Needs, Ranker, fitted_scale, fitted_strength
from foretune.cost._ranker_file import read_model, write_model
from foretune.dataset import judgeable
from foretune.errors import BadInputError, RecordError

if TYPE_CHECKING:
    from foretune.dataset import Group, Program
    from foretune.hardware import Hardware

logger = logging.getLogger("foretune.cost")

_FORMAT = 1
"""Raised whenever the entries or the arrays of a file change."""
MEMBERS = "gbdt_actions,mlp_actions,gbdt_behaviour,mlp_behaviour"
_LEAST_DOUBT = 1e-3
"""Variance of a share between workloads, at least, so that a run can change it."""
_MOST_DOUBT = 1.0


@dataclass(frozen=True)
class Shares:
    """How much each member's opinion counts.

    Attributes:
        belief: One number per member, at least 0.
        doubts: By how much it differs between workloads: its variance there.
        noise: Variance of minus log2 seconds that the opinions leave, within workloads.
    """

    belief: tuple[float, ...]
    doubts: tuple[float, ...]
    noise: float

    def corrected(self, opinions: FloatArray, speeds: FloatArray) -> FloatArray:
        """The shares of a workload of which some programs were measured, shape (members,).

        Ridge regression towards ``belief``, each share with a weight of its own: what is best if
        shares are drawn around it with the variances ``doubts``.

        Args:
            opinions: Shape (n, members).
            speeds: Minus log2 seconds, shape (n,).
        """
        belief = np.array(self.belief)
        if len(speeds) < 2:
            return belief
        x = opinions - opinions.mean(axis=0)
        rest = speeds - speeds.mean() - x @ belief
        weights = np.diag(self.noise / np.array(self.doubts))
        shares: FloatArray = belief + np.linalg.solve(x.T @ x + weights, x.T @ rest)
        return np.clip(shares, 0.0, None)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``from_json`` reverses it."""
        return {"belief": self.belief, "doubts": self.doubts, "noise": self.noise}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Shares:
        """Reads what ``to_json`` wrote."""
        belief, doubts = (tuple(map(float, data[name])) for name in ("belief", "doubts"))
        return cls(belief, doubts, float(data["noise"]))

    @classmethod
    def fitted(cls, judged: Sequence[tuple[FloatArray, FloatArray]]) -> Shares:
        """The shares that explain speeds best within workloads, every workload alike.

        Args:
            judged: Opinions, shape (n, members), and speeds, shape (n,), of each group; at least
                one with two programs.
        """
        centred = [(x - x.mean(axis=0), y - y.mean()) for x, y in judged if len(y) > 1]
        width = centred[0][0].shape[1]
        gram = sum((x.T @ x / len(x) for x, _ in centred), np.zeros((width, width)))
        gain = sum((x.T @ y / len(x) for x, y in centred), np.zeros(width))
        belief = _non_negative(gram, gain)
        errors = [float(((y - x @ belief) ** 2).mean()) for x, y in centred]
        noise = float(np.mean(errors)) or _LEAST_DOUBT
        doubts = [_between(centred, belief, at) for at in range(width)]
        return cls(tuple(belief.tolist()), tuple(doubts), noise)


def _non_negative(gram: FloatArray, gain: FloatArray) -> FloatArray:
    """The ``b >= 0`` that minimises ``b' gram b - 2 gain' b``."""
    lower = np.linalg.cholesky(gram + 1e-9 * np.eye(len(gain)))
    shares: FloatArray = nnls(lower.T, np.linalg.solve(lower, gain))[0]
    return shares


def _between(
    centred: Sequence[tuple[FloatArray, FloatArray]], belief: FloatArray, member: int
) -> float:
    """Variance between workloads of one share, the others as believed, by moments.

    What the squared distance of each workload's own best share from the belief exceeds the error
    of that estimate, weighted by what each workload shows.
    """
    between = shown = 0.0
    for x, y in centred:
        column, rest = x[:, member], y - x @ belief
        square = float(column @ column)
        if len(y) < 3 or square == 0.0:
            continue
        shift = float(column @ rest) / square
        error = float(((rest - shift * column) ** 2).sum()) / (len(y) - 2)
        between += (square * shift**2 - error) / len(y)
        shown += square / len(y)
    return float(np.clip(between / shown, _LEAST_DOUBT, _MOST_DOUBT)) if shown else _LEAST_DOUBT


class JoinedRanker(Ranker):
    """Several rankers with shares learned on workloads that none of them had seen.

    Args:
        seed: Of the members and of the folds.
        members: Names of rankers, comma-separated; those that read decisions only come first.
        folds: In how many parts the training workloads judge members trained on the others.
        cache: Folder where members keep the features of programs; None: in memory only.
        source: Where they read these, one of ``foretune.features.SOURCES``.
        options: Of each member that is to have any, by its name, a mapping of its options.

    Attributes:
        members: The trained members by name.
        near, far: The shares of all members, and of those that read decisions only.

    Raises:
        BadInputError: A member is unknown or refuses an option, there is none that reads decisions
            only, or ``folds`` is below 2.
    """

    needs: Needs = Needs(
        nests=True,
        options={"members": str, "folds": int, "cache": TEXT, "source": str},
        in_run={"threads": 1},
    )
    name: ClassVar[str] = "joined"

    def __init__(
        self,
        *,
        seed: int = 0,
        members: str = MEMBERS,
        folds: int = 3,
        cache: Path | str | None = None,
        source: str = "formulas",
        **options: Mapping[str, Any],
    ) -> None:
        if folds < 2:
            raise BadInputError(f"joined: folds >= 2 must hold, but got {folds}")
        self.seed, self.folds = seed, folds
        names = [name.strip() for name in members.split(",")]
        refuse_unknown(self.name, options, names)
        for name, given in options.items():
            require_type(self.name, name, given, dict)
        self.options = options
        self._cache, self._source = cache, source
        self.members = {name: self._untrained(name) for name in names}
        far = self.far_members
        if not far or list(self.members)[: len(far)] != far:
            raise BadInputError(
                "joined: members are those that read decisions only and then the others, at least "
                f"one of the first, but got {members}: for example {MEMBERS}"
            )
        self.near = self._equal(len(self.members))
        self.far = self._equal(len(far))

    @staticmethod
    def _equal(count: int) -> Shares:
        return Shares((1.0 / count,) * count, (_MOST_DOUBT,) * count, 1.0)

    def _untrained(self, name: str) -> Ranker:
        from foretune.cost import rankers

        keeps = self._cache is not None and rankers.needs(name).folder
        kept = {"cache": self._cache} if keeps else {}
        options = {**kept, **self.options.get(name, {})}
        return self._placed(rankers.create(name, seed=self.seed, **options))

    def _placed(self, member: Ranker) -> Ranker:
        """A member that reads features where all do."""
        if member.needs.programs:
            member.store_source = self._source
        return member

    @property
    def far_members(self) -> list[str]:
        """Names of the members that read decisions only."""
        return [name for name, member in self.members.items() if member.needs.decisions_only]

    @property
    def modules(self) -> Sequence[str]:
        """Its own, and those of the members."""
        return [*super().modules, *(n for each in self.members.values() for n in each.modules)]

    def prepare(self, groups: Iterable[Group]) -> None:
        """What each member reads."""
        wanted = list(groups)
        for member in self.members.values():
            member.prepare(wanted)

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Forgets everything and learns from these groups alone.

        Args:
            groups: Training groups, of two workloads at least.
            validation: Groups of other workloads that members may stop early by.
        """
        usable = [group for group in groups if judgeable(group.seconds)]
        if not usable:
            raise BadInputError(
                f"joined: a group to learn from needs two programs with different seconds, but "
                f"none of {len(groups)} has: collect more measurements"
            )
        folds = self._dealt(usable)
        judged: list[tuple[FloatArray, FloatArray]] = []
        for number in sorted(set(folds.tolist())):
            learned = [g for g, fold in zip(usable, folds, strict=True) if fold != number]
            held = [g for g, fold in zip(usable, folds, strict=True) if fold == number]
            if learned:
                part = f"without part {number + 1} of {self.folds}"
                members = self._fitted(learned, validation, part)
                judged += [_judged(members, group) for group in held]
        self._share([(x, y) for x, y in judged if len(y) > 1])
        self.members = self._fitted(usable, validation, "on all")

    def _dealt(self, groups: Sequence[Group]) -> IndexArray:
        """Of each group its fold: one for all groups of workloads that compute the same."""
        family = [self._family(group) for group in groups]
        families = sorted(set(family))
        places = np.random.default_rng(self.seed).permutation(len(families)) % self.folds
        fold = dict(zip(families, places.tolist(), strict=True))
        return np.array([fold[each] for each in family], dtype=np.intp)

    @staticmethod
    def _family(group: Group) -> str:
        """What workloads share that differ in what is fused behind."""
        from foretune.workload.training import signature

        if group.family:
            return group.family
        made = next((p.candidate for p in group.programs if p.candidate is not None), None)
        return group.workload if made is None else signature(made.workload)

    def _fitted(
        self, groups: Sequence[Group], validation: Sequence[Group], part: str
    ) -> dict[str, Ranker]:
        """New members that learned from some groups."""
        members = {name: self._untrained(name) for name in self.members}
        for name, member in members.items():
            began = time.perf_counter()
            member.fit(groups, validation)
            logger.info("joined: %s %s, %.0f s", name, part, time.perf_counter() - began)
        return members

    def _share(self, judged: Sequence[tuple[FloatArray, FloatArray]]) -> None:
        """Fits the shares, scale and strength; equal shares where nothing could be judged."""
        first, width = len(self.far_members), len(self.members)
        self.near, self.far = self._equal(width), self._equal(first)
        if judged:
            self.near = Shares.fitted(judged)
            self.far = Shares.fitted([(x[:, :first], y) for x, y in judged])
        logger.info("joined: shares near %s, far %s", self.near.belief, self.far.belief)
        scores = [(x @ np.array(self.near.belief), np.exp2(-y)) for x, y in judged]
        self.scale = fitted_scale(scores)
        self.strength = fitted_strength(scores, self.scale)

    def score(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """Scores of programs by all members, shape (n,); NaN for one that cannot be applied."""
        scores: FloatArray = self.opinions(programs, machine, hardware) @ np.array(self.near.belief)
        return scores

    def opinions(
        self,
        programs: Sequence[Program],
        machine: Hardware | None,
        hardware: str = "",
        members: Sequence[str] = (),
    ) -> FloatArray:
        """What each member expects, in minus log2 of a slow-down.

        Args:
            programs: Of one workload on one hardware.
            machine, hardware: As ``score`` takes them.
            members: Names of those that are asked; none: all.

        Returns:
            float64 of shape (n, members), NaN in the whole row of a program that cannot be applied.
        """
        columns = [
            self.members[name].scale * self.members[name].score(programs, machine, hardware)
            for name in members or self.members
        ]
        table: FloatArray = np.stack(columns, axis=1).astype(np.float64)
        table[np.isnan(table).any(axis=1)] = np.nan
        return table

    def save(self, path: Path) -> None:
        """Writes the shares and every member, as it would be saved itself, into one file."""
        arrays: dict[str, Array] = {}
        with tempfile.TemporaryDirectory(prefix="foretune-") as folder:
            for name, member in self.members.items():
                file = Path(folder, "member.npz")
                member.save(file)
                arrays[f"member.{name}"] = np.frombuffer(file.read_bytes(), dtype=np.uint8)
        meta = {
            "format": _FORMAT,
            "members": list(self.members),
            "near": self.near.to_json(),
            "far": self.far.to_json(),
            "seed": self.seed,
            "folds": self.folds,
            "options": self.options,
            "scale": self.scale,
            "strength": self.strength,
        }
        write_model(path, self.name, meta, arrays)

    @classmethod
    def load(cls, path: Path, **parts: Any) -> JoinedRanker:
        """Reads what ``save`` wrote.

        Args:
            path: The file.
            parts: ``cache`` and ``source``, as the constructor takes them; others go to the members
                that take them.

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema or feature version.
        """
        meta, arrays = read_model(path, cls.name)
        check(path, meta, format=_FORMAT)
        own = {name: parts[name] for name in ("cache", "source") if name in parts}
        ranker = cls(
            seed=int(meta["seed"]),
            members=",".join(meta["members"]),
            folds=int(meta["folds"]),
            **own,
            **meta["options"],
        )
        for name in meta["members"]:
            ranker.members[name] = ranker._placed(cls._read(arrays[f"member.{name}"], path))
        ranker.near, ranker.far = (Shares.from_json(meta[which]) for which in ("near", "far"))
        ranker.scale, ranker.strength = float(meta["scale"]), float(meta["strength"])
        return ranker

    @classmethod
    def load_member(cls, path: Path, name: str) -> Ranker:
        """Reads one of the rankers in a file that ``save`` wrote, ready for a run.

        Args:
            path: The file.
            name: Of the member.

        Raises:
            RecordError: The file cannot be read, is not such a file, or has no such member.
            VersionMismatchError: Written under another schema or feature version.
        """
        meta, arrays = read_model(path, cls.name)
        check(path, meta, format=_FORMAT)
        if name not in meta["members"]:
            raise RecordError(
                f"{path} joins {', '.join(meta['members'])}, but {name!r} is wanted: train it anew"
            )
        return cls._read(arrays[f"member.{name}"], path)

    @staticmethod
    def _read(data: Array, path: Path) -> Ranker:
        """A member of a file, ready for a run."""
        from foretune.cost import rankers

        with tempfile.TemporaryDirectory(prefix="foretune-") as folder:
            file = Path(folder, path.name)
            file.write_bytes(data.tobytes())
            return rankers.load_for_run(file)


def _judged(members: Mapping[str, Ranker], group: Group) -> tuple[FloatArray, FloatArray]:
    """Opinions of members and speeds of a group's programs that ran and can be applied."""
    columns = [m.scale * m.score_group(group) for m in members.values()]
    opinions = np.stack(columns, axis=1).astype(np.float64)
    known = ~np.isnan(opinions).any(axis=1) & ~np.isnan(group.seconds)
    return opinions[known], -np.log2(group.seconds[known])
