"""The commands that collect data, learn from it and judge what was learned."""

from __future__ import annotations

import argparse
import json
import re
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretune import cost
from foretune.cost import Needs
from foretune.dataset import Group, write_dataset
from foretune.errors import BadInputError, unknown_name
from foretune.evaluate import read_data
from foretune.hardware import Hardware
from foretune.records import Journal
from foretune.workload.training import Excluded
from tests.evaluate.support import Hinted, write_log
from tests.test_cli import call


@pytest.fixture(autouse=True)
def nothing_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Excluded(frozenset(), frozenset())
    monkeypatch.setattr("foretune.workload.training.excluded", lambda: known)


def create(name: str, *, seed: int = 0, **options: Any) -> Hinted:
    del seed
    if name not in _NAMES:
        raise unknown_name("ranker", name, _NAMES)
    if name == "reader":
        return Reader(**options)
    if options.keys() - {"sign"}:
        raise BadInputError(f"hinted has no option {min(options.keys() - {'sign'})!r}: choose sign")
    return Interrupted() if name == "interrupted" else Hinted(**options)


_NAMES = ("hinted", "interrupted", "reader")


class Interrupted(Hinted):
    def fit(self, *_args: Any, **_options: Any) -> NoReturn:
        raise KeyboardInterrupt


class Reader(Hinted):
    """Reads programs, and so keeps features."""

    needs = Needs(programs=True, options={"cache": str | None})
    folders: ClassVar[list[Path | None]] = []

    def __init__(self, cache: Path | None = None) -> None:
        super().__init__()
        self.folders.append(cache)


@pytest.fixture
def hinted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rankers that need no training."""
    fake = types.ModuleType("foretune.cost.rankers")
    fake.create = create  # type: ignore[attr-defined]
    fake.load = Hinted.load  # type: ignore[attr-defined]
    known = {"reader": Reader.needs}
    fake.needs = lambda name: known.get(name, Needs())  # type: ignore[attr-defined]
    fake.descriptions = lambda: {"hinted": "reads the answer."}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.setattr(cost, "rankers", fake, raising=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten workloads on one device."""
    return write_log(tmp_path / "cpu.json", range(10))


