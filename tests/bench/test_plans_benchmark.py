"""What the benchmark of plans joins, judges and prints, on made files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import planned, plans, tgraph
from benchmarks._tgraph import (
    TREES,
    ceiling,
    changed_scores,
    judged,
    read_networks,
    resolvable_tau,
    summed,
)
from benchmarks.plan_networks import NETWORKS, kin_of
from foretune.errors import BadInputError
from foretune.tgraph.splits import configuration_keys
from tests.tgraph.made import layout_arrays, layout_graph, write

pytest.importorskip("torch")


def written(folder: Path, networks: int = 4, made: str = "alike") -> Path:
    """Files as of a packed collection: 2 default plans, 24 random ones, 20 others."""
    for seed in range(networks):
        arrays = layout_arrays(seed, configurations=46)
        for origin, chosen in (("random", range(26)), ("evolved", [0, 1, *range(26, 46)])):
            rows = np.array(chosen)
            names = np.array(["default", "tvm", *[origin] * (len(rows) - 2)])
            own: dict[str, Any] = {
                **arrays,
                "node_config_feat": arrays["node_config_feat"][rows],
                "config_runtime": arrays["config_runtime"][rows],
                "config_origin": names,
                "config_compared": np.arange(len(rows)) % 5 == 0,
                "config_quiet": np.full(len(rows), 3),
                "config_alone": arrays["config_runtime"][rows],
                "default_readings": np.array([100, 101, 99, 100]),
                "tvm_is_default": np.array(False),
                "anchor_config_feat": arrays["node_config_feat"][:16],
                "made": np.array(json.dumps({"hardware": made})),
            }
            write(folder / origin / f"net{seed}.npz", own)
    return folder


def test_both_collections_of_a_network_are_one_graph(tmp_path: Path) -> None:
    networks = read_networks(written(tmp_path))
    assert [network.graph.name for network in networks] == [f"net{n}" for n in range(4)]
    for seed, network in enumerate(networks):
        whole = layout_arrays(seed, configurations=46)
        distinct = np.unique(whole["node_config_feat"], axis=0)
        rows = network.part.rows
        assert len(network.graph.configurations) == len(network.origin) == 48
        assert len(rows) == len(distinct)
        assert network.origin[rows[:2]].tolist() == ["default", "tvm"]
        assert network.part.runtime[0] == whole["config_runtime"][0]
        keys = list(map(bytes, network.graph.configurations.keys[rows]))
        own = configuration_keys(layout_graph(seed, configurations=46))
        runtime = dict(zip(map(bytes, own), whole["config_runtime"].tolist(), strict=True))
        assert network.part.runtime.tolist() == [runtime[key] for key in keys]
        assert len(summed(network)) == len(rows)
        assert changed_scores(network)[0] == 0 < changed_scores(network)[1]
        assert 0.5 < (ceiling(network.part.runtime, network.noise) or 0) < 1


def test_losses_count_from_the_best_plan_that_was_compared(tmp_path: Path) -> None:
    network = read_networks(written(tmp_path, 1))[0]
    rows, runtime = network.part.rows, network.part.runtime
    best = runtime[network.compared[rows]].min()
    found = judged(network, runtime)
    assert found["tau"] == pytest.approx(1.0) and found["tau_random"] == pytest.approx(1.0)
    assert found["pick"] == pytest.approx(runtime.min() / best - 1)
    assert found["default"] == pytest.approx(runtime[0] / best - 1)
    drawn = runtime[network.origin[rows] == "random"]
    assert found["random"] == pytest.approx(drawn.mean() / best - 1)
    backwards = judged(network, -runtime)
    assert backwards["tau"] == pytest.approx(-1.0)
    assert backwards["pick"] == pytest.approx(runtime.max() / best - 1)


def test_plans_of_one_network_are_of_one_machine(tmp_path: Path) -> None:
    written(tmp_path / "a", 2)
    written(tmp_path / "b", 1, made="another")
    with pytest.raises(BadInputError, match="two kinds"):
        read_networks(tmp_path)
    with pytest.raises(BadInputError, match="no file or folder"):
        read_networks(tmp_path / "empty")


def test_every_network_is_judged_by_models_of_others_and_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(written(tmp_path / "data")), "--work-dir", str(tmp_path / "cells")]
    options += ["--folds", "2", "--seeds", "1", "--epochs", "2", "--width", "16", "--batch", "16"]
    plans.main([*options, "--part", "folds"])
    told = capsys.readouterr()
    for name in ("corrected", TREES, "TVM's own plan", "net3", "asked: tau 0.6"):
        assert name in told.out
    cells = sorted((tmp_path / "cells").glob("*/*"))
    assert "a random plan" in told.out
    assert len(cells) == 2 * len(plans.SHOWN)
    plans.main([*options, "--part", "folds"])
    assert sorted((tmp_path / "cells").glob("*/*")) == cells
    # Other data are other cells.
    written(tmp_path / "data", 5)
    plans.main([*options, "--part", "folds"])
    assert len(list((tmp_path / "cells").glob("*/*"))) == 4 * len(plans.SHOWN)


def test_what_resembles_each_other_is_in_one_fold(tmp_path: Path) -> None:
    assert kin_of("resnet18_64") == kin_of("training_resnet34") == "resnet"
    assert (
        kin_of("training_mobilenet_v3") == kin_of("mobilenet_v2_224") != kin_of("mobilenet_v1_64")
    )
    assert kin_of("training_densenet") == "training_densenet"
    assert len({kin_of(name) for name in NETWORKS}) >= 15
    networks = read_networks(written(tmp_path))
    renamed = [
        replace(network, graph=replace(network.graph, name=name))
        for network, name in zip(
            networks, ("bert_16", "albert_64", "llama_16", "unknown"), strict=True
        )
    ]
    folds = plans.folds_of(renamed, 3)
    assert sorted(at for fold in folds for at in fold) == [0, 1, 2, 3]
    assert any({0, 1} <= set(fold) for fold in folds)
    with pytest.raises(BadInputError, match="two kinds"):
        plans.folds_of(renamed[:2], 3)


def test_a_network_that_was_not_compared_is_not_judged(tmp_path: Path) -> None:
    network = read_networks(written(tmp_path, 1))[0]
    alone = replace(network, compared=network.origin == "default")
    with pytest.raises(BadInputError, match="collect it to its end"):
        judged(alone, alone.part.runtime)
    missing = replace(network, origin=np.where(network.origin == "tvm", "random", network.origin))
    assert judged(missing, missing.part.runtime)["tvm"] is None
    same = judged(replace(missing, tvm_is_default=True), missing.part.runtime)
    assert same["tvm"] == same["default"]


def test_what_a_plan_brings_is_told_network_by_network() -> None:
    def one(ratio: float, chosen: bool) -> dict[str, Any]:
        plans = {"chosen": chosen, "measured": 8, "seconds": 31.0, "ratio": 1.1 if chosen else None}
        return {
            "ratio": {"median": ratio, "low": ratio, "high": ratio},
            "median": {"a": 0.01, "b": 0.01 * ratio}, "plans": plans,
        }  # fmt: skip

    results = {"fast": one(1.21, True), "same": one(1.0, False), "bad": {"error": "E: no"}}
    told = planned.section({"networks": results})
    assert "1.100 times as fast" in told.answer and "goal 1.03: reached" in told.answer
    assert "another plan was taken for 1 of them" in told.answer and "- bad: E: no" in told.details
    assert "missed" in planned.section({"networks": {"same": one(1.0, False)}}).answer
    assert "No network" in planned.section({"networks": {"bad": {"error": "E"}}}).answer


def test_official_files_are_judged_one_by_one_and_switches_on_the_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, count in ((0, 60), (1, 90)):
        write(tmp_path / "data" / f"net{seed}.npz", layout_arrays(seed, configurations=count))
    monkeypatch.setattr(tgraph, "ABLATIONS", {"corrected, no edges": None})
    given = ["--data", str(tmp_path / "data"), "--work-dir", str(tmp_path / "cells")]
    given += ["--seeds", "1", "--epochs", "2", "--width", "16", "--batch", "16"]
    tgraph.main(given)
    printed = capsys.readouterr().out
    assert "On net1 `corrected` has a tau of" in printed and "#### net0" in printed
    assert "#### Switches, on net1" in printed and "corrected, no edges" in printed
    assert str(tmp_path) not in printed.split("- Command: ")[1].split("--work-dir")[0]


def test_what_cannot_be_told_apart_is_left_out_of_a_tau() -> None:
    runtime = np.array([1.0, 1.001, 1.5])
    assert resolvable_tau(np.array([2.0, 1.0, 3.0]), runtime) == 1.0
    assert resolvable_tau(np.array([3.0, 2.0, 1.0]), runtime) == -1.0
