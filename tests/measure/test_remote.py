"""Devices elsewhere, as real servers and trackers that are killed, started again, and strange."""

from __future__ import annotations

import dataclasses
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from foretune import _tvm
from foretune._child import environment
from foretune.errors import BadInputError, ForetuneError
from foretune.hardware import Hardware, probe, why_not_here
from foretune.measure import (
    Measurement,
    RemoteMeasurer,
    Status,
    _devices,
    check_devices,
    parse_devices,
    place_of,
)
from foretune.measure._device import Patience
from foretune.space import Space
from foretune.testing import check_measurer
from tests.measure.farm import Serving, free_port, strange_server, wait_for
from tests.measure.misbehaviour import Trick, TrickSketch
from tests.measure.policies import OpenPolicy
from tests.measure.programs import matmul
from tests.measure.remote_tricks import BUILDER

pytestmark = pytest.mark.machine

POLICY = OpenPolicy(
    workers=1,
    run_timeout_s=3.0,
    build_timeout_s=30.0,
    budget_s=0.01,
    max_rereads=0,
    cut_factor=1e6,
    compare_rounds=2,
    compare_extra_rounds=0,
)


class Farm:
    """A tracker with one device, and what measures on it."""

    def __init__(self, key: str = "board") -> None:
        self.tracker = free_port()
        self.key = key
        self.first = Serving(key, own_tracker=self.tracker)

    @property
    def url(self) -> str:
        return f"rpc://127.0.0.1:{self.tracker}/{self.key}"


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    farm = Farm()
    yield farm
    farm.first.end()


def hardware_at(*urls: str) -> Hardware:
    return dataclasses.replace(probe(threads=1), place=place_of(parse_devices(urls)))


def measurer_at(*urls: str, builder: str = BUILDER, reboot_s: float = 60.0) -> RemoteMeasurer:
    addresses = parse_devices(urls)
    return RemoteMeasurer(hardware_at(*urls), addresses, POLICY, builder, Patience(reboot_s))


def tricks(url: str, *modes: str, untuned: bool = False) -> list[Trick]:
    sketch = TrickSketch(matmul(32), hardware_at(url), is_untuned=untuned)
    return [Trick(sketch, mode, number) for number, mode in enumerate(modes)]


def measure(measurer: RemoteMeasurer, wanted: list[Trick]) -> dict[str, list[Measurement]]:
    found: dict[str, list[Measurement]] = {}
    seen = []
    for trick, result in measurer.measure(wanted):  # type: ignore[arg-type]
        seen.append(trick)
        found.setdefault(trick.mode, []).append(result)  # type: ignore[attr-defined]
    assert sorted(t.key for t in seen) == sorted(t.key for t in wanted)
    return found


def test_candidates_are_built_here_and_checked_and_timed_there(
    farm: Farm, rng: np.random.Generator
) -> None:
    hardware = hardware_at(farm.url)
    space = Space.generate(matmul(48), hardware)
    candidates = [space.untuned, *space.sample(rng, 3)]
    with RemoteMeasurer(hardware, parse_devices([farm.url]), POLICY) as measurer:
        results = dict(measurer.measure(candidates))
        compared = measurer.compare(candidates[:2])
        told = measurer.environment()
    assert set(results) == set(candidates)
    for result in [*results.values(), *compared]:
        assert result.ok and result.max_error == 0.0, result
        assert result.device == f"127.0.0.1:{farm.first.port}"
        assert Measurement.from_json(result.to_json()) == result
    assert all(len(result.seconds) >= POLICY.compare_rounds for result in compared)
    (baseline,) = told["devices"].values()
    assert baseline["canary_s"] > 0 and baseline["threads"] == 1
    assert baseline["tvm"] == _tvm.versions()["tvm"] and baseline["asked"] == farm.url
    assert told["policy"]["cold_weights"] is False


def test_what_programs_do_there_becomes_their_status_and_the_device_is_there_again(
    farm: Farm,
) -> None:
    modes = ("good", "writes_nothing", "overwrites_input", "build_raises", "crashes", "good")
    with measurer_at(farm.url) as measurer:
        found = measure(measurer, tricks(farm.url, *modes))
    assert [result.status for result in found["good"]] == [Status.OK] * 2
    assert found["writes_nothing"][0].status is Status.WRONG_OUTPUT
    assert "was overwritten" in found["overwrites_input"][0].message
    assert found["build_raises"][0].status is Status.COMPILE_ERROR
    assert found["crashes"][0].status is Status.CRASH
    assert "2 sessions on devices ended while it ran" in found["crashes"][0].message


