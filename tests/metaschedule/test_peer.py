from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretune import _child
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.metaschedule import (
    PEERS,
    PeerError,
    PeerOptions,
    _peer,
    candidate_of_trace,
    peer_options,
    run_peer,
    run_peer_on_model,
)
from foretune.space import Space
from foretune.tuning import prepare
from tests.metaschedule.programs import matmul

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_the_peer_measures_in_order_and_its_candidates_can_be_replayed(
    hardware: Hardware,
) -> None:
    counts: list[int] = []
    options = PeerOptions(num_trials_per_iter=4, num_warmup_samples=4, remove_import_trap=True)
    result = run_peer(matmul(), hardware, 4, 3, options, progress=counts.append)
    assert [trial.index for trial in result.trials] == [1, 2, 3, 4]
    elapsed = [trial.elapsed_s for trial in result.trials]
    assert elapsed == sorted(elapsed)
    assert elapsed[0] > 0 and elapsed[-1] <= result.elapsed_s
    assert counts == sorted(counts) and counts[-1] == 4
    space = Space.generate(matmul(), hardware)
    for trial in result.trials:
        assert (trial.best_s is None) == bool(trial.message)
        assert candidate_of_trace(trial.trace, space).apply() is not None


def test_the_peers_kernels_get_every_thread(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, env: dict[str, str], **__: object) -> None:
        raise RuntimeError(env["TVM_NUM_THREADS"])

    monkeypatch.setattr(_child.subprocess, "Popen", refuse)
    with pytest.raises(RuntimeError, match=r"^3$"):
        run_peer(matmul(), replace(hardware, threads=3), 4, 0)


def test_defaults_are_tvms_own_and_the_notes_say_what_they_are() -> None:
    assert peer_options("metaschedule") == PeerOptions(note=PEERS["metaschedule"].note)
    assert "partly random search" in peer_options("metaschedule").note
    assert peer_options("metaschedule-warm").num_warmup_samples == 16
    early = peer_options("metaschedule-early")
    assert (early.num_trials_per_iter, early.num_warmup_samples) == (8, 8)
    assert "all but its first 8 trials are guided" in early.note
    with pytest.raises(BadInputError, match="metaschedule-warm"):
        peer_options("ansor")


def test_a_failed_peer_says_its_last_words(hardware: Hardware) -> None:
    broken = replace(matmul(), module_json="not a module")
    with pytest.raises(PeerError, match=r"measured 0 of 4 candidates .*exit status"):
        run_peer(broken, hardware, 4, 0, PeerOptions(remove_import_trap=True))


def test_a_late_peer_is_killed(hardware: Hardware) -> None:
    with pytest.raises(PeerError, match=r"no end after 0\.5 s"):
        run_peer(matmul(), hardware, 4, 0, timeout_s=0.5)


def _stands_in(status: int | None) -> Any:
    """Takes the place of the child process: two trials of two tasks, and half a line."""

    def run(request: dict[str, Any], *_: object) -> int | None:
        log = Path(request["tasks"]).with_name("trials.jsonl")
        Path(request["tasks"]).write_text(json.dumps(["a", "b"]))
        trial = {"build_error": None, "run_error": None, "seconds": [2.0, 4.0], "trace": []}
        lines = [trial | {"task": task, "monotonic": time.monotonic()} for task in (1, 0)]
        log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"task": 1, "mono')
        log.with_name("output.txt").write_text("last words")
        return status

    return run


@pytest.mark.parametrize("status", [None, 0], ids=["time over", "nothing left"])
def test_a_peer_on_a_model_tells_the_task_of_every_trial(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    monkeypatch.setattr(_peer, "_run", _stands_in(status))
    result = run_peer_on_model("net", hardware, 60.0, 0)
    assert [(trial.workload, trial.best_s) for trial in result.trials] == [("b", 3.0), ("a", 3.0)]


def test_a_peer_that_dies_on_a_model_says_its_last_words(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_peer, "_run", _stands_in(1))
    with pytest.raises(PeerError, match=r"of 60 s on 'net' \(exit status 1\): last words"):
        run_peer_on_model("net", hardware, 60.0, 0)


@pytest.mark.slow
def test_the_peer_tunes_all_tasks_of_a_model_until_its_time_is_over(
    hardware: Hardware, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "import torch\n\n"
        "def make():\n"
        "    layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)\n"
        "    return torch.nn.Sequential(*layers), (torch.randn(4, 16),)\n"
    )
    options = PeerOptions(num_trials_per_iter=4, num_warmup_samples=4, remove_import_trap=True)
    result = run_peer_on_model(f"{tmp_path}/net.py:make", hardware, 60.0, 0, options)
    keys = {w.key: w for w in prepare(f"{tmp_path}/net.py:make", hardware).workloads}
    assert {trial.workload for trial in result.trials} == set(keys)
    assert all(trial.elapsed_s <= result.elapsed_s < 90 for trial in result.trials)
    for trial in result.trials[:4]:
        space = Space.generate(keys[trial.workload], hardware)
        assert candidate_of_trace(trial.trace, space).apply() is not None