BAD = [
    ("eval hinted --data DIR/nowhere", "no data at"),
    ("eval hinted --data DIR/words.txt", "words.txt"),
    ("eval hinted --data ,", "comma-separated"),
    ("eval hinted", "--data"),
    ("eval --data LOG", "MODEL"),
    ("eval luck --data LOG", "hinted"),
    ("eval hinted --data LOG --split luck", "hardware, hardware_seen, kind, workload"),
    ("eval hinted --data LOG --split within_task", "never split by row"),
    ("eval hinted --data LOG --split none", "nothing is left to learn from"),
    ("eval hinted --data LOG --folds 11", "2 <= folds <= workloads"),
    ("eval hinted --data LOG --folds 1", "2 <= folds <= workloads"),
    ("eval hinted --data LOG --split kind --folds 3", "2 operator kinds"),
    ("eval hinted --data LOG --split hardware", "two devices"),
    ("eval hinted --data LOG --folds many", "--folds"),
    ("eval hinted --data LOG --seeds 0", "seeds >= 1"),
    ("eval hinted --data LOG --programs 1", "programs >= 2"),
    ("eval hinted --data LOG --programs all", "--programs"),
    ("eval hinted --data LOG --exclude ,", "comma-separated"),
    ("eval hinted --data LOG --hardware t4", "choose of cpu"),
    ("eval hinted --data LOG --exclude softmax", "softmax"),
    ("eval hinted --data LOG --exclude *", "no group is left"),
    ("eval hinted --data LOG --option sign", "NAME=VALUE"),
    ("eval hinted --data LOG --option seed=3", "a seed"),
    ("eval hinted --data LOG --option depth=6", "no option 'depth'"),
    ("eval hinted --data LOG --json DIR", "cannot be written"),
    ("eval DIR/none.npz --data LOG", "there is no file"),
    ("eval DIR/none.npz --data LOG --split workload", "trained ranker"),
    ("eval DIR/none.npz --data LOG --folds 5", "folds=5"),
    ("eval DIR/none.npz --data LOG --programs 5", "programs=5"),
    ("eval DIR/none.npz --data LOG --option sign=1", "leave them out"),
    ("eval DIR/none.npz --data LOG --features-cache DIR/f", "leave them out"),
    ("train hinted --data LOG", "-o"),
    ("train hinted --data LOG -o DIR/w.bin", ".npz file"),
    ("train hinted --data DIR/nowhere -o DIR/w.npz", "no data at"),
    ("train hinted --data DIR/nowhere -o DIR/foreign.npz", "foreign.json, but that file is"),
    ("train hinted --data DIR/nowhere -o DIR/folder.npz", "folder.json, but that file is"),
    ("train luck --data LOG -o DIR/w.npz", "hinted"),
    ("train hinted --data LOG -o DIR/w.npz --seed -1", "seed >= 0"),
    ("train hinted --data LOG -o DIR/w.npz --programs 1", "programs >= 2"),
    ("train hinted --data LOG -o DIR/w.npz --validation 1", "validation < 1"),
    ("train hinted --data LOG -o DIR/w.npz --validation nan", "validation < 1"),
    ("train hinted --data LOG -o DIR/w.npz --hardware t4", "choose of cpu"),
    ("train hinted --data LOG -o DIR/w.npz --option sign", "NAME=VALUE"),
    ("collect", "--work-dir"),
    ("collect --work-dir DIR/c --programs 1", "programs >= 2"),
    ("collect --work-dir DIR/c --programs many", "--programs"),
    ("collect --work-dir DIR/c --uniform 1", "2 <= uniform <= programs"),
    ("collect --work-dir DIR/c --programs 8 --uniform 9", "2 <= uniform <= programs"),
    ("collect --work-dir DIR/c --rounds 0", "rounds >= 1"),
    ("collect --work-dir DIR/c --cost-model oracle", "unknown cost model"),
    ("collect --work-dir DIR/c --time 0", "time > 0"),
    ("collect --work-dir DIR/c --time nan", "time > 0"),
    ("collect --work-dir DIR/c --time inf", "time > 0"),
    ("collect --work-dir DIR/c --seed -1", "seed >= 0"),
    ("collect --work-dir DIR/c --audit --share 0", "share <= 1"),
    ("collect --work-dir DIR/c --audit --min-age -1", "min-age >= 0"),
    ("collect --work-dir DIR/c --pack", "add -o DIR"),
    ("collect --work-dir DIR/c -o DIR/d", "add --pack"),
    ("collect --work-dir DIR/c --pack --audit", "not allowed with"),
]


@pytest.mark.usefixtures("hinted")
@pytest.mark.parametrize(("command", "told"), BAD, ids=lambda v: v[:60])
def test_bad_input_is_one_clear_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path, command: str, told: str
) -> None:
    (tmp_path / "words.txt").write_text("no measurements\n")
    (tmp_path / "foreign.json").write_text('{"mine": 1}')
    (tmp_path / "folder.json").mkdir()
    words = command.replace("DIR", str(tmp_path)).replace("LOG", str(log)).split()
    code, _, err = call(capsys, *words)
    assert code == 2
    assert told in err
    assert err.splitlines()[-1].startswith("foretune: ")
    assert "Traceback" not in err
    assert not (tmp_path / "w.npz").exists()
    assert not (tmp_path / "c").exists()
    assert (tmp_path / "foreign.json").read_text() == '{"mine": 1}'


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    """One of ours, without a row."""
    path = tmp_path / "data"
    write_dataset(path, [], [], [], [])
    return path


def cut_short(path: Path) -> None:
    file = path / "records-000.parquet"
    file.write_bytes(file.read_bytes()[:-20])


def of_the_future(path: Path) -> None:
    file = path / "dataset.json"
    file.write_text(file.read_text().replace("dataset/1", "dataset/99"))


def with_a_file_of_the_future(path: Path) -> None:
    file = path / "records-000.parquet"
    version = {"foretune.schema": "foretune.dataset/99"}
    pq.write_table(pq.read_table(file).replace_schema_metadata(version), file)


def of_other_types(path: Path) -> None:
    file = path / "records-000.parquet"
    table = pq.read_table(file)
    at = table.schema.get_field_index("time")
    pq.write_table(table.set_column(at, "time", pa.array([], pa.string())), file)


