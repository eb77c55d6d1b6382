"""Readings and the quiet floor; no assertion depends on how fast the machine is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from foretune import _tvm
from foretune.hardware import Hardware
from foretune.measure._turns import InTurn
from foretune.measure.timing import QuietFloor, Reading, Stopwatch, entry
from foretune.measure.waiting import CoreWatch
from tests.measure import programs
from tests.measure.policies import OpenPolicy

pytestmark = pytest.mark.machine

POLICY = OpenPolicy(budget_s=0.05, reading_s=0.002)
_NOTHING = InTurn([])


@pytest.fixture(autouse=True)
def _own_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs beside these tests: readings that wait are in ``test_waiting``."""
    monkeypatch.setattr(CoreWatch, "crowded", lambda self: False)


@pytest.fixture(scope="module")
def watch(hardware: Hardware) -> Stopwatch:
    return Stopwatch(hardware, POLICY)


def _sleeper(*seconds: float) -> Callable[[], None]:
    """Sleeps for each of ``seconds`` in turn, then for the last one for ever."""
    left = list(seconds)

    def program() -> None:
        time.sleep(left.pop(0) if len(left) > 1 else left[0])

    return program


def test_the_floor_is_the_lowest_decile_of_what_it_keeps() -> None:
    floor = QuietFloor(0.1, keep=20)
    assert floor.seconds == math.inf
    floor.add([0.5, *[1.0] * 10, *[2.0] * 9])
    assert floor.seconds == 1.0
    floor.add([3.0] * 20)
    assert floor.seconds == 3.0


@pytest.mark.parametrize(
    ("reading", "quiet"),
    [
        (Reading(1e-3, 1.0, 1.0), True),
        (Reading(1e-3, 1.05, 1.09), True),
        (Reading(1e-3, 1.0, 1.3), False),
        (Reading(1e-3, 1.3, 1.0), False),
        (Reading(1e-3, 1.0, 1.0, crowded=True), False),
    ],
)
def test_quiet_needs_both_canaries_and_the_cores(reading: Reading, quiet: bool) -> None:
    floor = QuietFloor(0.1)
    floor.add([1.0] * 10)
    assert floor.is_quiet(reading) is quiet


def test_reading_stops_when_the_two_lowest_agree(watch: Stopwatch) -> None:
    exact = replace(POLICY, spread=0.5, budget_s=5.0)
    readings = Stopwatch(watch.hardware, exact).readings(_sleeper(0.02), _NOTHING, 0.02)
    assert len(readings) == POLICY.min_readings


def test_reading_stops_when_the_budget_is_spent(watch: Stopwatch) -> None:
    tight = replace(POLICY, spread=1e-9, budget_s=0.06)
    readings = Stopwatch(watch.hardware, tight).readings(_sleeper(0.01), _NOTHING, 0.01)
    assert 3 <= len(readings) <= 12


def test_a_program_of_seconds_gets_one_or_two_readings(watch: Stopwatch) -> None:
    assert 1 <= len(watch.readings(_sleeper(0.11), _NOTHING, 0.11)) <= 2


def test_a_first_call_of_seconds_is_a_reading(hardware: Hardware) -> None:
    calls: list[int] = []
    # A cold start of 5 ms is within a spread of one half from 10 ms on.
    rough = Stopwatch(hardware, replace(POLICY, spread=0.5))
    seconds, reading = rough.first_call(_sleeper(0.02), [])
    assert reading is not None and reading.seconds == seconds >= 0.02
    assert reading.before > 0 and reading.after > 0
    exact = Stopwatch(hardware, replace(POLICY, spread=1e-9))
    assert exact.first_call(lambda: calls.append(0), [])[1] is None
    assert len(calls) == 1


def test_a_reading_that_is_there_counts_like_the_others(watch: Stopwatch) -> None:
    calls: list[int] = []

    def program() -> None:
        calls.append(0)
        time.sleep(0.003)

    first = Reading(2 * POLICY.budget_s, 1e-4, 1e-4)
    assert watch.readings(program, _NOTHING, first.seconds, first=first) == [first]
    assert watch.readings(program, _NOTHING, first.seconds, count=1, first=first) == [first]
    assert not calls
    two = watch.readings(program, _NOTHING, 0.003, count=2, first=first)
    assert two[0] == first and len(two) == 2 and calls


def test_a_count_of_readings_is_kept(watch: Stopwatch) -> None:
    assert len(watch.readings(_sleeper(0.001), _NOTHING, 0.001, count=1)) == 1
    assert len(watch.readings(_sleeper(0.03), _NOTHING, 0.03, count=4)) == 4


def test_a_cold_first_call_does_not_shorten_readings(watch: Stopwatch) -> None:
    calls = []
    watch.readings(lambda: calls.append(0), _NOTHING, 1e-3, count=1)
    assert len(calls) > 100, "a call of 1 ms would have been repeated twice only"


def test_modules_of_tvm_are_timed_by_it(watch: Stopwatch, hardware: Hardware) -> None:
    module = _tvm.tvm.compile(programs.matmul(32).module, hardware.tvm_target()).jit()
    tensors = [_tvm.tvm.runtime.tensor(np.ones((32, 32), np.float32)) for _ in range(3)]
    entry(module)(*tensors)
    assert tensors[2].numpy()[0, 0] == 32
    assert watch.read(module, InTurn([[tensor] for tensor in tensors]), 100) > 0
    assert watch.read(module, InTurn([[tensor] for tensor in tensors]), 1) > 0


def test_buffers_are_prepared_before_each_reading(watch: Stopwatch) -> None:
    prepared: list[int] = []
    watch.readings(_sleeper(0.01), _NOTHING, 0.01, lambda: prepared.append(0), count=3)
    assert len(prepared) == 3


def test_each_call_gets_its_turn_of_the_arguments(watch: Stopwatch) -> None:
    seen: list[str] = []
    arguments = InTurn([["a", "b", "c"]])
    watch.read(seen.append, arguments, 4)
    watch.read(seen.append, arguments, 3)
    assert "".join(seen) == "abcabca"


def test_each_argument_takes_turns_with_its_own_copies() -> None:
    arguments = InTurn(["abc", "x", "pq"])
    assert ["".join(each) for each in arguments.take(4)] == ["axp", "bxq", "cxp", "axq"]
    assert ["".join(each) for each in arguments.take(2)] == ["bxp", "cxq"]
    assert "".join(arguments.first) == "axp"
    assert not arguments.alike and InTurn("ax").alike


def test_modules_of_tvm_get_their_turns_too(watch: Stopwatch, hardware: Hardware) -> None:
    module = _tvm.tvm.compile(programs.matmul(32).module, hardware.tvm_target()).jit()
    ones = np.ones((32, 32), np.float32)
    copies = [[_tvm.tvm.runtime.tensor(a) for _ in range(3)] for a in (ones, ones, 0 * ones)]
    assert watch.read(module, InTurn(copies), 2) > 0
    assert [int(tensor.numpy()[0, 0]) for tensor in copies[2]] == [32, 32, 0]


def test_the_canary_is_counted(watch: Stopwatch) -> None:
    before = watch.canary_s
    assert watch.canary() > 0
    assert watch.canary_s > before


def test_two_readings_may_be_the_fewest(hardware: Hardware) -> None:
    fewest = replace(POLICY, min_readings=2, spread=0.5, budget_s=5.0)
    assert len(Stopwatch(hardware, fewest).readings(_sleeper(0.02), _NOTHING, 0.02)) == 2
