"""Rankers by name and by file."""

from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest

from foretune.cost import _ranker_file, rankers, score_group
from foretune.cost.gbdt_ranker import GbdtActionRanker, GbdtRanker
from foretune.cost.random_ranker import RandomRanker
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.testing.rankers import nest_group, training_groups


def test_create_makes_what_was_named():
    assert isinstance(rankers.create("random", seed=4), RandomRanker)
    assert isinstance(rankers.create("gbdt", rounds=3), GbdtRanker)
    made = rankers.create("gbdt_actions", depth=2)
    assert isinstance(made, GbdtActionRanker) and made.config.depth == 2


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(BadInputError, match=r"unknown ranker 'gdbt'.*gbdt_actions"):
        rankers.create("gdbt")


@pytest.mark.parametrize("name", ["random", "gbdt", "gbdt_actions"])
def test_an_unknown_option_is_refused(name):
    with pytest.raises(BadInputError, match="'deep'"):
        rankers.create(name, deep=3)


UNFIT = [
    ("gbdt_actions", {"rounds": "many"}, "rounds must be int"),
    ("gbdt_actions", {"rounds": None}, "rounds must be int"),
    ("gbdt_actions", {"rounds": True}, "rounds must be int"),
    ("gbdt_actions:variants", {"objective": [1]}, "objective must be str"),
    ("gbdt", {"extract": 5}, "in Python only"),
    ("gbdt", {"cache": 5}, "cache must be str"),
    ("mlp", {"epochs": "few"}, "epochs must be int"),
    ("mlp", {"threads": "all"}, "threads must be int"),
    ("mlp:variants", {"dropout": [0.1]}, "dropout must be float"),
    ("tlp", {"embed": 3}, "embed must be tuple"),
    ("world", {"trajectories": "all"}, "trajectories must be int"),
    ("world", {"transition_options": 3}, "transition_options must be"),
    ("world:variants", {"encoder_options": 3}, "encoder_options must be"),
    ("world", {"world": 3}, "in Python only"),
]


@pytest.mark.parametrize(("name", "options", "told"), UNFIT, ids=lambda v: str(v)[:40])
def test_an_option_of_another_type_is_refused(name, options, told):
    with pytest.raises(BadInputError, match=told):
        rankers.needs(name).refuse_text(name, options)
        rankers.create(name, **options)


def test_options_as_json_has_them_are_taken():
    for name, options in (
        ("gbdt_actions", {"rounds": 7, "learning_rate": 1, "min_child_weight": None}),
        ("mlp:variants", {"epochs": 2, "threads": 1, "cache": "folder", "hardware": False}),
        ("tlp", {"embed": [32, 64], "device": None}),
    ):
        rankers.needs(name).refuse_text(name, options)
        assert rankers.create(name, **options).config


@pytest.mark.parametrize("name", ["mlp:reference", "mtl_tlp:reference", "tlp:reference", "mtl_tlp"])
def test_a_name_may_stand_for_options(name):
    pytest.importorskip("torch")
    made = rankers.create(name)
    assert made.name == name
    assert "[" in rankers.descriptions()[name]


def test_names_say_whether_programs_are_read():
    assert rankers.needs("gbdt").programs and rankers.needs("gbdt_actions").decisions_only
    nested = rankers.needs("gbdt_behaviour")
    assert nested.nests and not nested.programs and not nested.decisions_only
    with pytest.raises(BadInputError, match="unknown ranker"):
        rankers.needs("no-such")


def test_names_say_whether_what_is_read_of_programs_can_be_kept():
    # The world model makes programs while it learns.
    assert rankers.needs("gbdt").folder and rankers.needs("world").folder
    assert not rankers.needs("tlp").folder


def test_a_ranker_says_where_the_code_of_all_its_parts_is():
    assert rankers.create("gbdt_actions").modules == ("foretune.cost.gbdt_ranker",)
    made = rankers.create("joined", members="gbdt_actions:variants,gbdt_behaviour")
    assert {"foretune.cost.joined", "foretune_research.trees"} <= set(made.modules)


def test_every_name_is_described():
    assert set(rankers.descriptions()) == set(rankers.names())
    assert all(rankers.descriptions().values())


def test_load_finds_the_class_by_the_file(tmp_path):
    group = nest_group((128, 64, 96), 12)
    trained = rankers.create("gbdt_actions", rounds=5)
    trained.fit(training_groups(8))
    trained.save(tmp_path / "a.npz")
    rankers.create("random", seed=7).save(tmp_path / "b.npz")
    read = rankers.load(tmp_path / "a.npz")
    assert isinstance(read, GbdtActionRanker)
    assert np.allclose(score_group(read, group), score_group(trained, group))
    other = rankers.load(str(tmp_path / "b.npz"))
    assert isinstance(other, RandomRanker) and other.seed == 7


DAMAGED = {"seed": 0, "versions": GbdtActionRanker().versions}
"""Meta data without a configuration."""


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"{}"])
def test_a_file_that_is_no_ranker_is_refused(tmp_path, content):
    (tmp_path / "file.npz").write_bytes(content)
    with pytest.raises(RecordError, match="not a trained ranker"):
        rankers.load(tmp_path / "file.npz")
    with pytest.raises(RecordError):
        rankers.load(tmp_path / "absent.npz")


