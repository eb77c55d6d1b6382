"""What decisions say: penalties for what wastes the machine, silence elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.features.schedule import SUMMARY_COLUMNS, machine_fit, schedule_summary
from foretune.hardware import Hardware
from foretune.space import Candidate, Choice, PerfectTile, Sketch
from foretune.testing import SyntheticSpace
from foretune.workload import Workload

LLVM = '{"kind": "llvm"}'
CHOICES = (
    Choice("parallel", (0, 32), (0.5, 0.5)),
    Choice("vectorize", (0, 64), (0.5, 0.5)),
)


def matmul(i, j, k, on=(1, 1), *, simd_bits=512, threads=2, target=LLVM):
    """A candidate of a tiled matmul; ``i``, ``j`` have four factors, ``k`` two."""
    hardware = Hardware("machine", target, threads, simd_bits=simd_bits)
    tiles = tuple(
        PerfectTile(f"C.{axis}", int(np.prod(tile)), len(tile))
        for axis, tile in (("i", i), ("j", j), ("k", k))
    )
    sketch = Sketch(Workload("mm", "0" * 16, "", 1.0), hardware, "[[],[]]", (*tiles, *CHOICES), ())
    return Candidate.trusted(sketch, (i, j, k, *on))


GOOD = ((8, 2, 4, 8), (4, 4, 2, 16), (16, 32))


def fit(*args, **kwargs):
    return float(machine_fit([matmul(*args, **kwargs)])[0])


def test_a_schedule_without_fault_scores_zero():
    assert fit(*GOOD) == 0.0


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("lanes half empty", ((8, 2, 4, 8), (4, 4, 4, 8), (16, 32))),
        ("registers spill", ((2, 2, 2, 64), (4, 4, 2, 16), (16, 32))),
        ("too few accumulators", ((8, 2, 32, 1), (4, 4, 2, 16), (16, 32))),
        ("one thread idle", ((1, 16, 4, 8), (1, 16, 2, 16), (16, 32))),
        ("not parallel", (*GOOD, (0, 1))),
        ("not vectorised", (*GOOD, (1, 0))),
    ],
)
def test_waste_is_penalised(what, arguments):
    assert fit(*arguments) < fit(*GOOD), what


def test_uneven_chunks_cost_less_than_an_idle_thread():
    uneven = fit((3, 2, 4, 8), (1, 16, 2, 16), (16, 32))
    idle = fit((1, 6, 4, 8), (1, 16, 2, 16), (16, 32))
    assert idle < uneven < 0


def test_the_machine_decides():
    narrow = ((8, 2, 4, 8), (4, 4, 8, 4), (16, 32))
    assert fit(*narrow, simd_bits=128) == 0.0
    assert fit(*narrow, simd_bits=512) < 0.0
    assert fit(*narrow, target='{"kind": "cuda"}') == 0.0


def test_small_reductions_count_less():
    spatial = ((8, 2, 4, 8), (4, 4, 32, 1))
    assert fit(*spatial, (16, 32)) < fit(*spatial, (1, 9)) < fit(*spatial, (1, 1)) == 0.0


def test_never_positive_and_one_score_each():
    rng = np.random.default_rng(0)
    tiles = [PerfectTile("x", 512, 4).sample(rng, 50), PerfectTile("x", 384, 4).sample(rng, 50)]
    reductions = PerfectTile("x", 64, 2).sample(rng, 50)
    scores = machine_fit([matmul(i, j, k) for i, j, k in zip(*tiles, reductions, strict=True)])
    assert scores.shape == (50,) and scores.dtype == np.float64
    assert (scores <= 0).all() and np.isfinite(scores).all()
    assert len(np.unique(scores)) > 10
    assert machine_fit([]).shape == (0,)


def test_sketches_it_does_not_understand_score_zero():
    candidates = SyntheticSpace().sample(np.random.default_rng(0), 5)
    assert (machine_fit(candidates) == 0).all()


def test_summary_columns_are_what_they_are_called():
    row = dict(zip(SUMMARY_COLUMNS, schedule_summary([matmul(*GOOD)])[0], strict=True))
    assert row["chunks"] == np.log2(2 + 8 * 4)
    assert row["inner_tile"] == np.log2(2 + 8 * 16)
    assert row["vector"] == np.log2(2 + 16)
    assert row["accumulators"] == np.log2(2 + 8)
    assert row["reduction_inner"] == np.log2(2 + 32)
    assert row["vectorize"] == np.log2(2 + 64)
    assert row["fit"] == 0.0


def test_summary_of_nothing_and_of_unknown_sketches():
    assert schedule_summary([]).shape == (0, len(SUMMARY_COLUMNS))
    rows = schedule_summary(SyntheticSpace().sample(np.random.default_rng(0), 3))
    assert np.isfinite(rows).all() and len(np.unique(rows, axis=0)) == 1


def test_candidates_of_several_sketches_and_machines_are_judged_one_by_one():
    mixed = [
        matmul(*GOOD),
        matmul((8, 2, 4, 8), (4, 4, 4, 8), (16, 32)),
        *SyntheticSpace().sample(np.random.default_rng(0), 2),
        matmul(*GOOD, simd_bits=128, threads=7),
    ]
    together = machine_fit(mixed)
    assert np.allclose(together, [machine_fit([each])[0] for each in mixed])
    rows = schedule_summary(mixed)
    assert np.allclose(rows, np.concatenate([schedule_summary([each]) for each in mixed]))


def test_the_block_with_the_most_iterations_counts():
    small = tuple(PerfectTile(f"A.{axis}", 8, parts) for axis, parts in (("i", 4), ("k", 2)))
    large = tuple(PerfectTile(f"C.{axis}", 64, parts) for axis, parts in (("i", 4), ("k", 2)))
    hardware = Hardware("machine", LLVM, 2, simd_bits=512)
    workload = Workload("two", "1" * 16, "", 1.0)
    sketch = Sketch(workload, hardware, "[[],[]]", (*small, *large), ())
    candidate = Candidate.trusted(sketch, ((8, 1, 1, 1), (8, 1), (2, 1, 2, 16), (2, 32)))
    row = dict(zip(SUMMARY_COLUMNS, schedule_summary([candidate])[0], strict=True))
    assert row["chunks"] == np.log2(2 + 2) and row["vector"] == np.log2(2 + 16)
