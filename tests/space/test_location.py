"""The location model must say exactly what TVM says, and TVM must keep every decision."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from foretune import _tvm
from foretune.space import INLINE, ROOT, Candidate, ComputeLocation, PerfectTile, Space, _probe
from foretune.space._nest import FrozenBlockError, Learner, Seen
from foretune.space.location import Loop, Nest
from foretune.space.trace import plain

from .programs import CPU, PROGRAMS, space

REPLAYED = {"conv2d_nhwc": 150, "depthwise": 150, "softmax": 300, "layer_norm": 300}
FULLY_EXAMINED = ["conv2d_nhwc", "depthwise", "pooling", "global_pooling", "layer_norm"]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_tvm_keeps_every_decision_of_sampled_candidates(name: str) -> None:
    here = space(name)
    rng = np.random.default_rng(1)
    for candidate in here.sample(rng, REPLAYED.get(name, 100)):
        candidate.sketch.template.replay(candidate.decisions)


@pytest.mark.parametrize("name", [pytest.param("conv2d_nhwc", marks=pytest.mark.slow), "softmax"])
def test_tvm_keeps_every_decision_of_mutants_and_children(name: str) -> None:
    here = space(name)
    rng = np.random.default_rng(2)
    parents = here.sample(rng, 50)
    for a, b in itertools.pairwise(parents):
        for candidate in (here.mutate(a, rng), here.crossover(a, b, rng)):
            candidate.sketch.template.replay(candidate.decisions)


@pytest.mark.parametrize("name", FULLY_EXAMINED)
def test_what_tvm_samples_is_in_the_space(name: str) -> None:
    for sketch in space(name).sketches:
        template = sketch.template
        for seed in range(1, 16):
            schedule = _tvm.Schedule(template.base.module, seed=seed)
            _tvm.Trace(template.instructions, {}).apply_to_schedule(schedule, remove_postproc=True)
            trace = schedule.trace
            drawn = [plain(trace.get_decision(inst)) for inst in trace.insts]
            # Parallel and vectorise limits are no sampling instructions of TVM: any will do.
            decisions = [drawn[at] if drawn[at] is not None else 0 for at in sketch.positions]
            Candidate(sketch, decisions)


def test_convolution_padding_may_go_under_the_tiles() -> None:
    here = space("conv2d_nhwc")
    drawn = here.sample(np.random.default_rng(0), 400)
    locations = {
        decision
        for c in drawn
        for v, decision in zip(c.sketch.variables, c.decisions, strict=True)
        if isinstance(v, ComputeLocation)
    }
    assert {INLINE, ROOT} < locations
    assert max(x for x in locations if isinstance(x, int)) > 6


def _locations(here: Space, n: int) -> set[tuple[str, int]]:
    return {
        (v.name, decision)
        for c in here.sample(np.random.default_rng(0), n)
        for v, decision in zip(c.sketch.variables, c.decisions, strict=True)
        if isinstance(v, ComputeLocation) and isinstance(decision, int)
    }


def test_a_program_of_many_sketches_keeps_some_locations_within_the_budget() -> None:
    here = space("attention")
    assert len(here.sketches) > 50
    for block in ("expsum", "maxelem"):
        found = {x for name, x in _locations(here, 600) if name.endswith(block)}
        assert ROOT in found
        assert max(found) > ROOT


def test_without_budget_every_block_stays_at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_probe, "_REPLAYS", 0)
    here = Space.generate(space("softmax").workload, CPU)
    assert {location for _, location in _locations(here, 200)} == {ROOT}


def test_the_same_locations_are_learnt_every_time() -> None:
    here = space("softmax")
    again = Space.generate(here.workload, CPU)
    assert [s.locations for s in again.sketches] == [s.locations for s in here.sketches]


TILE = PerfectTile("k", 64, 3)
BITS = ((0, 0), (0, 1), (0, 2))
TILES = [(2, 4, 8), (1, 8, 8), (8, 1, 8), (16, 4, 1), (1, 1, 64), (4, 2, 8), (2, 32, 1), (32, 2, 1)]


@pytest.mark.parametrize(
    ("extent", "unit"),
    [
        (lambda a, b, c: b, 0b010),
        (lambda a, b, c: b * c, 0b110),
        (lambda a, b, c: 2 * (b * c - 1) + 1, 0b110),
        (lambda a, b, c: 2 * (b - 1) + 3, -1),
        (lambda a, b, c: 5, -1),
        (lambda a, b, c: 1, 0),
    ],
)
def test_formulas_of_extents_are_learnt(extent: Callable[..., int], unit: int) -> None:
    learner = Learner([TILE], BITS)
    for tile in TILES:
        units = sum(1 << i for i, factor in enumerate(tile) if factor == 1)
        learner.take(Seen(("l",), (extent(*tile),), (True,)), [tile], units)
    assert learner.settled
    assert learner.nest().loops == (Loop("l", unit, True, True),)


def test_an_extent_that_no_formula_gives_is_narrowed_down_by_elimination() -> None:
    learner = Learner([TILE], BITS)
    for tile in TILES:
        units = sum(1 << i for i, factor in enumerate(tile) if factor == 1)
        learner.take(Seen(("l",), (tile[0] ** 2,), (True,)), [tile], units)
    assert not learner.settled
    assert learner.nest().loops[0].unit == 0b001


def test_a_nest_that_contradicts_the_model_is_refused() -> None:
    learner = Learner([TILE], BITS)
    learner.take(Seen(("l",), (1,), (True,)), [(64, 1, 1)], 0b110)
    with pytest.raises(FrozenBlockError, match="no function of tiles"):
        learner.take(Seen(("l",), (2,), (True,)), [(64, 1, 1)], 0b110)
    with pytest.raises(FrozenBlockError, match="number of loops"):
        learner.take(Seen(), [(64, 1, 1)], 0b110)
    learner = Learner([TILE], BITS)
    learner.take(Seen(("l",), (2,), (True,)), [(2, 4, 8)], 0)
    with pytest.raises(FrozenBlockError, match="some tiles only"):
        learner.take(Seen(("l",), (2,), (False,)), [(2, 8, 4)], 0)


def _nest(text: str) -> Nest:
    # One letter per loop: s or S parallel, r or R reduction; lower case has one iteration.
    return Nest(
        inline=False,
        loops=tuple(
            Loop(f"l{i}", 0 if letter.islower() else -1, letter in "sS", True)
            for i, letter in enumerate(text)
        ),
    )


@pytest.mark.parametrize(
    ("loops", "domain"),
    [
        ("", [ROOT]),
        ("SSS", [ROOT, 0, 1, 2]),
        ("SsS", [ROOT, 0, 2]),
        ("SRSR", [ROOT, 0, 1]),
        ("SRsR", [ROOT, 0, 1]),
        ("SRsRs", [ROOT, 0, 1, 3]),
        ("SrSR", [ROOT, 0, 2]),
        ("SSRR", [ROOT, 0, 1]),
    ],
)
def test_the_rules_for_loops(loops: str, domain: list[int]) -> None:
    assert list(_nest(loops).domain(0)) == domain


def test_a_loop_is_skipped_when_all_its_factors_are_one() -> None:
    nest = Nest(inline=True, loops=(Loop("l", 0b11, True, True), Loop("m", -1, True, False)))
    assert nest.domain(0b01) == (INLINE, ROOT, 0)
    assert nest.domain(0b11) == (INLINE, ROOT)
