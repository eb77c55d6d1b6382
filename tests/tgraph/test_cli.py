"""``foretune graph``, called as a person does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune import cli
from tests.test_cli import call
from tests.tgraph.made import layout_arrays, tile_arrays, write

pytest.importorskip("torch")

SMALL = ["--option", "epochs=2", "--option", "width=16", "--option", "trained=2"]


@pytest.fixture
def layouts(tmp_path: Path) -> Path:
    for seed in range(3):
        write(tmp_path / "layouts" / f"net{seed}.npz", layout_arrays(seed))
    return tmp_path / "layouts"


@pytest.fixture
def tiles(tmp_path: Path) -> Path:
    for seed in range(3):
        write(tmp_path / "tiles" / f"kernel{seed}.npz", tile_arrays(seed))
    return tmp_path / "tiles"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    for seed in range(3):
        write(folder / "data" / f"net{seed}.npz", layout_arrays(seed))
    assert (
        cli.main(
            ["graph", "train", "--data", str(folder / "data"), "-o", str(folder / "m.npz"), *SMALL]
        )
        == 0
    )
    return folder / "m.npz"


@pytest.fixture
def weights(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(trained, tmp_path / "model.npz"))


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("config", ["published", "corrected"])
@pytest.mark.parametrize("kind", ["layouts", "tiles"])
def test_train_then_eval_then_rank(config, kind, tmp_path, capsys, request):
    data = request.getfixturevalue(kind)
    model, result, order = (tmp_path / name for name in ("m.npz", "e.json", "r.json"))
    arguments = ["--data", str(data), "--config", config, "-o", str(model), *SMALL]
    code, out, _ = call(capsys, "graph", "train", *arguments)
    assert code == 0
    assert f"2 members for {kind[:-1]} graphs" in out
    arguments = [str(model), "--data", str(data), "--split", "none", "--json", str(result)]
    code, out, err = call(capsys, "graph", "eval", *arguments)
    assert code == 0
    assert "learned from networks of this data" in err
    found = read(result)
    assert found["schema"] == "foretune.graph/1"
    assert found["model"] == str(model)
    assert found["data"] == str(data)
    assert found["split"] == "none"
    assert len(found["graphs"]) == 3
    assert found["graphs"][0]["name"] in out
    wanted = (
        {"name", "nodes", "configurations", "tau", "tau_a", "opa"}
        | {f"slowdown{k}" for k in (1, 10, 100)}
        if kind == "layouts"
        else {"name", "nodes", "configurations", "m_tile", "slowdown1", "slowdown5", "slowdown10"}
    )
    assert all(wanted <= set(one) for one in found["graphs"])
    graph = sorted(data.iterdir())[0]
    code, out, _ = call(
        capsys, "graph", "rank", str(graph), "--weights", str(model), "--json", str(order)
    )
    assert code == 0
    assert "expected fastest first" in out
    ranked = read(order)
    assert ranked["schema"] == "foretune.graph.rank/1"
    assert sorted(ranked["order"]) == list(range(ranked["configurations"]))
    scores = np.array(ranked["scores"])
    assert (np.diff(scores[ranked["order"]]) >= 0).all()


@pytest.mark.parametrize("split", ["graph", "configuration"])
def test_a_name_is_trained_anew_on_each_part(split, layouts, tmp_path, capsys):
    result = tmp_path / "e.json"
    arguments = ["corrected", "--data", str(layouts), "--split", split, "--json", str(result)]
    code, out, err = call(capsys, "graph", "eval", *arguments, "--folds", "2", *SMALL)
    assert code == 0
    assert "training 1 of" in err
    assert "mean" in out
    found = read(result)
    assert found["split"] == split
    assert found["options"]["epochs"] == 2
    assert found["command"].startswith("foretune graph eval corrected")
    assert {"mean", "low", "high"} == set(found["metrics"]["tau"])


def test_official_test_files_are_ranked_and_left_out_of_figures(weights, layouts, tmp_path, capsys):
    made = layout_arrays(9)
    made["config_runtime"] = np.zeros_like(made["config_runtime"])
    path = write(layouts / "unmeasured.npz", made)
    assert call(capsys, "graph", "rank", str(path), "--weights", str(weights))[0] == 0
    result = tmp_path / "e.json"
    arguments = [str(weights), "--data", str(layouts), "--json", str(result)]
    code, out, _ = call(capsys, "graph", "eval", *arguments)
    assert code == 0
    assert "left out, no run times: unmeasured" in out
    assert read(result)["skipped"] == {"no run times": ["unmeasured"]}
    arguments = ["--data", str(layouts), "-o", str(tmp_path / "m.npz"), *SMALL]
    code, _, err = call(capsys, "graph", "train", *arguments)
    assert code == 0
    assert "left out, without an order of run times: unmeasured" in err


def test_one_configuration_is_ranked(weights, tmp_path, capsys):
    path = write(tmp_path / "one.npz", layout_arrays(5, configurations=1))
    code, out, _ = call(capsys, "graph", "rank", str(path), "--weights", str(weights))
    assert code == 0
    assert "1 configurations" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--data", "DIR/nowhere", "-o", "DIR/o.npz"], "there is no file or folder"),
        (["train", "--data", "DIR/empty", "-o", "DIR/o.npz"], "must hold .npz files"),
        (["train", "--data", "DIR/junk.npz", "-o", "DIR/o.npz"], "readable as .npz"),
        (["train", "--data", "DIR/both", "-o", "DIR/o.npz"], "graphs of one kind"),
        (["train", "--data", "DIR/flat.npz", "-o", "DIR/o.npz"], "two different run times"),
        (["train", "--data", "DIR/layouts", "-o", "DIR/o.txt"], "weights are an .npz file"),
        (["train", "--data", "DIR/flat.npz", "-o", "DIR/flat.npz"], "would overwrite"),
        (["train", "--data", "DIR/layouts", "-o", "DIR/o.npz", "--config", "x"], "choose one of"),
        (["train", "--data", "DIR/layouts", "-o", "DIR/o.npz", "--seed", "-1"], "seed >= 0"),
        (
            ["train", "--data", "DIR/layouts", "-o", "DIR/o.npz", "--option", "width=5"],
            "width >= 16",
        ),
        (
            ["train", "--data", "DIR/layouts", "-o", "DIR/o.npz", "--option", "colour=red"],
            "no option 'colour'",
        ),
        (["eval", "improved", "--data", "DIR/layouts"], "unknown configuration"),
        (["eval", "DIR/none.npz", "--data", "DIR/layouts"], "there is no file"),
        (["eval", "DIR/junk.npz", "--data", "DIR/layouts"], "is not a trained TGraph"),
        (["eval", "DIR/flat.npz", "--data", "DIR/layouts"], "is not a trained TGraph"),
        (["eval", "WEIGHTS", "--data", "DIR/layouts", "--split", "graph"], "judged as a whole"),
        (["eval", "WEIGHTS", "--data", "DIR/layouts", "--folds", "3"], "as it was trained"),
        (
            ["eval", "WEIGHTS", "--data", "DIR/layouts", "--option", "epochs=2"],
            "as it was trained",
        ),
        (["eval", "WEIGHTS", "--data", "DIR/flat.npz"], "with different run times"),
        (["eval", "WEIGHTS", "--data", "DIR/tile.npz"], "cannot score tile, a tile graph"),
        (["eval", "WEIGHTS", "--data", "DIR/layouts", "--json", "WEIGHTS"], "would overwrite"),
        (["eval", "corrected", "--data", "DIR/layouts", "--split", "none"], "unknown split"),
        (["eval", "corrected", "--data", "DIR/layouts", "--folds", "1"], "folds >= 2"),
        (["eval", "corrected", "--data", "DIR/flat.npz"], "with different run times"),
        (["rank", "DIR/nowhere.npz", "--weights", "WEIGHTS"], "there is no file or folder"),
        (["rank", "DIR/layouts", "--weights", "WEIGHTS"], "one graph is ranked at a time"),
        (["rank", "DIR/tile.npz", "--weights", "WEIGHTS"], "a tile graph"),
        (["rank", "DIR/flat.npz", "--weights", "DIR/none.npz"], "there is no file"),
    ],
)
def test_bad_input_is_one_line_that_says_what_to_do(
    arguments, said, weights, layouts, tmp_path, capsys
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "junk.npz").write_bytes(b"junk")
    write(tmp_path / "both" / "a.npz", layout_arrays(1))
    write(tmp_path / "both" / "b.npz", tile_arrays(1))
    write(tmp_path / "tile.npz", tile_arrays(1))
    flat = layout_arrays(1)
    flat["config_runtime"] = np.full_like(flat["config_runtime"], 5)
    write(tmp_path / "flat.npz", flat)
    given = [
        text.replace("DIR", str(tmp_path)).replace("WEIGHTS", str(weights)) for text in arguments
    ]
    code, out, err = call(capsys, "graph", *given)
    assert code == 2
    assert out == ""
    (line,) = [line for line in err.splitlines() if line.startswith("foretune:")]
    assert said in line


def test_help_needs_no_pytorch():
    code = (
        "import sys; sys.modules['torch'] = None; from foretune.cli import main\n"
        "try: main(['graph', '--help'])\n"
        "except SystemExit as stop: sys.exit(stop.code or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("train", "eval", "rank"):
        assert name in done.stdout


def test_the_program_itself_runs(layouts, tmp_path):
    given = ["graph", "train", "--data", str(layouts), "-o", str(tmp_path / "m.npz"), *SMALL]
    done = subprocess.run(
        [sys.executable, "-m", "foretune", *given], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr
    assert (tmp_path / "m.npz").is_file()
