"""Plans in a child process, which may crash or hang."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.measure import Status
from foretune.plans import _worker
from foretune.plans._timing import NetworkWatch
from foretune.plans.kernels import Kernels
from foretune.plans.measurer import OutOfTime, PlanMeasurer
from foretune.workload import load_input
from tests.graph.test_algorithms import hardware

FILE = Path(__file__).with_name("networks.py")
BEGUN = Path("kernels", "0123456789abcdef.begun")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a run was killed while it built a kernel."""
    folder = tmp_path_factory.mktemp("network")
    (folder / "kernels").mkdir()
    (folder / BEGUN).touch()
    return folder


@pytest.fixture(scope="module")
def measurer(folder):
    with PlanMeasurer(f"{FILE}:products", hardware(), folder) as found:
        yield found


def test_a_run_that_was_killed_while_it_built_does_not_spoil_a_kernel(measurer, folder):
    assert measurer.space
    assert not (folder / BEGUN).exists()


def test_plans_are_built_once_checked_and_timed(measurer, folder):
    plan = measurer.space.uniform({"packed-weights": "plain", "fusion": "alone"})
    pairs = list(measurer.measure([measurer.space.default, plan]))
    assert [found for found, _ in pairs] == [measurer.space.default, plan]
    for _, measurement in pairs:
        assert measurement.status is Status.OK, measurement.message
        assert len(measurement.seconds) == len(measurement.quiet) >= 3
        assert measurement.max_error < 1e-3
    assert measurer.last["built"] > 0
    assert not measurer.last["unasked"]
    assert set(measurer.last["stages"]) == {
        "passes", "kernels", "calls", "weights", "check", "readings",
    }  # fmt: skip
    (again,) = measurer.compare([plan])
    assert again.ok
    assert measurer.last["built"] == 0
    assert list(folder.glob("kernels/*.so"))
    assert not list(folder.glob("kernels/*.begun"))


def test_plans_that_are_compared_take_turns(measurer):
    plain = measurer.space.uniform({"packed-weights": "plain", "fusion": "alone"})
    default, other = measurer.compare([measurer.space.default, plain])
    assert default.ok and other.ok
    assert len(default.seconds) == len(other.seconds) >= 3
    chosen = [measurer.chosen[plan.key] for plan in (measurer.space.default, plain)]
    assert [set(each["packed-weights"].values()) for each in chosen] == [{"panels"}, {"plain"}]
    assert measurer.compare([]) == []


def test_a_child_that_dies_is_replaced_and_finds_the_kernels_again(measurer):
    child = measurer._child._process
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    (crashed,) = measurer.compare([measurer.space.default])
    assert crashed.status is Status.CRASH
    assert "SIGKILL" in crashed.message
    (measurement,) = measurer.compare([measurer.space.default])
    assert measurement.ok
    assert measurer.last["built"] == 0


def test_a_child_that_hangs_is_ended_and_three_in_a_row_end_it_all(measurer, monkeypatch):
    monkeypatch.setattr(measurer, "_step_timeout_s", 0.3)
    os.killpg(measurer._child._process.pid, signal.SIGSTOP)
    (measurement,) = measurer.compare([measurer.space.default])
    assert measurement.status is Status.TIMEOUT
    assert "0.3 s" in measurement.message
    monkeypatch.setattr(measurer, "_step_timeout_s", 0.0)
    (measurement,) = measurer.compare([measurer.space.default])
    assert measurement.status is Status.TIMEOUT
    assert measurer.last["process"]
    with pytest.raises(BadInputError, match="3 in a row did not"):
        measurer.compare([measurer.space.default])
    monkeypatch.undo()
    (measurement,) = measurer.compare([measurer.space.default])
    assert measurement.ok and measurer.last["memory"] > 1 << 20


def test_a_deadline_ends_the_child_whatever_it_does(measurer, folder, monkeypatch):
    assert measurer.compare([measurer.space.default])[0].ok
    begun = folder / BEGUN
    begun.touch()
    monkeypatch.setattr(measurer, "deadline", 0.0)
    with pytest.raises(OutOfTime):
        measurer.compare([measurer.space.default])
    assert measurer._child is None
    # What was stopped on purpose is built as it was meant the next time.
    assert not begun.exists()


def test_a_child_of_other_code_is_refused(tmp_path, measurer, monkeypatch):
    monkeypatch.setattr("foretune.plans.measurer.code_fingerprint", lambda: "of this morning")
    with pytest.raises(BadInputError, match="start it again"):
        PlanMeasurer(f"{FILE}:products", hardware(), tmp_path, measurer.space.to_json())


def test_of_networks_that_take_turns_none_is_read_in_the_wake_of_another():
    told = []
    watch = NetworkWatch(hardware())
    found = watch.readings([lambda: told.append("a"), lambda: told.append("b")], [1.0, 1.0])
    readings = len(found[0][0])
    assert readings == len(found[1][0]) >= 3
    assert "".join(told) == "aabb" * readings
    told.clear()
    ((seconds, _),) = watch.readings([lambda: told.append("a")], [1.0])
    assert len(told) == len(seconds)


def test_what_is_no_network_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="no function"):
        PlanMeasurer(f"{FILE}:no_such", hardware(), tmp_path)
    with pytest.raises(BadInputError, match="one tensor program"):
        _worker._loaded({"model": None, "spec": "matmul:8x8x8"})


class Tensor:
    """What a network returns."""

    def __init__(self, array):
        self._array = array

    def numpy(self):
        return self._array


def test_what_differs_from_the_default_plans_output_is_not_timed():
    worker = object.__new__(_worker._Worker)
    worker.tolerance, worker.expected = 1e-4, [np.ones((4, 4), np.float32)]
    worker.network = SimpleNamespace(model=load_input(f"{FILE}:nothing"))
    found = worker._checked(lambda: [Tensor(np.full((4, 4), 1.1, np.float32))], {})
    assert found["status"] == Status.WRONG_OUTPUT.value
    assert "differs by 0.1" in found["message"]
    assert "seconds" not in found


def test_a_build_that_ended_its_process_is_not_tried_again_as_it_was(tmp_path):
    asked = []
    kernels = Kernels(hardware(), tmp_path, lambda workload: asked.append(workload.name))
    workload = load_input("matmul:8x8x8")
    (tmp_path / f"{workload.key}.begun").touch()
    symbols = kernels.symbols({"product": workload.module["main"]})
    assert symbols == {"product": f"foretune.plans.{workload.key}"}
    assert not asked
    assert kernels.built == 1 == kernels.plain(symbols)
    later = Kernels(hardware(), tmp_path)
    assert later.plain(later.symbols({"product": workload.module["main"]})) == 1
    assert Kernels(hardware(), tmp_path).symbols({"again": workload.module["main"]})
