"""What a second of tuning and a store hold: throughput, stores, tables of others, shipped files."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import portfolio, proposers, replay, sources, stores, throughput
from foretune.testing.rankers import training_groups
from tests.bench.test_pages import WHERE

pytestmark = pytest.mark.slow


def test_overhead_is_what_neither_compiled_nor_ran() -> None:
    spent = {"build_s": 5.0, "measure_s": 3.0, "canary_s": 1.0, "search_s": 0.5}
    assert throughput.overhead(10.0, spent) == pytest.approx(0.1)


def test_throughput_compares_with_and_without_the_import_trap() -> None:
    runs = [
        {"workload": "w", "side": side, "trials_per_s": rate, "failed": 0, "overhead": 0.05,
         "spent_s": {"build_s": 1.0}, "trials": 64}
        for side, rate in zip(throughput.SIDES, (8.0, 1.0, 2.0), strict=True)
    ]  # fmt: skip
    found = throughput.section({"runs": runs})
    assert found.answer.startswith("8.00 times") and "4.00 times" in found.answer
    assert "5.0%" in found.details


def test_records_that_several_write_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stores, "conditions", lambda *_: SimpleNamespace(end=lambda: WHERE))
    stores.main(["--writers", "2", "--records", "40"])
    printed = capsys.readouterr().out
    assert "How many records do 2 tuners" in printed and "all were there" in printed


def test_the_state_of_ours_changes_with_weights(tmp_path: Path) -> None:
    more = ["foretune.search.mcts"]
    (tmp_path / "joined-llvm.npz").write_bytes(b"one")
    first, other = sources.state_of_ours(tmp_path), sources.state_of_ours(tmp_path, more)
    (tmp_path / "joined-llvm.json").write_text("{}")
    assert sources.state_of_ours(tmp_path) == first, "provenance does not search"
    (tmp_path / "mlp-llvm.npz").write_bytes(b"of another model")
    assert sources.state_of_ours(tmp_path) == first, "nor does what the default does not read"
    assert sources.state_of_ours(tmp_path, more) != other
    (tmp_path / "joined-llvm.npz").write_bytes(b"two")
    second = sources.state_of_ours(tmp_path)
    (tmp_path / "joined-llvm.npz").unlink()
    assert len({first, second, sources.state_of_ours(tmp_path)}) == 3


def kernel_tuner_cache(path: Path) -> None:
    entries = {}
    for block, tile in itertools.product((16, 32, 64, 128), (1, 2, 4)):
        time = "RuntimeFailedConfig" if (block, tile) == (128, 4) else 1.0 + abs(block - 64) / tile
        entries[f"{block},{tile}"] = {"block": block, "tile": tile, "time": time}
    cache = {
        "device_name": "made up",
        "kernel_name": "convolution",
        "problem_size": [64, 64],
        "tune_params_keys": ["block", "tile"],
        "tune_params": {"block": [16, 32, 64, 128], "tile": [1, 2, 4]},
        "cache": entries,
    }
    path.write_bytes(gzip.compress(json.dumps(cache).encode()))


def test_replay_shows_random_search_beside_the_strategies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel_tuner_cache(tmp_path / "cache.json.gz")
    replay.main(["--trials", "8", "--seeds", "2", "--others", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "random search" in printed and "evolutionary + gbdt:scratch" in printed


def test_replay_without_any_data_says_so(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no tables"):
        replay.main(["--others", str(tmp_path / "no")])


def test_files_that_ship_say_what_they_were_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = training_groups(4)
    monkeypatch.setattr(proposers, "read_data", lambda paths: SimpleNamespace(groups=groups))
    monkeypatch.setattr(proposers, "refuse_excluded", lambda groups: None)
    monkeypatch.setattr(portfolio.portfolios, "file_of", lambda kind: tmp_path / "p.json.gz")
    portfolio.main(["--train"])
    told = json.loads((tmp_path / "p.json").read_text())
    assert told["command"] == "python -m benchmarks.portfolio --train"
    assert told["groups"] == len(groups) and told["programs"] > 0
    assert told["data"] == ["data/cpu"] and (tmp_path / "p.json.gz").exists()
