from __future__ import annotations

from dataclasses import replace

import pytest

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
)
from foretune.space import Space
from tests.metaschedule.programs import matmul


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
    assert counts == sorted(counts)
    space = Space.generate(matmul(), hardware)
    for trial in result.trials:
        assert (trial.best_s is None) == bool(trial.message)
        assert candidate_of_trace(trial.trace, space).apply() is not None


def test_the_peers_kernels_get_every_thread(
    hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, env: dict[str, str], **__: object) -> None:
        raise RuntimeError(env["TVM_NUM_THREADS"])

    monkeypatch.setattr(_peer.subprocess, "Popen", refuse)
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