def test_a_truncated_file_is_refused(tmp_path):
    trained = rankers.create("gbdt_actions", rounds=5)
    trained.fit(training_groups(8))
    trained.save(tmp_path / "whole.npz")
    content = (tmp_path / "whole.npz").read_bytes()
    for length in (10, len(content) // 2, len(content) - 30):
        (tmp_path / "part.npz").write_bytes(content[:length])
        with pytest.raises(RecordError):
            rankers.load(tmp_path / "part.npz")


def test_parts_reach_the_reader(tmp_path):
    rankers.create("gbdt_actions", threads=3).save(tmp_path / "a.npz")
    rankers.create("random").save(tmp_path / "b.npz")
    assert rankers.load(tmp_path / "a.npz").config.threads == 3
    assert rankers.load(tmp_path / "a.npz", threads=2).config.threads == 2
    with pytest.raises(BadInputError, match="'device'"):
        rankers.load(tmp_path / "a.npz", device="cpu")
    with pytest.raises(BadInputError, match="random has no option 'threads': it has none"):
        rankers.load(tmp_path / "b.npz", threads=1)


def test_beside_a_run_one_thread_is_enough(tmp_path):
    rankers.create("gbdt_actions", threads=3).save(tmp_path / "a.npz")
    rankers.create("random", seed=5).save(tmp_path / "b.npz")
    assert rankers.load_for_run(tmp_path / "a.npz").config.threads == 1
    assert rankers.load_for_run(tmp_path / "b.npz").seed == 5


def test_beside_a_run_a_network_stays_on_the_processor(tmp_path):
    pytest.importorskip("torch")
    rankers.create("tlp", threads=4, device="cuda").save(tmp_path / "c.npz")
    read = rankers.load_for_run(tmp_path / "c.npz")
    assert (read.threads, read.device) == (1, "cpu")


def test_a_damaged_content_is_refused(tmp_path):
    _ranker_file.write_model(tmp_path / "m.npz", "gbdt_actions", DAMAGED, {})
    with pytest.raises(RecordError, match="damaged ranker 'gbdt_actions'"):
        rankers.load(tmp_path / "m.npz")


def test_a_ranker_that_is_not_known_here_is_refused(tmp_path):
    _ranker_file.write_model(tmp_path / "m.npz", "crystal ball", {}, {})
    with pytest.raises(BadInputError, match="unknown ranker 'crystal ball'"):
        rankers.load(tmp_path / "m.npz")


class TestModelFile:
    ARRAYS: ClassVar = {"w": np.arange(6.0).reshape(2, 3), "trees": np.zeros(0, np.uint8)}

    def test_round_trip(self, tmp_path):
        meta = {"config": {"depth": 3, "names": ["a", "b"]}, "scale": 0.1}
        _ranker_file.write_model(tmp_path / "m.npz", "mine", meta, self.ARRAYS)
        found, arrays = _ranker_file.read_model(tmp_path / "m.npz")
        assert found == {**meta, "schema": _ranker_file.SCHEMA, "ranker": "mine"}
        assert set(arrays) == set(self.ARRAYS)
        for name, array in self.ARRAYS.items():
            assert np.array_equal(arrays[name], array) and arrays[name].dtype == array.dtype

    def test_another_schema_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_ranker_file, "SCHEMA", "foretune.ranker/99")
        _ranker_file.write_model(tmp_path / "m.npz", "mine", {}, self.ARRAYS)
        monkeypatch.undo()
        with pytest.raises(VersionMismatchError, match=r"schema must be .*ranker/1.*is .*/99"):
            _ranker_file.read_model(tmp_path / "m.npz")

    def test_check_names_what_differs(self, tmp_path):
        _ranker_file.check(tmp_path, {"features": 2}, features=2)
        with pytest.raises(VersionMismatchError, match="features must be 2, but is None"):
            _ranker_file.check(tmp_path, {}, features=2)

    def test_meta_data_that_are_no_object_are_refused(self, tmp_path):
        np.savez(tmp_path / "m.npz", meta=np.array("[1]"))
        with pytest.raises(RecordError, match="no object"):
            _ranker_file.read_model(tmp_path / "m.npz")

    def test_pickles_are_not_read(self, tmp_path):
        np.savez(tmp_path / "m.npz", meta=np.array([{}], dtype=object))
        with pytest.raises(RecordError):
            _ranker_file.read_model(tmp_path / "m.npz")

    def test_a_place_that_cannot_be_written_is_one_clear_line(self, tmp_path):
        with pytest.raises(RecordError, match="cannot be written"):
            _ranker_file.write_model(tmp_path / "absent" / "m.npz", "mine", {}, {})

    def test_a_failed_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "m.npz"
        _ranker_file.write_model(path, "mine", {"version": 1}, {})
        with pytest.raises(TypeError):
            _ranker_file.write_model(path, "mine", {"version": object()}, {})
        assert _ranker_file.read_model(path)[0]["version"] == 1
        assert list(tmp_path.iterdir()) == [path]


def test_registered_rankers_are_made_and_read(tmp_path):
    class Mine(RandomRanker):
        """Says nothing, differently."""

    rankers.register("mine", Mine)
    try:
        assert isinstance(rankers.create("mine", seed=1), Mine)
        assert rankers.descriptions()["mine"] == "Says nothing, differently."
        _ranker_file.write_model(tmp_path / "m.npz", "mine", {"seed": 3}, {})
        assert rankers.load(tmp_path / "m.npz").seed == 3
        with pytest.raises(BadInputError, match="taken"):
            rankers.register("mine", Mine)
    finally:
        rankers.unregister("mine")
    assert "mine" not in rankers.names()


def test_a_factory_without_load_is_named(tmp_path):
    def factory(seed, **options):
        return RandomRanker(seed=seed)

    rankers.register("made", factory)
    try:
        _ranker_file.write_model(tmp_path / "m.npz", "made", {}, {})
        with pytest.raises(BadInputError, match="'made', whose factory cannot load"):
            rankers.load(tmp_path / "m.npz")
    finally:
        rankers.unregister("made")


def test_listing_names_imports_nothing_heavy():
    code = (
        "import sys; from foretune.cost import rankers; rankers.names();"
        "print([m for m in ('tvm', 'xgboost', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
