"""What decisions say: penalties for what wastes the machine, silence elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foretune.features import columns, extract_per_store, machine_fit
from foretune.features.actions import SUMMARY_COLUMNS, schedule_summary
from foretune.features.actions._decided import (
    Decided,
    chunks_of,
    jobs_of,
    kept_from,
    layout,
    single_parts,
    vector_of,
)
from foretune.hardware import Hardware
from foretune.space import Candidate, Choice, PerfectTile, Sketch
from foretune.testing import SyntheticSpace
from foretune.workload import Workload
from tests.space.programs import space

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
        ("one thread idle", ((1, 1, 64, 8), (1, 1, 32, 16), (16, 32))),
        ("not parallel", (*GOOD, (0, 1))),
        ("not vectorised", (*GOOD, (1, 0))),
    ],
)
def test_waste_is_penalised(what, arguments):
    assert fit(*arguments) < fit(*GOOD), what


def test_uneven_jobs_cost_less_than_an_idle_thread():
    uneven = fit((3, 1, 4, 8), (1, 1, 2, 16), (16, 32))
    idle = fit((1, 1, 6, 8), (1, 1, 32, 16), (16, 32))
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


def test_both_outer_parts_are_shared_out():
    """One iteration in the outermost part is no idle thread where the next part has some."""
    assert fit((1, 16, 4, 8), (1, 16, 2, 16), (16, 32)) == 0.0


def test_on_one_thread_nothing_is_shared_out():
    assert fit(*GOOD, (0, 1), threads=1) == fit(*GOOD, threads=1) == 0.0


class TestLoops:
    """``jobs_of`` and ``vector_of`` against the loops of TVM's own programs."""

    def rows(self, drawn):
        """(parallel, vector) iterations of the store with most multiplications, per candidate."""
        at = {column.name: i for i, column in enumerate(columns())}
        found = []
        for rows in extract_per_store(drawn, threads=1):
            row = rows[np.argmax(rows[:, at["arith.float_mul"]] + rows[:, at["arith.float_mad"]])]
            logs = [row[at[f"{kind}.product"]] for kind in ("parallel", "vectorize")]
            # A program without such a loop has 0 iterations there.
            found.append([max(1, round(2.0**log - 1)) for log in logs])
        return np.array(found).T

    def predicted(self, drawn):
        found = []
        for candidate in drawn:
            decided = Decided([candidate])
            nest = decided.layout.nests[0]
            found.append([int(jobs_of(decided, nest)[0]), int(vector_of(decided, nest)[0])])
        return np.array(found).T

    @pytest.mark.parametrize(
        "name",
        [
            "matmul",
            "conv2d_nhwc",
            pytest.param("batch_matmul", marks=pytest.mark.slow),
            pytest.param("depthwise", marks=pytest.mark.slow),
        ],
    )
    def test_they_are_those_of_tvm(self, name):
        drawn = space(name).sample(np.random.default_rng(3), 40)
        (parallel, vector), (jobs, width) = self.rows(drawn), self.predicted(drawn)
        np.testing.assert_array_equal(jobs, parallel)
        # Where a factor is the whole axis, memory runs on and TVM may fuse the axis before.
        partly = [
            tile[-1] < np.prod(tile)
            for c in drawn
            for tile in [c.decisions[layout(c.sketch).nests[0].spatial[-1]]]
        ]
        np.testing.assert_array_equal(width[partly], vector[partly])
        assert len(set(parallel.tolist())) > 5 and len(set(vector.tolist())) > 2

    def test_limits_are_those_of_tvm(self):
        """Every limit there is, on one set of tiles, in both sketches of a product."""
        drawn = []
        for candidate in space("matmul").sample(np.random.default_rng(4), 4):
            chosen = layout(candidate.sketch).choices
            for name in ("parallel", "vectorize"):
                values = candidate.sketch.variables[chosen[name]].values
                for at in range(len(values)):
                    decisions = list(candidate.decisions)
                    decisions[chosen[name]] = at
                    drawn.append(candidate.sketch.candidate(decisions))
        np.testing.assert_array_equal(self.predicted(drawn), self.rows(drawn))

    def test_a_block_under_an_outer_loop_ends_the_parallel_one(self):
        """Padding that is computed under one of the loops that would be fused."""
        inside = [
            c
            for c in space("conv2d_nhwc").sample(np.random.default_rng(5), 600)
            if any(0 <= c.decisions[at] < 6 for at in layout(c.sketch).locations)
        ][:24]
        assert len(inside) == 24
        (parallel, _), (jobs, _) = self.rows(inside), self.predicted(inside)
        np.testing.assert_array_equal(jobs, parallel)
        outer = [
            [t[:2] for t in c.decisions if isinstance(t, tuple) and len(t) == 4] for c in inside
        ]
        fused = [chunks_of(d, d.layout.nests[0])[0] for d in (Decided([c]) for c in inside)]
        assert (np.array(fused) < [np.prod(factors) for factors in outer]).any()

    def test_parts_that_can_be_fused_end_where_results_are_written(self):
        parts = {single_parts(s, "C") for s in space("matmul").sketches}
        assert parts == {1, 2}
        kept = {kept_from(s, "C") for s in space("matmul").sketches}
        assert kept == {None, 1, 2}

    def test_columns_of_many_candidates_are_those_of_each(self):
        drawn = space("conv2d_nhwc").sample(np.random.default_rng(6), 60)
        for sketch in {c.sketch for c in drawn}:
            mine = [c for c in drawn if c.sketch == sketch]
            decided = Decided(mine)
            nest = decided.layout.nests[0]
            together = [jobs_of(decided, nest).tolist(), vector_of(decided, nest).tolist()]
            assert together == self.predicted(mine).tolist()

    def test_an_innermost_axis_of_one_iteration_is_not_a_vector(self):
        def split(loop, axis):
            parts = [f"{axis}{part}" for part in range(4)]
            factors = [f"f{part}" for part in parts]
            return [
                ["SamplePerfectTile", [loop], [4, 64], factors],
                ["Split", [loop, *factors], [1], parts],
            ]

        instructions = [
            ["GetSBlock", [], ["C", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2"]],
            *split("l1", "i"),
            *split("l2", "j"),
            ["Annotate", ["b0", 64], ["meta_schedule.vectorize"], []],
        ]
        for extent, expected in ((1, 1), (8, 4)):
            recorded = [[2, [64, 1, 1, 1]], [4, [extent, 1, 1, 1]]]
            tiles = {2: PerfectTile("C.i", 64, 4), 4: PerfectTile("C.j", extent, 4)}
            placed = {at: tile for at, tile in tiles.items() if tile.extent > 1}
            placed[6] = Choice("vectorize", (0, 64), (0.5, 0.5))
            sketch = Sketch(
                Workload("mm", "0" * 16, "", 1.0),
                Hardware("machine", LLVM, 2),
                json.dumps([instructions, recorded]),
                tuple(placed.values()),
                tuple(placed),
                axes={"C": ("i", "j")},
            )
            tile = ((8, 1, 1, 8), (2, 1, 1, 4))[: len(placed) - 1]
            decided = Decided([Candidate.trusted(sketch, (*tile, 1))])
            assert vector_of(decided, decided.layout.nests[0]).tolist() == [expected]
