"""A ranker ``world`` of states of features with a head, trained on a few small programs."""

from __future__ import annotations

import functools

import numpy as np

from foretune.cost.world import WorldRanker
from foretune.dataset import Group, Program
from tests.space.programs import space

LEARNED_FROM = ("matmul", "batch_matmul", "softmax")
OPTIONS = {
    "dimension": 16,
    "transition_options": {"members": 2, "terminal_epochs": 4, "batch": 256},
    "trajectories": 72,
    "rounds": 10,
    "patience": 10,
    "min_child_weight": 0.5,
    "boosters": 1,
    "threads": 1,
    "device": "cpu",
}


def slowness(candidate):
    """Seconds that gradients can lower: innermost factors of tiles are best at 4."""
    inner = [d[-1] for d in candidate.decisions if isinstance(d, tuple)]
    return 1e-3 * 2.0 ** float(np.abs(np.log2(inner) - 2.0).sum())


def group(name, n=24, seed=0):
    """Candidates of a small program with made-up seconds."""
    here = space(name)
    candidates = list(dict.fromkeys(here.sample(np.random.default_rng(seed), n)))
    seconds = np.array([slowness(candidate) for candidate in candidates])
    programs = [Program(candidate=candidate) for candidate in candidates]
    return Group(here.workload.key, name, name, here.hardware.key, programs, seconds, here.hardware)


def trained(reads="both"):
    """The ranker with a head that reads these; whoever changes it copies it first."""
    return _trained(reads)


@functools.cache
def _trained(reads):
    world = None if reads == "both" else trained()._world
    ranker = WorldRanker(**OPTIONS, head=True, head_reads=reads, world=world)
    ranker.fit([group(name) for name in LEARNED_FROM])
    return ranker
