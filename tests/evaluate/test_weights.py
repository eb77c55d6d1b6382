from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import pytest

from foretune._code import code_fingerprint, commit
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.evaluate import (
    Provenance,
    check_output,
    provenance_path,
    read_provenance,
    train,
)
from foretune.evaluate.data import FEW_TIMES
from foretune.evaluate.fingerprints import fingerprint
from foretune.workload.training import Excluded
from tests.evaluate.support import Hinted, convolutions, group, of_program, several


@pytest.fixture(autouse=True)
def excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Excluded(frozenset({"secret"}), frozenset())
    monkeypatch.setattr("foretune.workload.training.excluded", lambda: known)


def trained(path: Path, ranker: Hinted | None = None) -> Provenance:
    groups = [*several(10, hardware=("a", "b")), group("odd", [1.0])]
    return train(
        ranker or Hinted(), groups, path, name="hinted", options={"sign": 1}, seed=3,
        command="foretune train hinted", data=["log.json"], skipped={"not JSON": 2},
    )  # fmt: skip


def test_weights_say_what_they_were_trained_on(tmp_path: Path) -> None:
    ranker, path = Hinted(), tmp_path / "w.npz"
    made = trained(path, ranker)
    assert read_provenance(path).to_json() == json.loads(json.dumps(made.to_json()))
    data = json.loads((tmp_path / "w.json").read_text())
    assert provenance_path(path) == tmp_path / "w.json"
    assert data["schema"] == "foretune.weights/1"
    assert (data["ranker"], data["seed"], data["data"]) == ("hinted", 3, ["log.json"])
    assert data["command"] == "foretune train hinted"
    assert set(data["training_workloads"]) == {g.workload for g in ranker.trained}
    assert set(data["validation_workloads"]) == {g.workload for g in ranker.validated}
    assert len(data["training_workloads"]) + len(data["validation_workloads"]) == 10
    assert (data["groups"], data["validation_groups"]) == (18, 2)
    assert data["hardware"] == ["a", "b"]
    assert data["skipped"]["not JSON"] == 2 and len(data["skipped"]) == 2
    assert data["versions"]["numpy"]
    assert Hinted.load(path).sign == 1


def test_weights_say_which_data_and_code_made_them(tmp_path: Path) -> None:
    ranker = Hinted()
    made = trained(tmp_path / "w.npz", ranker)
    assert made.data_fingerprint == fingerprint([*ranker.trained, *ranker.validated])
    assert made.code_fingerprint == code_fingerprint(*ranker.modules)
    noted = json.loads((tmp_path / "w.json").read_text())
    assert (noted["data_fingerprint"], noted["commit"]) == (made.data_fingerprint, commit())
    assert trained(tmp_path / "v.npz").data_fingerprint == made.data_fingerprint
    other = train(Hinted(), several(10), tmp_path / "u.npz", seed=3)
    assert other.data_fingerprint != made.data_fingerprint


class Asking(Hinted):
    status = MappingProxyType({"scores": "llm", "programs": 9, "fallback": 2})


def test_weights_say_what_became_of_questions(tmp_path: Path) -> None:
    made = trained(tmp_path / "w.npz", Asking())
    assert read_provenance(tmp_path / "w.npz").scores == made.scores == Asking.status
    assert trained(tmp_path / "other.npz").scores == {}


def test_early_provenance_that_says_neither_is_read(tmp_path: Path) -> None:
    made = trained(tmp_path / "w.npz")
    noted = json.loads((tmp_path / "w.json").read_text())
    for name in ("data_fingerprint", "code_fingerprint", "commit"):
        del noted[name]
    (tmp_path / "w.json").write_text(json.dumps(noted))
    found = read_provenance(tmp_path / "w.npz")
    assert (found.data_fingerprint, found.code_fingerprint, found.commit) == ("", "", None)
    assert found.training_workloads == list(made.training_workloads)


