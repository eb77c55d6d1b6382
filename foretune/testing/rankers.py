"""The contract of a ranker, as checks that its author runs over the ranker's factory.

A factory is called as ``make(seed=...)`` and returns an untrained ``Ranker``. It must be a
module-level function, a class, or a partial of one, because one check runs it in another process.

The data are tiled loop nests: real sketches of a matrix product, whose candidates have decisions
and actions like any other, but no program. Their latency is a formula of tile sizes and hardware
that is the same for all shapes, so that what is learned from some shapes holds for others. A ranker
over programs takes ``nest_features`` (or ``nest_rows``) in place of its extractor.

    @pytest.mark.parametrize("check", rankers.CHECKS, ids=lambda check: check.__name__)
    def test_contract(check):
        check(Subject(MyRanker))
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretune._arrays import Float32Array, FloatArray, IndexArray
from foretune.cost import Ranker, score_group
from foretune.dataset import Group, Program
from foretune.describe import (
    PARALLEL,
    SERIAL,
    VECTORIZED,
    Access,
    Buffer,
    Nests,
    Statement,
    Term,
)
from foretune.errors import BadInputError
from foretune.features import PER_STORE, machine_fit
from foretune.hardware import Hardware
from foretune.space import Candidate, Choice, PerfectTile, Sketch, Space
from foretune.workload import Workload

RankerFactory = Callable[..., Ranker]
Shape = tuple[int, int, int]

NEST_HARDWARE = Hardware(
    "nest machine",
    '{"kind": "llvm"}',
    threads=4,
    simd_bits=256,
    l1_bytes=32_768,
    l2_bytes=1_048_576,
    l3_bytes=33_554_432,
    peak_gflops=200.0,
    bandwidth_gbs=40.0,
)
"""What nests run on unless told otherwise."""

TRAINING_SHAPES: tuple[Shape, ...] = (
    (64, 64, 64),
    (96, 128, 64),
    (128, 256, 32),
    (256, 64, 128),
    (48, 512, 96),
    (512, 96, 256),
    (32, 192, 384),
    (192, 192, 192),
    (1024, 32, 64),
    (64, 768, 128),
)
UNSEEN_SHAPES: tuple[Shape, ...] = ((128, 128, 128), (384, 64, 96), (80, 160, 64), (256, 512, 48))

_MODULUS = 1009
_ILLEGAL_BELOW, _FAILING_BELOW = 30, 60


@dataclass(frozen=True)
class Subject:
    """A ranker to be checked.

    Attributes:
        make: Called as ``make(seed=...)``.
        load: Reads what it saved; the class's own ``load`` if None.
        needs_device: Whether it refuses hardware of which nothing is known.
    """

    make: RankerFactory
    load: Callable[[Path], Ranker] | None = None
    needs_device: bool = False


def nest_space(shape: Shape, hardware: Hardware = NEST_HARDWARE) -> Space:
    """Two sketches of a matrix product of ``shape`` (rows, columns, reduction)."""
    rows, columns, reduction = shape
    key = hashlib.blake2b(repr(shape).encode(), digest_size=8).hexdigest()
    name = f"nest-{rows}x{columns}x{reduction}"
    workload = Workload(name, key, "", 2.0 * rows * columns * reduction)
    sketches = (_sketch(workload, hardware, shape, False), _sketch(workload, hardware, shape, True))
    return Space(workload, hardware, sketches)


def _sketch(workload: Workload, hardware: Hardware, shape: Shape, cached: bool) -> Sketch:
    limit = 16 * hardware.threads
    variables = (
        PerfectTile("C.i", shape[0], 4, 64),
        PerfectTile("C.j", shape[1], 4, 64),
        PerfectTile("C.k", shape[2], 2, 64),
        Choice("parallel", (0, limit // 4, limit), (0.1, 0.3, 0.6)),
        Choice("vectorize", (0, 32, 64), (0.1, 0.3, 0.6)),
        Choice("unroll_explicit", (0, 16, 64, 512), (0.25,) * 4),
    )
    instructions: list[list[Any]] = [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["GetSBlock", [], ["root", "main"], ["b1"]],
        ["GetLoops", ["b0"], [], ["l2", "l3", "l4"]],
        *_split("l2", "i", 4),
        *_split("l3", "j", 4),
        *_split("l4", "k", 2),
        ["Reorder", ["i0", "j0", "i1", "j1", "k0", "i2", "j2", "k1", "i3", "j3"], [], []],
        ["Annotate", ["b1", limit], ["meta_schedule.parallel"], []],
        ["Annotate", ["b1", 64], ["meta_schedule.vectorize"], []],
        ["SampleCategorical", [], [[0, 16, 64, 512], [0.25] * 4], ["v0"]],
        ["Annotate", ["b1", "v0"], ["meta_schedule.unroll_explicit"], []],
    ]
    decisions = [[3, [shape[0], 1, 1, 1]], [5, [shape[1], 1, 1, 1]], [7, [shape[2], 1]], [12, 0]]
    if cached:
        instructions += [
            ["CacheWrite", ["b0", []], [0, "global"], ["b2"]],
            ["ReverseComputeAt", ["b2", "j1"], [1, -1], []],
        ]
    trace = json.dumps([instructions, decisions], sort_keys=True, separators=(",", ":"))
    axes = {"C": ("i", "j", "k")}
    return Sketch(workload, hardware, trace, variables, (3, 5, 7, 10, 11, 12), axes=axes)


def _split(loop: str, axis: str, parts: int) -> list[list[Any]]:
    factors = [f"{axis}f{part}" for part in range(parts)]
    loops = [f"{axis}{part}" for part in range(parts)]
    return [
        ["SamplePerfectTile", [loop], [parts, 64], factors],
        ["Split", [loop, *factors], [1], loops],
    ]


def _lot(candidate: Candidate) -> int:
    """A number that a candidate draws once and for all."""
    return int(candidate.key, 16) % _MODULUS


def is_legal(candidate: Candidate) -> bool:
    """Whether a nest counts as one that can be applied."""
    return _lot(candidate) >= _ILLEGAL_BELOW


def _sizes(candidate: Candidate) -> dict[str, float]:
    """What the latency of a nest depends on."""
    decisions: Any = candidate.decisions
    values = [v.values for v in candidate.sketch.variables if isinstance(v, Choice)]
    i, j, k = decisions[:3]
    parallel, vectorize, unroll = (v[d] for v, d in zip(values, decisions[3:], strict=True))
    lanes = candidate.hardware.simd_bits // 32
    filled = math.gcd(j[3], lanes)
    tile = i[2] * i[3] * k[1] + k[1] * j[2] * j[3] + i[2] * i[3] * j[2] * j[3]
    return {
        "lanes": lanes / filled if vectorize else lanes,
        "accumulators": i[3] * j[3] / filled,
        "chunks": i[0] * j[0] if parallel else 1,
        "bytes": 4.0 * tile,
        "body": min(unroll, i[3] * k[1]),
    }


def nest_seconds(candidate: Candidate) -> float:
    """Seconds of a nest, NaN for one that fails.

    Lanes left empty, registers spilled or idle, threads idle, a tile beyond the first cache and
    loops that are not unrolled each cost a factor; a draw of the candidate's own adds up to 5 %.
    ``machine_fit`` knows the first three.
    """
    if not is_legal(candidate) or _lot(candidate) < _FAILING_BELOW:
        return math.nan
    hardware, sizes = candidate.hardware, _sizes(candidate)
    rounds = math.ceil(sizes["chunks"] / hardware.threads)
    slow = 0.9 * math.log2(sizes["lanes"])
    slow += 0.6 * max(0.0, math.log2(sizes["accumulators"] / 14))
    slow += 0.5 * max(0.0, math.log2(4 / sizes["accumulators"]))
    slow += math.log2(rounds * hardware.threads / sizes["chunks"])
    slow += 0.4 * max(0.0, math.log2(sizes["bytes"] / hardware.l1_bytes))
    slow -= 0.6 * math.log2(1 + sizes["body"])
    ideal = candidate.workload.flops / (hardware.peak_gflops * 1e9)
    return float(ideal * 2.0**slow) * (1 + 0.05 * _lot(candidate) / _MODULUS)


def nest_features(candidates: Sequence[Any]) -> list[Float32Array | None]:
    """Stands in for ``foretune.features.extract_per_store``: two rows of 164 columns per nest.

    ``None`` for an illegal candidate.
    """
    return [_rows(candidate) if is_legal(candidate) else None for candidate in candidates]


def nest_rows(programs: Sequence[Any]) -> list[Float32Array | None]:
    """``nest_features`` of programs."""
    return nest_features([program.candidate for program in programs])


def nest_batches(
    candidates: Sequence[Any],
) -> list[tuple[IndexArray, Nests]]:
    """Stands in for ``foretune.describe.nests_of``: numbers of rows and nests, legal ones only.

    C[i, j] += A[i, k] * B[k, j], tiled as the decisions say; the second sketch sums in a buffer of
    its own, which a second statement copies.
    """
    batches = []
    for cached in (False, True):
        rows = [
            row
            for row, candidate in enumerate(candidates)
            if is_legal(candidate) and ("CacheWrite" in candidate.sketch.trace) == cached
        ]
        if rows:
            own = [candidates[row] for row in rows]
            batches.append((np.array(rows, dtype=np.intp), _nests(own, cached)))
    return batches


_LOOPS = ("i0", "j0", "i1", "j1", "k0", "i2", "j2", "k1", "i3", "j3")


def _nests(candidates: Sequence[Any], cached: bool) -> Nests:
    n = len(candidates)
    factors = {
        f"{axis}{part}": np.array([c.decisions[number][part] for c in candidates], np.float64)
        for number, (axis, parts) in enumerate((("i", 4), ("j", 4), ("k", 2)))
        for part in range(parts)
    }
    choices = [
        np.array([c.sketch.variables[at].values[c.decisions[at]] for c in candidates], np.float64)
        for at in (3, 4, 5)
    ]
    parallel, vectorize, unroll = choices
    copied = ("ci", "cj") if cached else ()
    inner = {"ci": factors["i2"] * factors["i3"], "cj": factors["j2"] * factors["j3"]}
    loops = (*_LOOPS, *copied)
    kinds = np.zeros((n, len(loops)), np.int8)
    kinds[:, :2] = np.where(parallel > 0, PARALLEL, SERIAL)[:, None]
    for loop in ("j3", *copied[1:]):
        kinds[:, loops.index(loop)] = np.where(vectorize > 0, VECTORIZED, SERIAL)
    rows, columns, reduction = (
        np.prod([factors[name] for name in factors if name[0] == axis], axis=0) for axis in "ijk"
    )
    shapes = {"A": (rows, reduction), "B": (reduction, columns), "C": (rows, columns)}
    if cached:
        shapes["S"] = (rows, columns)
    buffers = tuple(
        Buffer(name, "global", 4, np.stack(shape, axis=1), name != "S")
        for name, shape in shapes.items()
    )
    number = {name: at for at, name in enumerate(shapes)}

    def access(buffer: str, axes: str, path: Sequence[str], store: bool = False) -> Access:
        terms, sizes = [], {**factors, **inner}
        for dimension, axis in enumerate(axes):
            along = [place for place, loop in enumerate(path) if axis in loop]
            step = np.ones(n)
            for place in reversed(along):
                values = sizes[path[place]]
                terms.append(Term(dimension, place, step, values, np.ones(n)))
                step = step * values
        return Access(number[buffer], store, tuple(terms))

    zero, one = np.zeros(n), np.ones(n)
    total = "S" if cached else "C"
    loads = [access(total, "ij", _LOOPS), access("A", "ik", _LOOPS), access("B", "kj", _LOOPS)]
    accesses = (*loads, access(total, "ij", _LOOPS, store=True))
    at = tuple(range(len(_LOOPS)))
    statements = [Statement(at, accesses, 2 * one, zero, zero, unroll, True, one)]
    if cached:
        path = ("i0", "j0", "i1", "j1", *copied)
        copy = (access("S", "ij", path), access("C", "ij", path, store=True))
        places = tuple(loops.index(loop) for loop in path)
        statements.append(Statement(places, copy, zero, zero, zero, unroll, False, one))
    return Nests(
        kinds=kinds,
        extents=np.stack([{**factors, **inner}[loop] for loop in loops], axis=1),
        axes=("",) * len(loops),
        reduction=tuple(loop[0] == "k" for loop in loops),
        buffers=buffers,
        statements=tuple(statements),
        gpu=False,
        approximate=np.zeros(n, bool),
    )


def _rows(candidate: Candidate) -> Float32Array:
    decisions: Any = candidate.decisions
    factors = [factor for tile in decisions[:3] for factor in tile]
    numbers = [*_sizes(candidate).values(), *factors, *(1 + d for d in decisions[3:])]
    rows = np.zeros((2, PER_STORE), dtype=np.float32)
    rows[0, 0] = math.log2(decisions[0][0] * decisions[1][0])
    rows[1, : len(numbers)] = np.log2(1.0 + np.array(numbers))
    return rows


def nest_group(
    shape: Shape, n: int = 48, seed: int = 0, hardware: Hardware = NEST_HARDWARE
) -> Group:
    """``n`` random candidates of a nest with their seconds."""
    space = nest_space(shape, hardware)
    candidates = space.sample(np.random.default_rng([seed, *shape]), n)
    return Group(
        workload=space.workload.key,
        name=space.workload.name,
        kind="matmul",
        hardware=hardware.key,
        programs=[Program(candidate=candidate) for candidate in candidates],
        seconds=np.array([nest_seconds(candidate) for candidate in candidates]),
        machine=hardware,
    )


def training_groups(n: int = 48) -> list[Group]:
    """Nests to learn from."""
    return [nest_group(shape, n) for shape in TRAINING_SHAPES]


def unseen_groups(n: int = 48) -> list[Group]:
    """Nests of other shapes."""
    return [nest_group(shape, n, seed=1) for shape in UNSEEN_SHAPES]


def pair_accuracy(scores: FloatArray, seconds: FloatArray) -> float:
    """Share of the pairs of programs that ran which scores order as seconds do; 0.5 is chance."""
    known = ~np.isnan(seconds) & ~np.isnan(scores)
    score, time = scores[known], seconds[known]
    i, j = np.triu_indices(len(score), 1)
    right = np.sign(score[i] - score[j]) == np.sign(time[j] - time[i])
    return float(right.mean())


def check_untrained(subject: Subject) -> None:
    """Before ``fit`` every score is zero; no programs give no scores."""
    ranker = subject.make(seed=0)
    group = nest_group(UNSEEN_SHAPES[0], 6)
    scores = score_group(ranker, group)
    _shapes(scores, 6)
    assert (scores == 0).all(), "an untrained ranker has an opinion"
    _shapes(ranker.score([], NEST_HARDWARE), 0)


def check_shapes(subject: Subject) -> None:
    """After ``fit`` there is one float64 score per program, also for one program or none."""
    ranker = _fitted(subject)
    for n in (1, 2, 17):
        group = nest_group(UNSEEN_SHAPES[0], n, seed=2)
        _shapes(score_group(ranker, group), n)
    _shapes(ranker.score([], NEST_HARDWARE, NEST_HARDWARE.key), 0)


def check_unknown_machine(subject: Subject) -> None:
    """Hardware that was never seen gives numbers; so does what nothing is known of, or is refused.

    Those refuse it by name that say from a data sheet what a program does.
    """
    ranker = _fitted(subject)
    programs = [p for p in nest_group(UNSEEN_SHAPES[0]).programs if _is_legal(p)]
    for machine, key in ((None, "a board"), (NEST_HARDWARE, "never seen")):
        if machine is None and subject.needs_device:
            try:
                ranker.score(programs, machine, key)
            except BadInputError as error:
                assert key in str(error), "the hardware that is refused was not named"
                continue
            raise AssertionError("hardware of which nothing is known was not refused")
        scores = ranker.score(programs, machine, key)
        _shapes(scores, len(programs))
        assert np.isfinite(scores).all(), "a legal program was not scored"


def check_illegal(subject: Subject) -> None:
    """A ranker that reads programs scores illegal ones NaN; legal ones get numbers."""
    ranker = _fitted(subject)
    group = nest_group(UNSEEN_SHAPES[1], 200)
    scores = score_group(ranker, group)
    legal = np.array([_is_legal(program) for program in group.programs])
    assert not legal.all(), "the check needs illegal programs"
    assert np.isfinite(scores[legal]).all(), "a legal program was not scored"
    if ranker.needs.programs:
        assert np.isnan(scores[~legal]).all(), "an illegal program was scored"


def check_failures(subject: Subject) -> None:
    """Groups of failures only, of one program and of one time are passed over."""
    whole = nest_group(UNSEEN_SHAPES[2], 12)
    failed = Group(**{**_fields(whole), "seconds": np.full(12, np.nan)})
    same = Group(**{**_fields(whole), "seconds": np.full(12, 1e-3)})
    groups = [failed, *training_groups(16), same, whole.subset([0])]
    ranker = subject.make(seed=0)
    ranker.fit(groups, [failed, same, whole.subset([0])])
    _shapes(score_group(ranker, whole), 12)


def check_nothing_to_learn(subject: Subject) -> None:
    """Not one pair to learn from is refused, and leaves no trained ranker behind."""
    whole = nest_group(TRAINING_SHAPES[0], 12)
    same = Group(**{**_fields(whole), "seconds": np.full(12, 1e-3)})
    for groups in ([], [whole.subset([0])], [same]):
        ranker = subject.make(seed=0)
        try:
            ranker.fit(groups)
        except BadInputError:
            assert (score_group(ranker, whole) == 0).all(), "a refused fit left scores behind"
            continue
        raise AssertionError(f"{len(groups)} groups without a pair to learn from were taken")


def check_foreign(subject: Subject) -> None:
    """Programs that others measured are scored by their actions, or refused in words."""
    groups = [_foreign(group) for group in training_groups(16)]
    unseen = _foreign(nest_group(UNSEEN_SHAPES[0], 16))
    ranker = subject.make(seed=0)
    if ranker.needs.decisions_only:
        ranker.fit(groups)
        assert np.isfinite(score_group(ranker, unseen)).all(), "a foreign program was not scored"
        return
    trained = _fitted(subject)
    asked: tuple[Callable[[], Any], ...] = (
        lambda: ranker.fit(groups),
        lambda: score_group(trained, unseen),
    )
    for ask in asked:
        try:
            ask()
        except BadInputError:
            continue
        raise AssertionError("programs that cannot be rebuilt were not refused with BadInputError")


def check_same_seed(subject: Subject) -> None:
    """The same seed and groups give the same scores, in another process too."""
    here = _scores(subject)
    assert here == _scores(subject), "two rankers with one seed differ"
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        there = pool.apply(_scores, (subject,))
    assert np.allclose(here, there, atol=1e-5), "a ranker with one seed differs in another process"


def check_prepare(subject: Subject) -> None:
    """What is read before learning changes nothing that is learned."""
    groups = training_groups(16)
    ranker = subject.make(seed=0)
    ranker.prepare(iter([*groups, nest_group(UNSEEN_SHAPES[0], 16)]))
    ranker.fit(groups)
    scored = score_group(ranker, nest_group(UNSEEN_SHAPES[0], 16))
    scores = [float(score) for score in np.nan_to_num(scored, nan=-1e6)]
    assert scores == _scores(subject), "a ranker that was prepared learns something else"


def check_fit_forgets(subject: Subject) -> None:
    """``fit`` forgets: groups fitted before leave no trace."""
    fresh, used = (subject.make(seed=3) for _ in range(2))
    used.fit([nest_group(shape, 16) for shape in UNSEEN_SHAPES])
    for ranker in (fresh, used):
        ranker.fit(training_groups(16))
    unseen = nest_group((96, 96, 96), 16)
    assert np.allclose(
        score_group(fresh, unseen), score_group(used, unseen), atol=1e-5, equal_nan=True
    ), "an earlier fit left a trace"


def check_batch_independence(subject: Subject) -> None:
    """A program's score does not depend on which others are scored with it."""
    ranker = _fitted(subject)
    group = nest_group(UNSEEN_SHAPES[3], 12)
    together = score_group(ranker, group)
    alone = [
        ranker.score([program], group.machine, group.hardware)[0] for program in group.programs
    ]
    assert np.allclose(together, alone, atol=1e-3, equal_nan=True), "scores depend on the batch"


