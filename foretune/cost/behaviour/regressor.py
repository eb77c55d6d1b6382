"""From behaviour to time: the last step of LLMTuner, learned within workloads and devices.

Idea: what bounds a program and how far it is from the device's limits says much about how fast it
is beside others of its workload, on whichever device. A line through the strongest columns (what is
predicted; what other devices took) begins, and trees correct it. The loss is

    L = rank_share * ranking + (1 - rank_share) * squares

where scores are minus the normalised time ``y`` (``foretune.cost.behaviour.targets``), up to a
constant of the group: squares, of what is left less its mean, pull them there, and the ranking
compares the programs of one group. Both agree: at the temperature ``T`` the softmax of scores / T
(the odds of each pair) is to be that of ``-y / T``.

Symbols: n programs, ``s`` scores, ``w`` how often a program is to be seen (``bin_weights``).

Members leave out workloads, or devices where there are enough, to stop early by and to be judged
by: what is learned is to hold for those never seen. Where trees make what is left out no better
than the line, there are none.

Source: LLMTuner, section 3.3 (three layers of 512, 256 and 128; ranking and squares; ten bins).
Deviations: trees, as good at a fraction of the time; the line; signs of columns; factors are no
columns; a ranking loss whose optimum is the target instead of scores pushed
apart without bound. All of these were chosen so that what is learned from one tool's programs
holds for those of another on other devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import numpy as np

from foretune._arrays import Array, Float32Array, FloatArray, IndexArray
from foretune._options import (
    Bounds,
    Count,
    configured,
    constants,
    option_names,
    refuse_unknown,
    require_options,
    stored_options,
)
from foretune.cost.behaviour.columns import NAMES, OF_A_GROUP, PROGRAM_NAMES, SIGNS
from foretune.cost.behaviour.line import Line
from foretune.cost.behaviour.targets import normalised
from foretune.dataset import judgeable
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from typing_extensions import Self

Arrays = dict[str, Array]

_LEAST_DEVICES = 3
"""From which on members leave out whole devices."""
_MOST_FOLDS = 5


@dataclass(frozen=True)
class RegressorConfig:
    """How behaviour becomes time; what studies change of it is in ``foretune_research.behaviour``.

    Attributes:
        members: Whose answers are averaged.
        rounds: Trees at most.
        max_rows: Programs trained on; above it every group is thinned alike.
        threads: That XGBoost may use.
    """

    form: ClassVar[str] = "trees"
    target: ClassVar[str] = "octaves"
    rank_share: ClassVar[float] = 0.5
    ranking: ClassVar[str] = "list"
    temperature: ClassVar[float] = 0.1
    binning: ClassVar[bool] = True
    bins: ClassVar[int] = 10
    repetition: ClassVar[int] = 10
    factor_columns: ClassVar[bool] = False
    line: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    believed: ClassVar[float] = 0.5
    fold: ClassVar[str] = "auto"
    patience: ClassVar[int] = 30
    depth: ClassVar[int] = 6
    learning_rate: ClassVar[float | None] = None
    subsample: ClassVar[float] = 0.7
    columns: ClassVar[float] = 0.5
    min_child_weight: ClassVar[float] = 20.0
    l2: ClassVar[float] = 1.0

    members: Count = 3
    rounds: Count = 300
    max_rows: Annotated[int, Bounds(ge=2)] = 100_000
    threads: Count = 1

    def __post_init__(self) -> None:
        require_options("regressor", self)


@dataclass(frozen=True)
class Lesson:
    """Measured programs of one workload on one device.

    Attributes:
        workload: Key of the workload.
        device: Key of the device.
        columns: float64 of shape (n, len(NAMES)).
        seconds: float64 of shape (n,), NaN for a failure.
    """

    workload: str
    device: str
    columns: FloatArray
    seconds: FloatArray

    def thinned(self, count: int, rng: np.random.Generator) -> Lesson:
        """A part of it, of at most so many programs: the fastest half of them, and any others."""
        n = len(self.seconds)
        if count >= n:
            return self
        order = np.argsort(np.nan_to_num(self.seconds, nan=np.inf), kind="stable")
        first = max(1, count // 2)
        kept = np.concatenate([order[:first], rng.choice(order[first:], count - first, False)])
        kept.sort()
        return Lesson(self.workload, self.device, self.columns[kept], self.seconds[kept])


@dataclass(frozen=True)
class Material:
    """What a member learns from or is judged by: groups one after the other, N programs in all.

    Attributes:
        matrix: float32 of shape (N, columns).
        times: Normalised, shape (N,).
        begin: What the line says of them, shape (N,).
        sizes: Programs of each group.
    """

    matrix: Float32Array
    times: FloatArray
    begin: FloatArray
    sizes: IndexArray

    @property
    def group(self) -> IndexArray:
        """Number of the group of each program, shape (N,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


class Member(Protocol):
    """One trained correction."""

    def correction(self, matrix: Float32Array) -> FloatArray:
        """What it adds to the line's scores, shape (N, columns) -> (N,)."""

    def arrays(self) -> Arrays:
        """Everything that restores it."""


class Regressor:
    """Behaviour to normalised time.

    Life cycle: construct, ``fit``, then ``times`` as often as wanted; ``arrays`` and ``restore``
    write and read it.

    Args:
        seed: Of what members see.
        options: Fields of ``RegressorConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    owner: ClassVar[str] = "regressor"
    config_type: ClassVar[type[RegressorConfig]] = RegressorConfig

    def __init__(self, *, seed: int = 0, **options: Any) -> None:
        kind = self.config_type
        self.config, rest = configured(kind, self.owner, options)
        refuse_unknown(self.owner, rest, option_names(kind), constants(kind))
        self.seed = seed
        self._line: Line | None = None
        self._members: list[Member] = []
        self._kept = np.zeros(0, np.intp)
        self.left_out: list[tuple[FloatArray, FloatArray]] = []
        """After ``fit``: scores (minus times) and seconds of each group that some member had not
        seen, by these members."""

    @property
    def trained(self) -> bool:
        """Whether it has learned anything."""
        return self._line is not None

    def fit(self, lessons: Sequence[Lesson], validation: Sequence[Lesson] = ()) -> None:
        """Forgets everything and learns from these groups.

        Args:
            lessons: What to learn from.
            validation: Groups that training is stopped by, beside those that members leave out.

        Raises:
            BadInputError: No group has two programs with different seconds.
        """
        self._line, self._members, self.left_out = None, [], []
        rng = np.random.default_rng(self.seed)
        used = [each for each in lessons if judgeable(each.seconds)]
        if not used:
            raise BadInputError(
                "the regressor learns from groups that hold two programs with different seconds, "
                f"but none of {len(lessons)} does: collect more measurements"
            )
        held = [each for each in validation if judgeable(each.seconds)]
        total = sum(len(each.seconds) for each in used)
        share = min(1.0, self.config.max_rows / total)
        used = [each.thinned(max(2, int(share * len(each.seconds))), rng) for each in used]
        self._kept = self._useful(used)
        fold = self._folds(used, rng)
        lines = []
        for number in range(self.config.members):
            out = fold == number % (int(fold.max()) + 1) if fold.max() > 0 else fold < 0
            inner = [each for each, gone in zip(used, out.tolist(), strict=True) if not gone]
            judges = [each for each, gone in zip(used, out.tolist(), strict=True) if gone]
            line = Line.fitted(inner, self.config.target) if self.config.line else Line.none()
            member = self._grow(
                int(rng.integers(2**31)), self._material(inner, line), [*judges, *held], line
            )
            self._members.append(member)
            lines.append(line)
            self.left_out += [
                (self._scores(line, [member], each.columns), each.seconds) for each in judges
            ]
        self._line = Line.mean(lines)

    def _grow(self, seed: int, material: Material, judges: Sequence[Lesson], line: Line) -> Member:
        from foretune.cost.behaviour.trees import grow

        judging = self._material(judges, line) if judges else None
        return grow(self.config, seed, material, judging, self._signs())

    def _signs(self) -> list[int]:
        """Of each column whether scores may only rise with it (1) or fall (-1); none if empty."""
        return [SIGNS[at] for at in self._kept.tolist()] if self.config.monotone else []

    def times(self, columns: FloatArray) -> FloatArray:
        """Normalised times, lower is better: shape (n, len(NAMES)) -> (n,). Untrained: zeros.

        Up to a constant of the group, so that they are not in [0, 1].
        """
        if self._line is None or not len(columns):
            return np.zeros(len(columns))
        return -self._scores(self._line, self._members, columns)

    def _scores(self, line: Line, members: Sequence[Member], columns: FloatArray) -> FloatArray:
        """What a line and the mean of members say."""
        matrix = columns[:, self._kept].astype(np.float32)
        correction = np.mean([member.correction(matrix) for member in members], axis=0)
        scores: FloatArray = line.scores(columns) + self._share * correction
        return scores

    @property
    def _share(self) -> float:
        """Of corrections: without a line there is nothing else."""
        return self.config.believed if self.config.line else 1.0

    def _useful(self, lessons: Sequence[Lesson]) -> IndexArray:
        """Columns that differ within groups."""
        spread = np.zeros(len(NAMES))
        for each in lessons:
            known = np.nan_to_num(each.columns, nan=-99.0)
            spread += known.std(axis=0) > 1e-9 * (1.0 + np.abs(known.mean(axis=0)))
        useful = spread > 0
        useful[len(PROGRAM_NAMES) :] = False
        useful[[NAMES.index(name) for name in OF_A_GROUP]] = False
        if not useful.any():
            useful[0] = True
        return np.flatnonzero(useful)

    def _folds(self, lessons: Sequence[Lesson], rng: np.random.Generator) -> IndexArray:
        """Of each group the fold it is left out in; a workload, or a device, is never cut."""
        devices = {each.device for each in lessons}
        by_device = self.config.fold == "device" or (
            self.config.fold == "auto" and len(devices) >= _LEAST_DEVICES
        )
        names = [each.device if by_device else each.workload for each in lessons]
        known = sorted(set(names))
        count = len(known) if by_device else min(_MOST_FOLDS, len(known))
        places = dict(zip(known, (rng.permutation(len(known)) % count).tolist(), strict=True))
        return np.array([places[name] for name in names], dtype=np.intp)

    def _material(self, lessons: Sequence[Lesson], line: Line) -> Material:
        return Material(
            np.concatenate([self._matrix(each) for each in lessons]),
            np.concatenate([normalised(each.seconds, self.config.target) for each in lessons]),
            np.concatenate([line.scores(each.columns) for each in lessons]),
            np.array([len(each.seconds) for each in lessons], dtype=np.intp),
        )

    def _matrix(self, lesson: Lesson) -> Float32Array:
        return lesson.columns[:, self._kept].astype(np.float32)

    def meta(self) -> dict[str, Any]:
        """What a file says of it beside ``arrays``: a JSON object."""
        kinds = [type(member).__name__ for member in self._members]
        return {"config": asdict(self.config), "seed": self.seed, "members": kinds}

    def arrays(self) -> Arrays:
        """Everything learned."""
        if self._line is None:
            return {}
        stored: Arrays = {"kept": self._kept, "line": self._line.coefficients}
        for number, member in enumerate(self._members):
            stored |= {f"member{number}/{name}": v for name, v in member.arrays().items()}
        return stored

    @classmethod
    def restored(cls, meta: Mapping[str, Any], arrays: Mapping[str, Any], **options: Any) -> Self:
        """What ``meta`` and ``arrays`` tell of one.

        Args:
            meta: As written.
            arrays: As written.
            options: That differ: ``threads``.
        """
        stored = stored_options(constants(cls.config_type), "the regressor", meta["config"])
        made = cls(seed=meta["seed"], **{**stored, **options})
        if "line" not in arrays:
            return made
        made._line = Line(np.asarray(arrays["line"], np.float64))
        made._kept = np.asarray(arrays["kept"], np.intp)
        for number in range(len(meta["members"])):
            prefix = f"member{number}/"
            own = {
                name.removeprefix(prefix): value
                for name, value in arrays.items()
                if name.startswith(prefix)
            }
            made._members.append(made._read_member(own))
        return made

    def _read_member(self, arrays: Mapping[str, Any]) -> Member:
        from foretune.cost.behaviour.trees import TreeMember

        return TreeMember.of_arrays(arrays, self.config.threads)