@pytest.mark.usefixtures("hinted")
@pytest.mark.parametrize("command", ["eval hinted", "train hinted -o DIR/w.npz"])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda _path: None, "no measurement in DATA can be used (it is empty)"),
        (cut_short, "records-000.parquet is missing, truncated or no Parquet file"),
        (of_the_future, "dataset.json: schema must be 'foretune.dataset/1', but is"),
        (with_a_file_of_the_future, "records-000.parquet: schema must be 'foretune.dataset/1'"),
        (of_other_types, "records-000.parquet: column 'time' must hold numbers, but holds text"),
    ],
)
def test_a_damaged_data_set_is_refused_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    data_set: Path,
    command: str,
    damage: Callable[[Path], None],
    told: str,
) -> None:
    damage(data_set)
    words = command.replace("DIR", str(tmp_path)).split()
    code, _, err = call(capsys, *words, "--data", str(data_set))
    assert code == 2
    assert told.replace("DATA", str(data_set)) in err
    assert err.splitlines()[-1].startswith("foretune: ")
    assert "Traceback" not in err
    assert not (tmp_path / "w.npz").exists() and not (tmp_path / "w.json").exists()


@pytest.mark.usefixtures("hinted")
def test_eval_judges_by_workload_and_writes_the_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path
) -> None:
    with log.open("a") as file:
        file.write("torn {\n")
    out_file = tmp_path / "eval.json"
    code, out, err = call(
        capsys, "eval", "hinted", "--data", str(log), "--seeds", "2", "--folds", "4",
        "--option", "sign=-1", "--json", str(out_file),
    )  # fmt: skip
    assert code == 0, err
    assert "top-1" in out and "random order" in out and "1 not JSON" in out
    data = json.loads(out_file.read_text())
    assert data["schema"] == "foretune.eval/1"
    assert {"model", "data", "split", "groups", "metrics"} <= set(data)
    assert (data["model"], data["data"], data["split"]) == ("hinted", [str(log)], "workload")
    assert (data["groups"], data["seeds"], len(data["splits"])) == (10, [0, 1], 4)
    assert data["metrics"]["top1"] == {"mean": 0.125, "low": 0.125, "high": 0.125}
    assert data["metrics"]["kendall_tau"]["mean"] == pytest.approx(-1)
    assert data["options"] == {"sign": -1}
    assert data["trained_on"] is None and data["programs_per_group"] is None
    assert "trained on is not known" not in out, "nothing was trained before"
    assert data["command"].startswith("foretune eval hinted")
    assert err.count("trained on") == 8, "every training is told of"


@pytest.mark.usefixtures("hinted")
def test_another_split_seed_tests_other_groups_together(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path
) -> None:
    def parts(seed: str) -> tuple[int, set[frozenset[str]]]:
        out_file = tmp_path / f"{seed}.json"
        code, _, err = call(
            capsys, "eval", "hinted", "--data", str(log), "--folds", "4",
            "--split-seed", seed, "--json", str(out_file),
        )  # fmt: skip
        assert code == 0, err
        data = json.loads(out_file.read_text())
        together: dict[str, set[str]] = {}
        for row in data["per_group"]:
            together.setdefault(row["split"], set()).add(row["workload"])
        return data["split_seed"], {frozenset(side) for side in together.values()}

    (none, default), (one, other) = parts("0"), parts("1")
    assert (none, one) == (0, 1) and default != other
    code, _, err = call(capsys, "eval", "hinted", "--data", str(log), "--split-seed", "-1")
    assert code == 2 and "split-seed >= 0" in err
    code, _, err = call(capsys, "eval", "w.npz", "--data", str(log), "--split-seed", "1")
    assert code == 2 and "tested as a whole" in err