def test_seen_workloads_are_refused_on_other_hardware_too(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    found = trained(path)
    fresh = [group("new", hardware="a")]
    found.refuse_seen(fresh, path)
    held = found.validation_workloads[0]
    seen = [group("w0", hardware="elsewhere"), group(held)]
    assert found.seen([*fresh, *seen]) == seen, "stopping early by them is seeing them"
    with pytest.raises(BadInputError, match=r"w\.npz was trained on.*conv2d w0.*2 of 3 groups"):
        found.refuse_seen([*fresh, *seen], path)


def test_a_workload_with_another_epilogue_is_seen_too(tmp_path: Path) -> None:
    (_, relu), (_, relu6), _, (_, other), *_ = convolutions((6, 7))
    found = train(Hinted(), [of_program(relu), *several(4)], tmp_path / "w.npz")
    assert relu6.key not in (*found.training_workloads, *found.validation_workloads)
    assert len(found.training_signatures) == 1, "what others measured has none"
    again = read_provenance(tmp_path / "w.npz")
    for provenance in (found, again):
        tested = [of_program(relu6, hardware="elsewhere"), of_program(other), group("new")]
        assert provenance.seen(tested) == tested[:1]
        with pytest.raises(BadInputError, match=r"conv2d_6_relu6; 1 of 3 groups"):
            provenance.refuse_seen(tested, tmp_path / "w.npz")


@pytest.mark.parametrize("text", ['{"name": "mine"}', "[1, 2]", "notes", '"foretune.weights/1"'])
def test_a_json_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "w.json").write_text(text)
    with pytest.raises(BadInputError, match=r"w\.json, but that file is something else: move"):
        check_output(tmp_path / "w.npz")
    with pytest.raises(BadInputError, match="something else"):
        trained(tmp_path / "w.npz")
    assert (tmp_path / "w.json").read_text() == text
    assert not (tmp_path / "w.npz").exists()


@pytest.mark.parametrize("number", [0, 1])
def test_weights_may_be_trained_again_in_their_place(tmp_path: Path, number: int) -> None:
    (tmp_path / "w.json").write_text(json.dumps({"schema": f"foretune.weights/{number}"}))
    made = trained(tmp_path / "w.npz")
    assert read_provenance(tmp_path / "w.npz").digest == made.digest


def test_weights_of_unknown_origin_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    trained(path)
    text = (tmp_path / "w.json").read_text()
    (tmp_path / "w.json").unlink()
    with pytest.raises(BadInputError, match=r"w\.json is missing"):
        read_provenance(path)
    (tmp_path / "w.json").write_text(text)
    with path.open("ab") as file:
        file.write(b"other weights")
    with pytest.raises(BadInputError, match="other weights than"):
        read_provenance(path)


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("{torn", RecordError, "cannot be read"),
        ("[]", RecordError, "cannot be read"),
        ('{"schema": "foretune.weights/0"}', VersionMismatchError, "foretune.weights/1"),
        ('{"schema": "foretune.weights/1"}', RecordError, "lacks.*training_workloads"),
    ],
)
def test_provenance_that_cannot_be_read_is_refused(
    tmp_path: Path, text: str, error: type[Exception], told: str
) -> None:
    trained(tmp_path / "w.npz")
    (tmp_path / "w.json").write_text(text)
    with pytest.raises(error, match=told):
        read_provenance(tmp_path / "w.npz")


def test_provenance_without_its_workloads_is_refused(tmp_path: Path) -> None:
    trained(tmp_path / "w.npz")
    found = json.loads((tmp_path / "w.json").read_text())
    (tmp_path / "w.json").write_text(json.dumps(found | {"training_workloads": None}))
    with pytest.raises(RecordError, match="training_workloads must be a list, but is None"):
        read_provenance(tmp_path / "w.npz")


def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for groups, path, told in [
        (several(3), tmp_path / "w.bin", ".npz file"),
        ([], tmp_path / "w.npz", "nothing to learn from"),
        ([group("a", [1.0])], tmp_path / "w.npz", "nothing to learn from"),
        ([group("secret")], tmp_path / "w.npz", "evaluation set"),
    ]:
        with pytest.raises(BadInputError, match=told):
            train(Hinted(), groups, path)
    assert not list(tmp_path.iterdir())


def test_a_group_without_a_program_teaches_nothing_and_is_counted(tmp_path: Path) -> None:
    ranker = Hinted()
    made = train(ranker, [group("empty", []), *several(10)], tmp_path / "w.npz")
    assert made.skipped == {FEW_TIMES: 1}
    assert all(len(g) for g in (*ranker.trained, *ranker.validated))
    assert "empty" not in (*made.training_workloads, *made.validation_workloads)
    with pytest.raises(BadInputError, match="nothing to learn from"):
        train(ranker, [group("empty", [])], tmp_path / "other.npz")


def test_old_provenance_does_not_outlive_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    trained(path)

    class Interrupted(Hinted):
        def save(self, path: Path) -> None:
            super().save(path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(path, Interrupted())
    with pytest.raises(BadInputError, match="is missing"):
        read_provenance(path)
