"""Contenders in the compiled network: what is tried, that it computes the same, what is taken."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretune import _tvm
from foretune.graph import compile_variants, entry_of, extract, variants
from foretune.hardware import probe
from foretune.space import Candidate, Space
from foretune.tuning import contenders as module
from foretune.tuning.contenders import (
    Contender,
    Trying,
    contenders,
    faster_ones,
    most_contenders,
    try_in_network,
)
from foretune.tuning.proof import Proof
from foretune.workload import Model, from_object

torch = pytest.importorskip("torch")


@functools.cache
def network() -> Model:
    """Two layers of one shape, which are one task, and another one."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(48, 48), torch.nn.ReLU()] * 2 + [torch.nn.Linear(48, 16)]
    layers[2] = torch.nn.Linear(48, 48)
    return from_object((torch.nn.Sequential(*layers).eval(), (torch.randn(40, 48),)), "n", "a test")


@functools.cache
def extracted() -> tuple[Any, dict[str, Space]]:
    extraction = extract(network(), probe())
    return extraction, {w.key: Space.generate(w, probe()) for w in extraction.workloads}


def candidates(count: int) -> tuple[Any, dict[str, list[Candidate]]]:
    extraction, spaces = extracted()
    rng = np.random.default_rng(0)
    return extraction, {key: space.sample(rng, count) for key, space in spaces.items()}


def test_every_version_computes_the_same_with_its_own_kernel() -> None:
    model = network()
    extraction, found = candidates(3)
    best = {key: own[0] for key, own in found.items()}
    others = [(key, c) for key, own in found.items() for c in own[1:]]
    artifact = compile_variants(model, probe(), best, others, extraction)
    inputs = model.draw_inputs(3)
    (wanted,) = model.reference(inputs)
    for number in range(len(others) + 1):
        (tensor,) = artifact.prepare(inputs, entry_of(number))()
        np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_version_calls_its_own_kernel_and_the_others_of_the_network() -> None:
    program = extracted()[0].program
    names = list(called(program))
    first = names[0]
    builder = _tvm.tvm.relax.BlockBuilder(program)
    version = f"{first}_version_1"
    builder.add_func(program[first].with_attr("global_symbol", version), version)
    changed = variants._with_entry(builder.get(), entry_of(1), {first: version})
    others = set(names) - {first}
    assert set(called(changed)) == {*others, first}
    assert set(called(changed, entry_of(1))) == {*others, version}


def called(program: Any, function: str = "main") -> list[str]:
    found: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, _tvm.tvm.relax.Call) and len(expression.args):
            name = str(getattr(expression.args[0], "name_hint", ""))
            if isinstance(expression.args[0], _tvm.tvm.ir.GlobalVar) and name not in found:
                found.append(name)

    _tvm.tvm.relax.analysis.post_order_visit(program[function], visit)
    return found


def test_what_is_faster_in_the_network_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def seconds(call: Any, _calls: int) -> float:
        if call not in seen:
            seen.append(call)
        return 1.0 - 0.1 * seen.index(call)

    monkeypatch.setattr(module, "_seconds", seconds)
    model = network()
    extraction, found = candidates(1)
    key = max(extraction.workloads, key=lambda w: w.flops * w.weight).key
    space = Space.generate(next(w for w in extraction.workloads if w.key == key), probe())
    # As written, on one core and without vectors, beside something that was tiled.
    slow = {**{k: own[0] for k, own in found.items()}, key: space.untuned}
    assert space.default is not None
    tried = try_in_network(
        model, probe(), extraction, slow, [Contender("heavy", key, space.default)]
    )
    assert [each.contender.candidate.key for each in tried] == [space.default.key]
    assert (tried[0].ratio, tried[0].upper) == (pytest.approx(0.9), pytest.approx(0.9))
    assert faster_ones(tried) == {key: space.default}


def test_a_slow_network_has_fewer_tried() -> None:
    counts = [most_contenders(seconds) for seconds in (0.004, 0.1, 0.2, 0.5, 1.0, 30.0)]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (16, 0)


@pytest.mark.parametrize(
    ("after", "gain"),
    [
        ((1.0, 1.0, 1.25, 1.0), 2.0),
        ((1.9, 1.9, 2.1, 2.1), None),  # as often slower as faster
        ((2.0,) * 4, None),
        ((3.0,) * 4, None),
        ((), None),
    ],
)
def test_the_network_gets_what_was_faster_if_all_of_it_pays(
    monkeypatch: pytest.MonkeyPatch, after: tuple[float, ...], gain: float | None
) -> None:
    model = network()
    extraction, found = candidates(2)
    chosen = {key: own[0] for key, own in found.items()}
    (key, (_, other)) = next(iter(found.items()))
    proof = Proof(model, probe(), extraction, time.perf_counter())
    proof.network = replace(proof.network, shipped="tuned", tuned_s=1e-3)
    shipped = proof.default
    faster = [Trying(Contender("t", key, other), 0.5, 0.6)]
    monkeypatch.setattr("foretune.tuning.proof.try_in_network", lambda *_: faster)
    timed = {
        "before": SimpleNamespace(readings=(2.0,) * 4),
        "after": SimpleNamespace(readings=after),
    }
    monkeypatch.setattr("foretune.engines.compare", lambda *_, **__: timed)
    better = proof.improve(shipped, chosen, [Contender("t", key, other)])
    assert (better is shipped) == (gain is None)
    assert proof.network.tried_gain == gain and len(proof.network.tried) == 1
    inputs = model.draw_inputs(3)
    (wanted,), (got,) = model.reference(inputs), better.run(inputs)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_nothing_is_tried_where_the_default_ships() -> None:
    model = network()
    extraction, found = candidates(2)
    chosen = {key: own[0] for key, own in found.items()}
    (key, (_, other)) = next(iter(found.items()))
    proof = Proof(model, probe(), extraction, time.perf_counter())
    shipped = proof.default
    assert proof.improve(shipped, chosen, [Contender("t", key, other)]) is shipped
    assert not proof.network.tried


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