@pytest.mark.usefixtures("hinted")
@pytest.mark.parametrize(
    ("split", "parts"), [("kind", 2), ("hardware", 10), ("hardware_seen", 2), ("workload", 5)]
)
def test_eval_has_every_split(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path, split: str, parts: int
) -> None:
    other = write_log(tmp_path / "gpu.json", range(10))
    code, _, err = call(
        capsys, "eval", "hinted", "--data", f"{log},{other}", "--split", split,
        "--json", str(tmp_path / "e.json"),
    )  # fmt: skip
    assert code == 0, err
    data = json.loads((tmp_path / "e.json").read_text())
    assert len(data["splits"]) == parts
    assert sum(part["test"] for part in data["splits"]) == data["groups"] == 20
    assert set(data["by_hardware"]) == {"cpu", "gpu"}


@pytest.mark.usefixtures("hinted")
def test_hardware_and_workloads_can_be_chosen(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path
) -> None:
    other = write_log(tmp_path / "gpu.json", range(6))
    code, _, err = call(
        capsys, "eval", "hinted", "--data", f"{log},{other}", "--hardware", "gpu",
        "--holdout", "dense", "--json", str(tmp_path / "e.json"),
    )  # fmt: skip
    assert code == 0, err
    data = json.loads((tmp_path / "e.json").read_text())
    assert {(row["hardware"], row["kind"]) for row in data["per_group"]} == {("gpu", "conv2d")}
    assert data["groups"] == 3


@pytest.fixture
def weights(hinted: None, capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path) -> Path:
    """A ranker that learned from ``log``."""
    path = tmp_path / "new" / "w.npz"
    code, out, err = call(
        capsys, "train", "hinted", "--data", str(log), "-o", str(path), "--seed", "7",
        "--option", "sign=1",
    )  # fmt: skip
    assert code == 0, err
    assert "9 groups" in out and "w.json" in out
    return path


def test_train_notes_where_the_weights_come_from(weights: Path, log: Path) -> None:
    noted = json.loads(weights.with_suffix(".json").read_text())
    assert noted["schema"] == "foretune.weights/1"
    assert (noted["ranker"], noted["seed"], noted["options"]) == ("hinted", 7, {"sign": 1})
    assert noted["data"] == [str(log)]
    assert noted["command"].startswith("foretune train hinted --data")
    assert len(noted["training_workloads"]) == 9
    assert len(noted["validation_workloads"]) == 1


def test_a_part_of_each_group_is_learned_from(
    capsys: pytest.CaptureFixture[str], hinted: None, tmp_path: Path, log: Path
) -> None:
    learned = {}
    for programs in (2, 4, 1000):
        path = tmp_path / f"{programs}.npz"
        arguments = ["train", "hinted", "--data", str(log), "--programs", str(programs)]
        assert call(capsys, *arguments, "-o", str(path))[0] == 0
        learned[programs] = json.loads(path.with_suffix(".json").read_text())["programs"]
    assert 2 * 9 <= learned[2] < learned[4] < learned[1000]


def test_weights_are_not_judged_on_what_they_have_seen(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Path, log: Path
) -> None:
    code, _, err = call(capsys, "eval", str(weights), "--data", str(log))
    assert code == 2
    assert "10 of 10 groups" in err and "--allow-seen" in err
    assert err.count("\n") == 1

    target = tmp_path / "e.json"
    arguments = ["eval", str(weights), "--data", str(log), "--allow-seen", "--json", str(target)]
    code, out, err = call(capsys, *arguments)
    assert code == 0, err
    assert "10 of the groups judged here" in out
    data = json.loads(target.read_text())
    assert data["split"] == "none"
    assert data["trained_on"]["seen_groups"] == 10
    assert len(data["trained_on"]["training_workloads"]) == 9

    fresh = write_log(tmp_path / "fresh.json", range(20, 24))
    code, out, err = call(capsys, "eval", str(weights), "--data", str(fresh), "--split", "none")
    assert code == 0, err
    assert "none of the groups judged here" in out
    assert "1.000" in out