@pytest.mark.slow
def test_a_program_that_hangs_there_is_given_up_and_frees_the_device(farm: Farm) -> None:
    with measurer_at(farm.url) as measurer:
        found = measure(measurer, tricks(farm.url, "hangs", "good", "good"))
    assert found["hangs"][0].status is Status.TIMEOUT
    assert "running took longer" in found["hangs"][0].message
    assert [result.status for result in found["good"]] == [Status.OK] * 2


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again_loses_no_candidate() -> None:
    server = Serving()
    url = f"rpc://127.0.0.1:{server.port}"
    results: list[Measurement] = []
    try:
        with measurer_at(url) as measurer:
            wanted: Any = tricks(url, *["good"] * 8)
            for _, result in measurer.measure(wanted):
                results.append(result)
                if len(results) == 2:
                    server.end(signal.SIGKILL)
                    server = Serving(port=server.port)
    finally:
        server.end()
    assert [result.status for result in results] == [Status.OK] * 8


@pytest.mark.slow
def test_a_comparison_survives_the_end_of_its_session(farm: Farm) -> None:
    with measurer_at(farm.url) as measurer:
        wanted: Any = tricks(farm.url, "good", "crashes", "good")
        first, crashed, last = measurer.compare(wanted)
    assert crashed.status is Status.CRASH
    assert first.ok and last.ok and first.device == last.device


@pytest.mark.slow
def test_a_tracker_that_is_killed_and_started_again_is_asked_again() -> None:
    farm = Farm()
    results: list[Measurement] = []
    again = farm.first
    try:
        with measurer_at(farm.url) as measurer:
            wanted: Any = tricks(farm.url, *["good"] * 6)
            for _, result in measurer.measure(wanted):
                results.append(result)
                if len(results) == 2:
                    farm.first.end(signal.SIGKILL)
                    again = Serving(farm.key, own_tracker=farm.tracker, port=farm.first.port)
    finally:
        again.end()
    assert [result.status for result in results] == [Status.OK] * 6


@pytest.mark.slow
def test_several_devices_share_the_work_and_one_that_stays_away_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = Serving(), Serving()
    urls = [f"rpc://127.0.0.1:{server.port}" for server in (first, second)]
    both = ",".join(urls)
    try:
        with caplog.at_level(logging.WARNING), measurer_at(both, reboot_s=0.5) as measurer:
            assert hardware_at(both).place == hardware_at(urls[1], urls[0]).place
            found = measure(measurer, tricks(both, *["good"] * 12))["good"]
            assert len({result.device for result in found}) == 2
            compared: Any = tricks(both, "good", "good")
            assert len({result.device for result in measurer.compare(compared)}) == 1
            second.end()
            found = measure(measurer, tricks(both, *["good"] * 12))["good"]
            assert all(result.ok for result in found)
            while len(measurer.names) > 1:
                measure(measurer, tricks(both, "good"))
            left_out = [line for line in caplog.messages if "left out from now on" in line]
            assert len(left_out) == 1 and urls[1] in left_out[0]
            first.end()
            with pytest.raises(ForetuneError, match=r"no device is left .*run the same command"):
                while True:
                    measure(measurer, tricks(both, "good"))
    finally:
        first.end()
        second.end()


@pytest.mark.slow
def test_a_device_whose_canary_stays_far_slower_is_left_out(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_devices, "_PAUSES_S", (0.05,))
    with measurer_at(farm.url) as measurer:
        for baseline in measurer._devices.baselines.values():
            baseline["canary_s"] /= 1e6
        with pytest.raises(ForetuneError, match="failed its own baseline 3 times: its canary"):
            measure(measurer, tricks(farm.url, "crashes", "good"))


@pytest.mark.slow
def test_a_device_on_which_untuned_programs_fail_is_left_out(farm: Farm) -> None:
    wrong = tricks(farm.url, *["writes_nothing"] * 3, untuned=True)
    with (
        measurer_at(farm.url) as measurer,
        pytest.raises(ForetuneError, match="the untuned program fails there"),
    ):
        measure(measurer, wrong)


