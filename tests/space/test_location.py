"""The location model must say exactly what TVM says, and TVM must keep every decision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from foretune import _tvm
from foretune.space import INLINE, ROOT, Candidate, ComputeLocation
from foretune.space._replay import plain
from foretune.space.location import Loop, Nest

from .programs import PROGRAMS, space

REPLAYED = {"conv2d_nhwc": 150, "depthwise": 150, "softmax": 300, "layer_norm": 300}
FULLY_EXAMINED = ["conv2d_nhwc", "depthwise", "pooling", "layer_norm"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_tvm_keeps_every_decision_of_sampled_candidates(name: str) -> None:
    here = space(name)
    rng = np.random.default_rng(1)
    for candidate in here.sample(rng, REPLAYED.get(name, 100)):
        candidate.sketch.template.replay(candidate.decisions)


@pytest.mark.parametrize("name", ["conv2d_nhwc", "softmax"])
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
