"""Contenders in the compiled network: what is tried, that it computes the same, what is taken."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretune.graph import compile_variants, entry_of, extract
from foretune.hardware import probe
from foretune.space import Candidate, Space
from foretune.tuning import contenders as module
from foretune.tuning.contenders import (
    Contender,
    Trying,
    contenders,
    faster_ones,
    try_in_network,
)
from foretune.workload import Model, from_object

torch = pytest.importorskip("torch")


def network() -> Model:
    """Two layers of one shape, which are one task, and another one."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(48, 48), torch.nn.ReLU()] * 2 + [torch.nn.Linear(48, 16)]
    layers[2] = torch.nn.Linear(48, 48)
    return from_object((torch.nn.Sequential(*layers).eval(), (torch.randn(40, 48),)), "n", "a test")


def candidates(model: Model, count: int) -> tuple[Any, dict[str, list[Candidate]]]:
    extraction = extract(model, probe())
    rng = np.random.default_rng(0)
    found = {}
    for workload in extraction.workloads:
        space = Space.generate(workload, probe())
        found[workload.key] = space.sample(rng, count)
    return extraction, found


def test_every_version_computes_the_same_with_its_own_kernel() -> None:
    model = network()
    extraction, found = candidates(model, 3)
    best = {key: own[0] for key, own in found.items()}
    others = [(key, c) for key, own in found.items() for c in own[1:]]
    artifact = compile_variants(model, probe(), best, others, extraction)
    inputs = model.draw_inputs(3)
    (wanted,) = model.reference(inputs)
    for number in range(len(others) + 1):
        (tensor,) = artifact.prepare(inputs, entry_of(number))()
        np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_what_is_faster_in_the_network_is_found() -> None:
    model = network()
    extraction, found = candidates(model, 1)
    key = max(extraction.workloads, key=lambda w: w.flops * w.weight).key
    space = Space.generate(next(w for w in extraction.workloads if w.key == key), probe())
    # As written, on one core and without vectors, beside something that was tiled.
    slow = {**{k: own[0] for k, own in found.items()}, key: space.untuned}
    assert space.default is not None
    tried = try_in_network(
        model, probe(), extraction, slow, [Contender("heavy", key, space.default)]
    )
    assert [each.contender.candidate.key for each in tried] == [space.default.key]
    assert 0 < tried[0].ratio <= tried[0].upper


def _trying(key: str, ratio: float, upper: float, candidate: str = "c") -> Trying:
    return Trying(Contender("t", key, SimpleNamespace(key=candidate)), ratio, upper)  # type: ignore[arg-type]


def test_only_what_is_faster_beyond_doubt_is_taken_and_the_fastest_of_a_task() -> None:
    tried = [
        _trying("a", 0.98, 0.99, "good"),
        _trying("a", 0.95, 0.97, "better"),
        _trying("b", 0.9, 1.01),
        _trying("c", 0.999, 0.9995),
        _trying("d", 1.2, 1.3),
    ]
    assert {key: c.key for key, c in faster_ones(tried).items()} == {"a": "better"}


class _Task:
    def __init__(self, name: str, weight: int, seconds: float, others: int, tuned: bool) -> None:
        self.workload = SimpleNamespace(name=name, key=name, weight=weight)
        self.best_s, self.tuned = seconds, tuned
        self._found = [SimpleNamespace(key=f"{name}{n}") for n in range(others + 1)]
        self.best = self._found[0]

    def contenders(self, limit: int, _within: float) -> list[Any]:
        return self._found[:limit]


def test_the_heaviest_tuned_tasks_have_theirs_tried() -> None:
    tasks = [
        _Task("light", 1, 0.001, 2, True),
        _Task("middle", 2, 0.2, 5, True),
        _Task("default", 1, 0.3, 2, False),
        _Task("heavy", 12, 0.1, 1, True),
    ]
    found = contenders(tasks)  # type: ignore[arg-type]
    assert [c.candidate.key for c in found] == ["heavy1", "middle1", "middle2"]
    assert contenders([]) == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def passes(seconds: float) -> None:
        now[0] += seconds

    return passes


def test_a_machine_that_slows_down_makes_no_contender_slow(
    clock: Callable[[float], None],
) -> None:
    speed = [1.0]

    def call(seconds: float) -> Callable[[], None]:
        def run() -> None:
            speed[0] *= 1.01
            clock(seconds * speed[0])

        return run

    ratios = module._round([call(1.0), call(1.0), call(0.9), call(1.0), call(1.1)], 1)
    np.testing.assert_allclose(ratios, [1.0, 0.9, 1.0, 1.1], atol=0.03)
