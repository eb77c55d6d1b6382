"""Kernels whose bound is known by construction, on a desktop of eight cores."""

from __future__ import annotations

import pytest

from foretune.describe import Nests, behaviours
from foretune.explain._advice import general
from foretune.explain._explanation import Explanation, explanation
from tests.describe.nest_builder import DESKTOP, Line, program


def stream(jobs: int = 64, blocks: int = 1 << 15, kind: str = "parallel") -> Nests:
    """Copies 64 MiB, every element once."""
    each = 8 * blocks
    return program(
        {"i": (jobs, kind), "j": (blocks, "serial"), "v": (8, "vectorized")},
        {"A": [jobs * each], "B": [jobs * each]},
        [Line("i j v", f"B[{each}*i+8*j+v]", [f"A[{each}*i+8*j+v]"], operations=0)],
    )


def sweep(kib: int, times: int = 2000) -> Nests:
    """Each core scales an array of its own into another, so many KiB, again and again."""
    blocks = kib * 128 // 64
    own = 64 * blocks
    return program(
        {"i": (8, "parallel"), "again": (times, "serial"), "j": (blocks, "serial"),
         "u": (8, "unrolled"), "v": (8, "vectorized")},
        {"A": [8 * own], "B": [8 * own]},
        [Line("i again j u v", f"B[{own}*i+64*j+8*u+v]", [f"A[{own}*i+64*j+8*u+v]"],
              operations=1)],
    )  # fmt: skip


def matmul(jobs: int = 64, kind: str = "parallel") -> Nests:
    """6 x 16 results in registers, over operands that fit into the caches; 96 rows a job."""
    row = "96*io+6*im+ii"
    return program(
        {"io": (jobs, kind), "im": (16, "serial"), "jo": (8, "serial"), "k": (128, "serial"),
         "ii": (6, "unrolled"), "v": (16, "vectorized")},
        {"A": [96 * jobs, 128], "B": [128, 128], "C": [96 * jobs, 128]},
        [Line("io im jo k ii v", f"C[{row},16*jo+v]", [f"A[{row},k]", "B[k,16*jo+v]"],
              reduces=True)],
    )  # fmt: skip


def one_sum(rows: int = 64, length: int = 1 << 14) -> Nests:
    """Each row is added up by itself, an addition after the other."""
    return program(
        {"i": (rows, "parallel"), "k": (length, "serial")},
        {"A": [rows, length], "C": [rows]},
        [Line("i k", "C[i]", ["A[i,k]"], operations=1, reduces=True)],
    )


def scalars() -> Nests:
    """Products of gathered operands: no vectors, and two loads for each operation."""
    return program(
        {"i": (64, "parallel"), "j": (16, "serial"), "k": (64, "serial"), "u": (4, "unrolled")},
        {"A": [64, 64], "B": [64, 64], "C": [64, 64]},
        [Line("i j k u", "C[i,4*j+u]", ["A[i,k]", "B[4*j+u,k]"], reduces=True)],
    )


def columns(rows: int = 1 << 15) -> Nests:
    """A matrix read and written down its columns, which are larger than the caches."""
    return program(
        {"j": (64, "parallel"), "c": (16, "serial"), "i": (rows, "serial")},
        {"A": [rows, 1024], "B": [rows, 1024]},
        [Line("j c i", "B[i,16*j+c]", ["A[i,16*j+c]"], operations=1)],
    )


KERNELS = {
    "stream": (stream(), "memory"),
    "first cache": (sweep(8), "l1"),
    "second cache": (sweep(128), "l2"),
    "third cache": (sweep(2048), "l3"),
    "registers": (matmul(), "arithmetic"),
    "one sum": (one_sum(), "latency"),
    "one thread": (matmul(16, "serial"), "parallelism"),
    "nine jobs": (matmul(9), "tail"),
    "columns": (columns(), "memory"),
    "tiny": (stream(8, 8), "overhead"),
    "tiny on one thread": (stream(8, 8, "serial"), "overhead"),
}


def told(nests: Nests) -> Explanation:
    return explanation(behaviours(nests, DESKTOP), 0, name="kernel")


@pytest.mark.parametrize("name", KERNELS)
def test_the_bound_is_the_one_that_it_was_made_for(name: str) -> None:
    nests, bound = KERNELS[name]
    explained = told(nests)
    assert explained.bound == bound, explained.limits_s
    assert 0 < explained.share_of_bound <= 1


def test_scalar_code_is_bound_by_what_stands_around_its_arithmetic() -> None:
    assert told(scalars()).bound in ("instructions", "latency", "l1")


def test_measured_seconds_say_how_far_the_bound_is() -> None:
    behaviour = behaviours(stream(), DESKTOP)
    seconds = 2 * float(behaviour.limits_s["memory"][0])
    explained = explanation(behaviour, 0, name="stream", seconds=seconds)
    assert explained.share_of_bound == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stream", "fuse"),
        ("first cache", "only registers are nearer"),
        ("second cache", "the second cache is the limit"),
        ("registers", "only less arithmetic"),
        ("one sum", "wait for each other"),
        ("one thread", "7 of 8 cores idle"),
        ("nine jobs", "9 pieces of work on 8 cores"),
        ("columns", "6 % of the bytes"),
        ("tiny", "starting threads"),
        ("tiny on one thread", "calling it takes longer"),
    ],
)
def test_what_to_try_is_what_the_bound_asks_for(name: str, words: str) -> None:
    advice = " ".join(general(told(KERNELS[name][0]), DESKTOP))
    assert words in advice


def test_advice_names_nothing_that_a_kernel_has_not() -> None:
    serial = " ".join(general(told(KERNELS["tiny on one thread"][0]), DESKTOP))
    assert "threads" not in serial
    first = " ".join(general(told(KERNELS["first cache"][0]), DESKTOP))
    assert "the cache before it" not in first


def test_advice_on_a_bound_that_was_beaten_does_not_take_it_for_a_fact() -> None:
    behaviour = behaviours(KERNELS["tiny"][0], DESKTOP)
    slow, fast = (
        explanation(behaviour, 0, name="tiny", seconds=factor * float(behaviour.seconds[0]))
        for factor in (2.0, 0.1)
    )
    assert not any("if that is so" in each for each in general(slow, DESKTOP))
    assert "if that is so" in general(fast, DESKTOP)[0] and fast.share_of_bound > 1