def test_the_very_names_that_were_refused_can_be_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, weights: Path
) -> None:
    mixed = write_log(tmp_path / "mixed.json", [0, 20, 1, 21, 22])
    target = tmp_path / "e.json"
    excluded: list[str] = []
    for left in (2, 1):
        code, _, err = call(capsys, "eval", str(weights), "--data", str(mixed), *excluded)
        assert code == 2
        told = re.search(rf"this data \((.*); {left} of {left + 3} groups\)", err)
        assert told is not None, err
        names = {g.name for g in read_data([mixed]).groups}
        name = next(name for name in sorted(names) if told[1].startswith(name))
        assert "," in name, "or it proves nothing"
        excluded += ["--exclude", name]
    command = ["eval", str(weights), "--data", str(mixed), *excluded, "--json", str(target)]
    code, out, err = call(capsys, *command)
    assert code == 0, err
    assert "none of the groups judged here" in out
    data = json.loads(target.read_text())
    assert data["groups"] == 3
    # So can keys, which are JSON and start with a bracket; lists of other names may stand beside.
    first = data["per_group"][0]["workload"]
    assert first.startswith("[") and "," in first
    code, _, err = call(capsys, *command, "--exclude", first, "--holdout", "nothing like*,this")
    assert code == 2 and "'nothing like*'" in err
    code, _, err = call(capsys, *command, "--exclude", first)
    assert code == 0, err
    assert json.loads(target.read_text())["groups"] == 2


@pytest.mark.usefixtures("hinted")
def test_eval_of_what_all_hardware_measured_with_few_programs_to_learn_from(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    log: Path,
) -> None:
    learned: list[int] = []

    def fit(_self: Hinted, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        learned.extend(len(group) for group in (*groups, *validation))

    monkeypatch.setattr(Hinted, "fit", fit)
    other = write_log(tmp_path / "gpu.json", range(4, 12))
    for split in ("hardware", "hardware_seen"):
        code, _, err = call(
            capsys, "eval", "hinted", "--data", f"{log},{other}", "--split", split,
            "--on-all-hardware", "--programs", "3", "--json", str(tmp_path / "e.json"),
        )  # fmt: skip
        assert code == 0, err
        data = json.loads((tmp_path / "e.json").read_text())
        assert (data["groups"], data["workloads"], data["programs_per_group"]) == (12, 6, 3)
        assert {row["programs"] for row in data["per_group"]} == {8}, "all are tested"
    assert set(learned) == {3}
    fresh = write_log(tmp_path / "tpu.json", [30, 31])
    code, _, err = call(capsys, "eval", "hinted", "--data", f"{log},{fresh}", "--on-all-hardware")
    assert code == 2 and "all of cpu, tpu" in err


@pytest.mark.parametrize("name", ["journal.jsonl", "collect.jsonl"])
def test_a_work_directory_of_tune_or_collect_is_looked_into(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    with Journal(tmp_path / name) as journal:
        journal.add_hardware(Hardware("some cpu", '{"kind": "llvm"}', threads=1))
    code, _, err = call(capsys, "db", "info", str(tmp_path))
    assert code == 0, err


def test_what_is_merged_into_a_directory_of_collect_goes_to_its_journal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder, name, threads in ((own, "collect.jsonl", 1), (other, "journal.jsonl", 2)):
        folder.mkdir()
        with Journal(folder / name) as journal:
            journal.add_hardware(Hardware("some cpu", '{"kind": "llvm"}', threads=threads))
    code, _, err = call(capsys, "db", "merge", str(own), str(other))
    assert code == 0, err
    assert [path.name for path in own.glob("*.jsonl")] == ["collect.jsonl"]
    with Journal(own / "collect.jsonl", read_only=True) as journal:
        assert {each.threads for each in journal.hardware().values()} == {1, 2}


def test_a_negative_number_of_best_records_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = call(capsys, "db", "export", str(tmp_path), str(tmp_path / "o"), "--top", "-1")
    assert code == 2 and "--top -1" in err


def test_weights_of_unknown_origin_are_judged_on_request_only(
    capsys: pytest.CaptureFixture[str], weights: Path, log: Path
) -> None:
    weights.with_suffix(".json").unlink()
    code, _, err = call(capsys, "eval", str(weights), "--data", str(log))
    assert code == 2
    assert "w.json is missing" in err
    code, out, _ = call(capsys, "eval", str(weights), "--data", str(log), "--allow-seen")
    assert code == 0
    assert "is not known" in out


@pytest.mark.usefixtures("hinted")
def test_too_few_workloads_for_the_folds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = write_log(tmp_path / "one.json", [0])
    code, _, err = call(capsys, "eval", "hinted", "--data", str(log))
    assert code == 2
    assert "1 workloads" in err and "more data" in err


@pytest.mark.usefixtures("hinted")
@pytest.mark.parametrize("command", ["eval interrupted", "train interrupted -o DIR/w.npz"])
def test_ctrl_c_ends_with_130_and_leaves_no_half_weights(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path, command: str
) -> None:
    words = command.replace("DIR", str(tmp_path)).split()
    code, _, err = call(capsys, *words, "--data", str(log))
    assert code == 130
    assert "interrupted" in err and "Traceback" not in err
    assert not (tmp_path / "w.npz").exists()


@pytest.mark.usefixtures("hinted")
def test_features_are_kept_for_models_that_read_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path
) -> None:
    monkeypatch.setattr(Reader, "folders", [])
    folder = tmp_path / "features"
    for model in ("reader", "hinted"):
        code, _, err = call(
            capsys, "eval", model, "--data", str(log), "--folds", "2",
            "--features-cache", str(folder),
        )  # fmt: skip
        assert code == 0, err
    assert Reader.folders.count(folder) == 3, "one to check the options, one for each fold"


@pytest.mark.usefixtures("hinted")
def test_rankers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "rankers")
    assert code == 0
    assert "hinted" in out and "reads the answer" in out