def check_round_trip(subject: Subject) -> None:
    """``load`` reads what ``save`` wrote, trained or not: the same scores, scale and strength."""
    unseen = nest_group(UNSEEN_SHAPES[0], 24)
    for ranker in (subject.make(seed=0), _fitted(subject)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ranker.npz"
            ranker.save(path)
            read = (subject.load or type(ranker).load)(path)
        assert np.allclose(
            score_group(ranker, unseen), score_group(read, unseen), atol=1e-5, equal_nan=True
        ), "a saved ranker scores otherwise"
        assert read.scale == ranker.scale, "the scale was not saved"
        assert read.strength == ranker.strength, "the strength was not saved"


def check_learns(subject: Subject) -> None:
    """Of the pairs of unseen shapes, 3 % more than by ``machine_fit`` are ordered right."""
    ranker = subject.make(seed=0)
    ranker.fit(training_groups(), unseen_groups(24)[:1])
    groups = unseen_groups()
    accuracies = [pair_accuracy(score_group(ranker, group), group.seconds) for group in groups]
    known = [pair_accuracy(_fit_of(group), group.seconds) for group in groups]
    accuracy, least = float(np.mean(accuracies)), float(np.mean(known)) + 0.03
    assert accuracy > least, (
        f"only {accuracy:.0%} of the pairs of unseen shapes are ordered right, where machine_fit, "
        f"which learns nothing, has {least - 0.03:.0%}"
    )


def _fit_of(group: Group) -> FloatArray:
    """What is expected of a group's programs without learning."""
    candidates = [program.candidate for program in group.programs]
    return machine_fit([candidate for candidate in candidates if candidate is not None])


def _fitted(subject: Subject) -> Ranker:
    ranker = subject.make(seed=0)
    ranker.fit(training_groups(16))
    return ranker


def _scores(subject: Subject) -> list[float]:
    scored = score_group(_fitted(subject), nest_group(UNSEEN_SHAPES[0], 16))
    return [float(score) for score in np.nan_to_num(scored, nan=-1e6)]


def _is_legal(program: Program) -> bool:
    return program.candidate is not None and is_legal(program.candidate)


def _foreign(group: Group) -> Group:
    """The same measurements as if others had made them: actions, no candidate, no machine."""
    programs = [Program(actions=program.actions) for program in group.programs]
    return Group(**{**_fields(group), "programs": programs, "machine": None})


def _fields(group: Group) -> dict[str, Any]:
    return {name: getattr(group, name) for name in group.__dataclass_fields__}


def _shapes(scores: FloatArray, n: int) -> None:
    assert scores.shape == (n,), f"scores must have shape ({n},), but have {scores.shape}"
    assert scores.dtype == np.float64, f"scores must be float64, but are {scores.dtype}"
    assert not np.isinf(scores).any(), "a score is infinite"


ROBUSTNESS: tuple[Callable[[Subject], None], ...] = (
    check_shapes,
    check_unknown_machine,
    check_foreign,
    check_same_seed,
    check_round_trip,
)
"""Checks that hold for every ranker, a random one too."""

CHECKS: tuple[Callable[[Subject], None], ...] = (
    *ROBUSTNESS,
    check_untrained,
    check_illegal,
    check_failures,
    check_nothing_to_learn,
    check_prepare,
    check_fit_forgets,
    check_batch_independence,
    check_learns,
)
"""The whole suite: what is more than ``ROBUSTNESS`` holds for rankers that learn."""


def check_ranker(
    make: RankerFactory, load: Callable[[Path], Ranker] | None = None, learns: bool = True
) -> None:
    """Runs the suite; ``learns=False`` for a control that is not meant to learn."""
    for check in CHECKS if learns else ROBUSTNESS:
        check(Subject(make, load))
