"""Action features: named, complete, right on known schedules, and the same however asked."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

from foretune.dataset import Program
from foretune.features import (
    action_columns,
    action_features,
    machine_features,
    machine_fit,
)
from foretune.features.actions import _features as actions
from foretune.features.actions._columns import LEVELS
from foretune.features.actions._decided import kept_from
from foretune.features.memory import Memory
from foretune.hardware import FEATURE_COLUMNS, preset
from foretune.space import Action, Space
from foretune.testing.rankers import NEST_HARDWARE, nest_space
from foretune.workload import Workload
from tests.space.programs import CPU, PROGRAMS, space

NAMES = [column.name for column in action_columns()]
INDEX = {name: at for at, name in enumerate(NAMES)}
MACHINE = replace(NEST_HARDWARE, name="other", threads=2, simd_bits=512)


@pytest.fixture
def forget(monkeypatch):
    """Forgets every row when it is called."""
    return lambda: monkeypatch.setattr(actions, "_memory", Memory(2**24))


def programs(name, n=12, seed=0):
    drawn = space(name).sample(np.random.default_rng(seed), n)
    return [Program(candidate=candidate) for candidate in drawn]


def row(program, machine=None):
    return dict(zip(NAMES, action_features([program], machine)[0].tolist(), strict=True))


def matmul_program(i, j, k, parallel=8, vectorize=64, unroll=16):
    """A matmul of 64 x 128 x 96 without a cache stage."""
    sketch = next(s for s in space("matmul").sketches if "CacheWrite" not in s.trace)
    chosen = {"C.i": i, "C.j": j, "C.k": k}
    values = {"parallel": parallel, "vectorize": vectorize, "unroll_explicit": unroll}
    decisions = [
        chosen[v.name] if v.name in chosen else v.values.index(values[v.name])
        for v in sketch.variables
    ]
    return Program(candidate=sketch.candidate(decisions))


@functools.lru_cache(maxsize=1)
def group_space():
    """A convolution of 48 channels to 96 in 8 groups."""
    from tvm import te, topi

    x, w = te.placeholder((1, 16, 16, 48), name="x"), te.placeholder((3, 3, 6, 96), name="w")
    y = topi.nn.conv(x, w, 1, 0, 1, 8, "NHWC", "HWIO")
    return Space.generate(Workload.from_module(te.create_prim_func([x, w, y]), "grouped"), CPU)


def test_columns_are_named_once_each_and_have_units():
    assert len(INDEX) == len(NAMES)
    assert all(column.unit for column in action_columns())


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_every_operator_kind_gives_finite_rows_that_differ(name):
    drawn = programs(name, 24)
    rows = action_features(drawn, CPU)
    assert rows.shape == (len(drawn), len(NAMES)) and rows.dtype == np.float32
    assert np.isfinite(rows).all()
    assert len(np.unique(rows, axis=0)) > len(drawn) // 2


@pytest.mark.parametrize(
    "name", ["matmul", "softmax", pytest.param("attention", marks=pytest.mark.slow)]
)
def test_rows_do_not_depend_on_what_else_is_asked_for(name, forget):
    drawn = [*programs(name, 10), *programs("depthwise", 4)]
    forget()
    together = action_features(drawn, MACHINE)
    forget()
    alone = np.concatenate([action_features([program], MACHINE) for program in drawn])
    # To the last bit: who asks first must not decide what the others are told.
    assert np.array_equal(together, alone)


def test_a_row_is_made_once_for_each_machine(forget, monkeypatch):
    made = []
    own = actions._own
    monkeypatch.setattr(actions, "_own", lambda c, h: made.extend(c) or own(c, h))
    forget()
    drawn = programs("matmul", 6)
    first = action_features(drawn, CPU)
    assert len(made) == 6
    # Once more, beside others, twice in one call, and through objects that are equal.
    again = action_features([*drawn[::-1], *programs("matmul", 6), drawn[0]], replace(CPU))
    assert len(made) == 6
    assert np.array_equal(again, np.concatenate([first[::-1], first, first[:1]]))
    again[:] = 0
    other = action_features(drawn, MACHINE)
    assert len(made) == 12 and not np.array_equal(other, first)
    assert np.array_equal(action_features(drawn, CPU), first) and len(made) == 12


def test_rows_that_are_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(actions, "_memory", Memory(4 * 4096))
    drawn = programs("matmul", 40)
    rows = action_features(drawn)
    assert 0 < len(actions._memory) < 20
    assert np.array_equal(action_features(drawn), rows)


def test_the_untuned_and_the_default_program_have_features():
    here = space("matmul")
    for candidate in (here.untuned, here.default):
        found = row(Program(candidate=candidate))
        assert found["own"] == 1 and found["level.nests"] == 0
        assert found["workload.flops"] == pytest.approx(np.log2(1 + here.workload.flops), rel=1e-6)


def test_tiles_and_levels_mean_what_they_are_called():
    found = row(matmul_program((4, 2, 2, 4), (2, 2, 2, 16), (24, 4)), MACHINE)
    assert found["tile.s0.part0"] == 4 and found["tile.s0.part3"] == 1
    assert found["tile.s1.part0"] == 2 and found["tile.r0.part0"] == 2
    assert found["level.s0"] == np.log2(4 * 16)
    assert found["level.s3"] == np.log2(4 * 2)
    assert found["level.r1"] == pytest.approx(np.log2(24))
    assert found["level.parallel"] == np.log2(16)
    assert found["level.vector"] == np.log2(16)
    assert found["choice.unroll_explicit"] == pytest.approx(np.log2(17))
    assert found["summary.vector"] == pytest.approx(np.log2(18))


def test_limits_of_the_parallel_and_the_vector_loop():
    found = row(matmul_program((4, 2, 2, 4), (2, 2, 2, 16), (24, 4), 2, 16), MACHINE)
    assert found["level.parallel"] == 2  # the loop that exceeds the limit is fused all the same
    assert found["level.vector"] == 4
    off = row(matmul_program((4, 2, 2, 4), (2, 2, 2, 16), (24, 4), 0, 0), MACHINE)
    assert off["level.parallel"] == off["level.vector"] == 0
    assert off["choice.parallel"] == off["choice.vectorize"] == 0
    assert off["actions.annotate"] == found["actions.annotate"] - 2
    assert off["actions.all"] == found["actions.all"] - 2


def test_footprints_are_the_bytes_that_tiles_touch():
    found = row(matmul_program((4, 2, 2, 4), (2, 2, 2, 16), (24, 4)), MACHINE)

    def touched(rows, columns, reduction):
        # B varies along the vector and comes first, then A, then C.
        sizes = (reduction * columns, rows * reduction, rows * columns)
        return [4 * size for size in sizes]

    inside = [(16, 64, 96), (8, 32, 96), (8, 32, 4), (4, 16, 4), (4, 16, 1)]
    for level, sizes in enumerate(inside):
        b, a, c = touched(*sizes)
        expected = {"read0": b, "read1": a, "read2": 0, "write": c, "all": a + b + c}
        for name, size in expected.items():
            assert found[f"footprint{level}.{name}"] == pytest.approx(np.log2(1 + size), rel=1e-5)
        work = np.prod(sizes)
        assert found[f"traffic.{level}"] == pytest.approx(np.log2((1 + a + b + c) / work), rel=1e-4)
    assert found["read0.contiguous_along_vector"] == 1 and found["read0.varies_along_vector"] == 1
    assert found["read1.varies_along_vector"] == 0
    assert found["write.contiguous_along_vector"] == 1


TILES = [
    ((4, 2, 2, 4), (2, 2, 2, 16), (24, 4)),
    ((1, 64, 1, 1), (128, 1, 1, 1), (96, 1)),
    ((1, 1, 1, 64), (1, 1, 2, 64), (2, 48)),
    ((2, 1, 32, 1), (1, 8, 1, 16), (3, 32)),
    ((8, 8, 1, 1), (4, 1, 32, 1), (32, 3)),
]


@pytest.mark.parametrize("count", [1, len(TILES)])
def test_footprints_are_exact_however_many_are_asked_for(count, forget):
    forget()
    tiles = TILES[-count:]
    rows = action_features([matmul_program(*each) for each in tiles], MACHINE)
    for found, (i, j, k) in zip(rows, tiles, strict=True):
        for level, (spatial, reduction) in enumerate(LEVELS):
            rows_, columns = math.prod(i[-spatial:]), math.prod(j[-spatial:])
            steps = math.prod(k[len(k) - reduction :])
            touched = 4.0 * (rows_ * steps + steps * columns + rows_ * columns)
            assert found[INDEX[f"footprint{level}.all"]] == np.float32(np.log2(1 + touched))
            traffic = np.log2(1 + touched) - np.log2(1.0 * rows_ * columns * steps)
            assert found[INDEX[f"traffic.{level}"]] == np.float32(traffic)


def test_windows_overlap():
    """A tile of a 3x3 convolution touches two more rows and columns than it computes."""
    sketch = space("conv2d_nhwc").sketches[0]
    tiles = {"yy": (7, 1, 1, 4), "xx": (7, 1, 1, 4), "ff": (1, 1, 1, 32), "rc": (1, 16)}
    tiles |= {"ry": (1, 3), "rx": (1, 3)}
    decisions = [tiles.get(v.name.rpartition(".")[2]) for v in sketch.variables]
    drawn = space("conv2d_nhwc").sample(np.random.default_rng(0), 64)
    other = next(c for c in drawn if c.sketch == sketch)
    filled = [o if d is None else d for d, o in zip(decisions, other.decisions, strict=True)]
    found = row(Program(candidate=type(other).trusted(sketch, tuple(filled))))
    weights, image = 4 * 3 * 3 * 16 * 32, 4 * 6 * 6 * 16
    assert found["footprint3.read0"] == pytest.approx(np.log2(1 + weights), rel=1e-5)
    assert found["footprint3.read1"] == pytest.approx(np.log2(1 + image), rel=1e-5)


def test_workload_columns_are_the_program_s():
    found = row(programs("matmul", 1)[0])
    assert found["workload.s0"] == 7 and found["workload.s1"] == 6
    assert found["workload.r0"] == pytest.approx(np.log2(96))
    assert found["workload.input"] == pytest.approx(np.log2(1 + 4 * (64 * 96 + 96 * 128)))
    assert found["workload.output"] == pytest.approx(np.log2(1 + 4 * 64 * 128))
    assert found["workload.blocks"] == 1


def test_programs_without_tiles_have_the_shape_of_their_heaviest_block():
    found = row(programs("softmax", 1)[0])
    assert found["workload.spatial"] + found["workload.reduction"] == np.log2(16 * 128)
    assert found["level.nests"] == 0 and found["locations.all"] >= 3


def test_locations_are_counted_and_placed():
    for program in programs("softmax", 24):
        decided = [
            decision
            for variable, decision in zip(
                program.candidate.sketch.variables, program.candidate.decisions, strict=True
            )
            if type(variable).__name__ == "ComputeLocation"
        ]
        found = row(program)
        assert found["locations.all"] == len(decided)
        assert found["locations.inline"] == decided.count(-2)
        assert found["locations.root"] == decided.count(-1)
        assert found["location0.depth"] == max(0, decided[0] + 1)
        assert 0 <= found["location0.relative"] <= 1


def test_the_machine_is_what_was_given_or_the_candidate_s():
    program = matmul_program((4, 2, 2, 4), (2, 2, 2, 16), (24, 4))
    own, other = row(program), row(program, MACHINE)
    assert own["machine.threads"] == pytest.approx(np.log2(1 + CPU.threads))
    assert other["machine.simd_bits"] == pytest.approx(np.log2(513))
    assert other["match.chunks"] == np.log2(32 / 2)
    assert other["match.parallel"] == np.log2(16 / 2) and other["match.uneven"] == 0
    assert other["match.vector"] == 0 and other["match.lanes_empty"] == 0
    assert other["match.registers"] == np.log2(64 / (32 * 16))
    assert other["match.footprint4_l1"] == pytest.approx(
        other["footprint4.all"] - np.log2(MACHINE.l1_bytes), rel=1e-4
    )
    assert own["match.footprint4_l1"] == 0  # nothing is known of that machine's caches


def test_jobs_that_do_not_divide_by_the_threads_are_uneven():
    program = matmul_program((4, 2, 2, 4), (2, 2, 2, 16), (24, 4))
    assert row(program, replace(MACHINE, threads=5))["match.uneven"] == pytest.approx(
        np.log2(4 * 5 / 16)
    )


class TestGenerated:
    """A matmul with a register tile of 4 rows and one vector, for 32 registers of 16 lanes."""

    TILES = ((4, 2, 2, 4), (2, 2, 2, 16), (24, 4))

    def found(self, *args, **kwargs):
        named = row(matmul_program(*(args or self.TILES), **kwargs), MACHINE)
        return {k.partition(".")[2]: v for k, v in named.items() if k.startswith("generated.")}

    def test_a_tile_that_is_unrolled_is_in_registers(self):
        found = self.found()
        assert found["lanes_empty"] == 0 and found["tile_unrolled"] == 1
        assert found["registers"] == pytest.approx(np.log2((4 + 1 + 1) / 32))
        assert found["registers_if_unrolled"] == found["registers"]
        assert found["loads"] == pytest.approx(np.log2((4 + 1) / 4))
        assert found["kept"] == found["kept_l1"] == 0

    @pytest.mark.parametrize(
        ("limit", "steps", "whole"), [(0, 1, 0), (16, 4 * 4, 1), (64, 4 * 4 * 2 * 2, 1)]
    )
    def test_steps_are_unrolled_from_the_innermost_as_far_as_the_limit(self, limit, steps, whole):
        found = self.found(unroll=limit)
        assert found["unrolled"] == np.log2(steps) and found["tile_unrolled"] == whole
        assert (found["registers_if_unrolled"] == 6) == (not whole)

    def test_scalar_code_leaves_lanes_empty_and_unrolls_the_whole_tile(self):
        found = self.found(vectorize=0)
        assert found["lanes_empty"] == np.log2(16) and found["tile_unrolled"] == 0
        assert found["registers"] == pytest.approx(np.log2((64 + 2) / 32))
        assert found["unrolled"] == np.log2(16)

    def test_vectors_of_several_registers_and_of_parts_of_one(self):
        wide = self.found((8, 2, 1, 4), (2, 2, 1, 32), (24, 4))
        assert wide["lanes_empty"] == 0
        assert wide["registers"] == pytest.approx(np.log2((8 + 2 + 1) / 32))
        assert wide["loads"] == pytest.approx(np.log2((4 + 2) / 8))
        half = self.found((4, 2, 2, 4), (2, 2, 4, 8), (24, 4))
        assert half["lanes_empty"] == 1

    def test_a_tile_of_one_step_needs_no_unrolling(self):
        found = self.found((16, 2, 2, 1), (2, 2, 2, 16), (24, 4), unroll=0)
        assert found["tile_unrolled"] == 1 and found["unrolled"] == 0

    def test_what_is_written_is_kept_inside_the_loop_where_it_is_copied(self):
        sizes = {}
        for program in programs("matmul", 60):
            candidate = program.candidate
            inside = kept_from(candidate.sketch, "C")
            found = row(program, MACHINE)
            if inside is None:
                assert found["generated.kept"] == found["generated.kept_l1"] == 0
                continue
            names = [v.name for v in candidate.sketch.variables]
            rows, columns = (candidate.decisions[names.index(f"C.{a}")] for a in "ij")
            size = 4 * np.prod(rows[inside:]) * np.prod(columns[inside:])
            assert found["generated.kept"] == pytest.approx(np.log2(size / 1024), abs=1e-5)
            assert found["generated.kept_l1"] == pytest.approx(
                np.log2(size / MACHINE.l1_bytes), abs=1e-5
            )
            sizes[inside] = size
        assert set(sizes) == {1, 2}

    @pytest.mark.parametrize(
        ("vector", "pieces"), [(4, 1), (12, 1), (6, 1), (8, 2), (24, 2), (16, 4), (48, 4)]
    )
    def test_vectors_across_groups_are_read_in_pieces(self, vector, pieces):
        """96 channels in groups of 12: a vector of 8 has the groups of 4 and 4 channels."""
        sketch = group_space().sketches[0]
        at = [v.name.rpartition(".")[2] for v in sketch.variables].index("ff")
        decisions = list(group_space().sample(np.random.default_rng(0), 1)[0].decisions)
        decisions[at] = (96 // vector, 1, 1, vector)
        names = [v.name for v in sketch.variables]
        choice = names.index("vectorize")
        decisions[choice] = sketch.variables[choice].values.index(64)
        found = row(Program(candidate=sketch.candidate(decisions)), MACHINE)
        assert found["generated.pieces"] == np.log2(pieces)

    def test_nothing_is_said_of_programs_without_tiles(self):
        found = row(programs("softmax", 1)[0], MACHINE)
        assert all(v == 0 for k, v in found.items() if k.startswith("generated."))


def test_the_summary_is_that_of_the_prior():
    drawn = programs("depthwise", 16)
    fits = machine_fit([program.candidate for program in drawn])
    found = action_features(drawn, CPU)[:, INDEX["summary.fit"]]
    np.testing.assert_allclose(found, fits, rtol=1e-6)


def test_sketches_without_a_module_have_features():
    drawn = nest_space((64, 128, 96)).sample(np.random.default_rng(0), 8)
    rows = action_features([Program(candidate=c) for c in drawn])
    assert np.isfinite(rows).all()
    assert (rows[:, INDEX["workload.s0"]] == 7).all()
    assert (rows[:, INDEX["footprint0.all"]] == 0).all()


class TestForeign:
    ANSOR = (
        Action("SP", (2, 0, 512, 1, 32, 1, 8, 1)),
        Action("SP", (2, 5, 512, 4, 1, 1, 16, 1)),
        Action("SP", (2, 10, 512, 4, 2, 1)),
        Action("AN", (2, 3, 3)),
        Action("AN", (2, 9, 2)),
        Action("AN", (4, 1, 2)),
        Action("PR", (2, 0, "auto_unroll_max_step$64")),
    )

    def test_ansor_s_numbers_are_aligned_by_what_they_are(self):
        found = row(Program(actions=self.ANSOR))
        assert found["own"] == 0
        assert found["actions.SP"] == 3 and found["actions.AN"] == 3 and found["actions.all"] == 7
        assert found["foreign.pragma"] == pytest.approx(np.log2(65))
        assert found["foreign.annotation2"] == 2 and found["foreign.annotation3"] == 1
        assert found["foreign.split0.extent"] == 9 and found["foreign.split0.part0"] == 3
        assert found["foreign.split2.part0"] == 1 and found["foreign.split2.part2"] == 6
        assert found["foreign.s0"] == np.log2(8 * 16)
        assert found["foreign.s4"] == np.log2(512 / 256) + np.log2(512 / 64)
        assert found["foreign.r0"] == 1
        assert found["foreign.step0.number0"] == pytest.approx(np.log2(3))

    def test_older_metaschedule_s_are_read_alike(self):
        actions = (
            Action("split", ("C.i", 2, 4, 8)),
            Action("annotate", ("root", "meta_schedule.unroll_explicit", 512)),
            Action("annotate", ("C", "meta_schedule.tiling_structure", "SSRSRS")),
        )
        found = row(Program(actions=actions))
        assert found["foreign.split0.extent"] == 6 and found["foreign.split0.part0"] == 3
        assert found["foreign.unroll_explicit"] == pytest.approx(np.log2(513))

    def test_configurations_are_parameters(self):
        found = row(Program(configuration={"block": 32, "layout": "NHWC", "unroll": 3}))
        assert found["actions.parameter"] == 3
        assert found["foreign.step0.number0"] == pytest.approx(np.log2(33))
        assert found["foreign.step2.number0"] == 2

    @pytest.mark.parametrize(
        "actions",
        [
            (),
            (Action("SP", ()),),
            (Action("SP", (0, 0, "auto", "auto", 1)),),
            (Action("AN", ()), Action("PR", ())),
            (Action("AN", (0, 0, "parallel")), Action("PR", (0, 0, "unroll$many"))),
            (Action("no such step", (10**30, -5, "x")),) * 100,
            (Action("sp", ("tile", -1, 0, 4)),),
        ],
    )
    def test_strange_steps_give_numbers(self, actions):
        rows = action_features([Program(actions=actions)])
        assert np.isfinite(rows).all()

    def test_own_and_foreign_programs_may_be_mixed(self):
        own, foreign = programs("matmul", 1)[0], Program(actions=self.ANSOR)
        together = action_features([foreign, own, foreign], CPU)
        assert together[:, INDEX["own"]].tolist() == [0, 1, 0]
        assert np.array_equal(together[0], action_features([foreign], CPU)[0])
        assert len(set(together[:, INDEX["machine.threads"]].tolist())) == 1


def test_nothing_gives_nothing():
    assert action_features([]).shape == (0, len(NAMES))


def test_machine_features_are_logarithms_and_zero_if_unknown():
    assert machine_features(None).tolist() == [0.0] * len(FEATURE_COLUMNS)
    assert machine_features(MACHINE)[1] == pytest.approx(np.log2(3))


@pytest.mark.parametrize("other", [0.96, 1.04])
def test_another_probe_of_a_machine_is_the_same_machine(other):
    again = replace(
        MACHINE,
        peak_gflops=MACHINE.peak_gflops * other,
        bandwidth_gbs=MACHINE.bandwidth_gbs * other,
    )
    assert (machine_features(again) == machine_features(MACHINE)).all()
    drawn = programs("matmul", 6)
    assert (action_features(drawn, again) == action_features(drawn, MACHINE)).all()


def test_another_machine_has_other_figures():
    names = [name for name, _ in FEATURE_COLUMNS]
    peak, bandwidth = names.index("peak_gflops"), names.index("bandwidth_gbs")
    twice = replace(MACHINE, peak_gflops=400.0, bandwidth_gbs=80.0)
    apart = machine_features(twice) - machine_features(MACHINE)
    assert apart[peak] == 1 and apart[bandwidth] == 1
    assert machine_features(MACHINE)[peak] == 7.5 and machine_features(MACHINE)[bandwidth] == 5


@pytest.mark.parametrize(("threads", "bits"), [(1, 128), (1, 512), (2, 256), (2, 512)])
def test_what_nobody_measured_of_a_cpu_is_near_what_is_measured(threads, bits):
    """The peaks are those of the committed data set's machine."""
    names = [name for name, _ in FEATURE_COLUMNS]
    peak, bandwidth = names.index("peak_gflops"), names.index("bandwidth_gbs")
    measured = {(1, 128): 69.4, (1, 512): 276.0, (2, 256): 276.2, (2, 512): 539.3}
    unknown = replace(CPU, threads=threads, simd_bits=bits, peak_gflops=0.0, bandwidth_gbs=0.0)
    known = replace(unknown, peak_gflops=measured[threads, bits], bandwidth_gbs=45.0)
    apart = np.abs(machine_features(unknown) - machine_features(known))
    assert apart[peak] <= 0.5 and apart[bandwidth] <= 1
    assert (np.delete(apart, [peak, bandwidth]) == 0).all()


def test_nothing_is_made_up_of_a_gpu():
    bare = replace(preset("a100"), peak_gflops=0.0, bandwidth_gbs=0.0)
    names = [name for name, _ in FEATURE_COLUMNS]
    assert machine_features(bare)[names.index("peak_gflops")] == 0