def test_collect_hands_its_arguments_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handed: list[argparse.Namespace] = []
    monkeypatch.setattr("foretune.collect.collect_command", lambda args: handed.append(args) or 0)
    work = str(tmp_path / "c")
    assert call(capsys, "collect", "--work-dir", work)[0] == 0
    assert call(
        capsys, "collect", "--work-dir", work, "--workloads", "a,b", "--targets", "llvm;cuda",
        "--threads", "1,2", "--programs", "8", "--time", "60", "--seed", "3", "--known", "data",
        "--audit", "--share", "0.5", "--min-age", "0", "--uniform", "5", "--rounds", "3",
        "--cost-model", "default",
    )[0] == 0  # fmt: skip
    assert call(capsys, "collect", "--work-dir", work, "--pack", "-o", "out")[0] == 0
    plain, full, pack = handed
    assert (plain.workloads, plain.targets, plain.threads, plain.time) == (
        "training", None, None, None,
    )  # fmt: skip
    assert (plain.known, plain.pack, plain.audit, plain.output) == (None, False, False, None)
    assert (plain.programs, plain.seed, plain.share, plain.min_age) == (92, 0, 0.02, 3600.0)
    assert (plain.uniform, plain.rounds, plain.cost_model) == (None, 2, "gbdt:scratch")
    assert (full.uniform, full.rounds, full.cost_model) == (5, 3, "joined")
    assert (full.workloads, full.targets, full.threads) == ("a,b", "llvm;cuda", "1,2")
    assert (full.programs, full.time, full.seed, full.known) == (8, 60.0, 3, Path("data"))
    assert (full.audit, full.share, full.min_age) == (True, 0.5, 0.0)
    assert (pack.pack, pack.output, pack.work_dir) == (True, Path("out"), Path(work))


def test_real_rankers_are_trained_judged_and_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: Path
) -> None:
    code, out, _ = call(capsys, "rankers")
    assert code == 0
    assert all(name in out for name in ("random", "gbdt_actions", "mlp:reference", "mtl_tlp"))
    target = tmp_path / "e.json"
    code, _, err = call(
        capsys, "eval", "gbdt_actions", "--data", str(log), "--folds", "2", "--json", str(target)
    )
    assert code == 0, err
    assert json.loads(target.read_text())["metrics"]["top5"]["mean"] > 0.5
    weights = tmp_path / "w.npz"
    code, _, err = call(capsys, "train", "gbdt_actions", "--data", str(log), "-o", str(weights))
    assert code == 0, err
    fresh = write_log(tmp_path / "fresh.json", range(20, 24))
    code, out, err = call(capsys, "eval", str(weights), "--data", str(fresh))
    assert code == 0, err
    assert "gbdt_actions, trained on 9 groups" in out
    weights.write_bytes(b"no weights")
    code, _, err = call(capsys, "eval", str(weights), "--data", str(fresh))
    assert code == 2
    assert err.count("\n") == 1