@pytest.mark.slow
def test_the_contract_of_measurers(farm: Farm) -> None:
    modes = ("good", "writes_nothing", "good")
    check_measurer(lambda: measurer_at(farm.url), tricks(farm.url, *modes))


@pytest.mark.slow
def test_servers_and_trackers_of_tvm_do_as_well() -> None:
    tracker, port = free_port(), free_port()
    commands = [
        ["rpc_tracker", "--host", "127.0.0.1", "--port", str(tracker), "--port-end",
         str(tracker + 1), "--silent"],
        ["rpc_server", "--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1),
         "--tracker", f"127.0.0.1:{tracker}", "--key", "plain", "--silent"],
    ]  # fmt: skip
    processes = []
    url = f"rpc://127.0.0.1:{tracker}/plain"
    try:
        for (module, *rest), listening in zip(commands, (tracker, port), strict=True):
            command = [sys.executable, "-m", f"tvm.exec.{module}", *rest]
            processes.append(subprocess.Popen(command, env=environment(1), start_new_session=True))
            wait_for(listening)
        while True:
            try:
                check_devices(parse_devices([url]))
                break
            except BadInputError:  # it is not announced yet
                assert all(process.poll() is None for process in processes)
        with measurer_at(url) as measurer:
            found = measure(measurer, tricks(url, "good", "writes_nothing"))
            (baseline,) = measurer.environment()["devices"].values()
        assert found["good"][0].ok and found["writes_nothing"][0].status is Status.WRONG_OUTPUT
        assert baseline["threads"] == 1 and baseline["machine"]
    finally:
        for process in processes:
            # What it started is of no session of its own.
            subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=False)
            process.kill()
            process.wait()


def test_a_tracker_that_is_not_there_and_a_key_that_it_does_not_know(farm: Farm) -> None:
    with pytest.raises(BadInputError, match=r"needs a tracker, but no tracker can be reached at"):
        check_devices(parse_devices([f"rpc://127.0.0.1:{free_port()}/board"]))
    with pytest.raises(BadInputError, match=r"key 'pi6' must be at the tracker .* it knows board"):
        check_devices(parse_devices([f"rpc://127.0.0.1:{farm.tracker}/pi6"]))
    with pytest.raises(BadInputError, match=r"needs a server, but none can be reached at"):
        check_devices(parse_devices([f"rpc://127.0.0.1:{free_port()}"]))


@pytest.mark.parametrize(
    ("facts", "most_bytes", "message"),
    [
        ({"machine": "riscv64"}, 0, r"is code for .*, but the device .* is riscv64: give --target"),
        pytest.param(
            {"tvm": "0.11.0"}, 0, r"has 0\.11\.0: pip install apache-tvm==", marks=pytest.mark.slow
        ),
        pytest.param(
            {}, 4096, r"4096 of \d+ bytes arrived: make room", marks=pytest.mark.slow, id="disk"
        ),
    ],
)
def test_a_device_that_does_not_fit_is_refused_in_one_line(
    facts: dict[str, str], most_bytes: int, message: str
) -> None:
    with (
        strange_server(facts, most_bytes) as port,
        pytest.raises(BadInputError, match=message) as caught,
    ):
        measurer_at(f"rpc://127.0.0.1:{port}")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_too_many_threads_for_the_device_are_refused_with_the_number_that_fits(farm: Farm) -> None:
    addresses = parse_devices([farm.url])
    wide = dataclasses.replace(hardware_at(farm.url), threads=3)
    with pytest.raises(BadInputError, match=r"runs kernels on 1: pass --threads 1"):
        RemoteMeasurer(wide, addresses, POLICY)


@pytest.mark.slow
def test_a_full_disk_here_is_one_clear_error(farm: Farm) -> None:
    with (
        measurer_at(farm.url) as measurer,
        pytest.raises(ForetuneError, match=r"there is no room .*No space left.*set TMPDIR"),
    ):
        measure(measurer, tricks(farm.url, "has_no_room"))


def test_devices_are_not_taken_for_this_machine() -> None:
    here, there = probe(threads=1), hardware_at("rpc://farm:9190/board")
    assert here.key != there.key
    assert "over RPC (board)" in str(why_not_here(there))
    assert "place" not in here.to_json()
    assert Hardware.from_json(there.to_json()) == there
    with pytest.raises(BadInputError, match=r"hardware\.place == place_of"):
        RemoteMeasurer(here, parse_devices(["rpc://farm:9190/board"]))
