"""``foretune graph collect``: arguments, and two plans of a real network from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretune import cli
from foretune.errors import BadInputError
from foretune.plans.command import networks_of
from foretune.plans.pack import pack
from foretune.tgraph import read_graphs
from foretune.workload import catalog

FILE = Path(__file__).with_name("networks.py")


def collect(*arguments):
    return cli.main(["graph", "collect", *map(str, arguments)])


def test_networks_are_inputs_the_catalog_and_lists(tmp_path):
    listed = tmp_path / "some.txt"
    listed.write_text("# small\na.py:one\n\nb.onnx\n")
    assert networks_of(f"resnet50, @{listed},a.py:one") == ("resnet50", "a.py:one", "b.onnx")
    assert networks_of("catalog") == tuple(catalog.names("network"))
    with pytest.raises(BadInputError, match="cannot be read"):
        networks_of(f"@{tmp_path / 'missing'}")
    with pytest.raises(BadInputError, match="must be named"):
        networks_of(" , ")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--plans", "3"], "plans >= 4"),
        (["--time", "0"], "time > 0"),
        (["--seed", "-1"], "seed"),
        (["--pack"], "go together"),
        (["-o", "elsewhere"], "go together"),
        (["--pack", "-o", "."], "is the --work-dir as well"),
        (["--pack", "-o", "elsewhere"], "holds no collection"),
        (["--networks", "@missing.txt"], "cannot be read"),
        (["--threads", "0"], "threads >= 1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_measured(
    tmp_path, monkeypatch, capsys, arguments, named
):
    monkeypatch.chdir(tmp_path)
    assert collect("--work-dir", ".", *arguments) == 2
    message = capsys.readouterr().err.strip()
    assert named in message
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_plans_are_collected_and_packed(tmp_path, capsys):
    work, out = tmp_path / "work", tmp_path / "out"
    networks = f"{FILE}:products,{FILE}:nothing,{FILE}:convolutions"
    options = ["--networks", networks, "--plans", 6, "--threads", 1, "--work-dir", work]
    assert collect(*options) == 0
    said = capsys.readouterr().err
    assert "nothing has one plan only" in said
    assert said.strip().endswith("complete")
    assert collect(*options) == 0
    assert collect("--work-dir", work, "--pack", "-o", out) == 0
    assert "0 files" in capsys.readouterr().out, "six plans say nothing"
    assert pack(work, out, fewest=2).files == 4
    assert len(read_graphs(out / "layout" / "foretune" / "random")) == 2
