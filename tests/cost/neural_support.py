"""Groups whose order is known, for rankers that learn it, and readers that need no compiler.

A program is some splits ``("split", ("C.i", f0, f1, f2))``. Every split costs a factor that depends
on its numbers alone, so that what is learned on some workloads holds on others:

    seconds = base * 2 ** (direction * sum over splits (0.3 log2 f0 - 0.2 log2 f1))
"""

from __future__ import annotations

import json

import numpy as np

from foretune.dataset import Group, Program
from foretune.hardware import Hardware
from foretune.space import Action

FACTORS = (1, 2, 4, 8, 16, 32)
ON_CPU = {"threads": 1, "device": "cpu"}
"""One thread, so that results are the same on every machine with such a processor."""


def machine(threads: int) -> Hardware:
    return Hardware("cpu", json.dumps({"kind": "llvm", "num-cores": threads}), threads=threads)


def program(*splits):
    return Program(actions=[Action("split", ("C.i", *factors)) for factors in splits])


def logs(one):
    """The logarithms of a program's numbers, shape (splits, 3)."""
    return np.log2(np.array([action.args[1:] for action in one.actions], dtype=np.float64))


def group(name, n, rng, hardware="cpu", direction=1.0, threads=None):
    programs = [
        program(*(rng.choice(FACTORS, 3).tolist() for _ in range(rng.integers(2, 5))))
        for _ in range(n)
    ]
    cost = np.array([(logs(p) @ [0.3, -0.2, 0.0]).sum() for p in programs])
    return Group(
        workload=name,
        name=name,
        kind="dense",
        hardware=hardware,
        programs=programs,
        seconds=10.0 ** rng.uniform(-5, -2) * 2.0 ** (direction * cost),
        machine=None if threads is None else machine(threads),
    )


def groups(count, n=32, seed=0, **options):
    rng = np.random.default_rng(seed)
    return [group(f"w{seed}.{i}", n, rng, **options) for i in range(count)]


def read_rows(programs):
    """A store per split: its logarithms and a constant."""
    return [np.column_stack([logs(p), np.ones(len(p.actions))]) for p in programs]


def read_actions(programs, _machine):
    """The number of steps and a constant."""
    return np.array([[len(p.actions), 1.0] for p in programs], dtype=np.float32).reshape(-1, 2)


def read_tokens(programs, _machine, steps, width, reference=False):
    """A token per split: a one, then its logarithms."""
    tokens = np.zeros((len(programs), steps, width), dtype=np.float32)
    mask = np.zeros((len(programs), steps), dtype=bool)
    for at, one in enumerate(programs):
        count = min(steps, len(one.actions))
        if count:
            tokens[at, :count, 0] = 1.0
            tokens[at, :count, 1:4] = logs(one)[:count]
            mask[at, :count] = True
    return tokens, mask


def agreement(a, b):
    """Share of the pairs that both order alike; pairs tied in ``a`` do not count."""
    i, j = np.triu_indices(len(a), 1)
    counts = a[i] != a[j]
    return float((np.sign(a[i] - a[j]) == np.sign(b[i] - b[j]))[counts].mean())


def pair_accuracy(ranker, unseen):
    """Mean over groups of the share of pairs in the right order; 0.5 is chance."""
    return float(
        np.mean(
            [agreement(-g.seconds, ranker.score(g.programs, g.machine, g.hardware)) for g in unseen]
        )
    )
