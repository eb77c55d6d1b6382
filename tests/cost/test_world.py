"""The ranker of the compiler world model: what its trees see, its switches, files and bad input."""

from __future__ import annotations

import copy
import functools
import logging
import os
import subprocess
import sys
import zlib

import numpy as np
import pytest

from foretune import cost
from foretune.cost import rankers, score_group, shipped
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost.gbdt import program_vector
from foretune.cost.world import WorldRanker, learning, readers
from foretune.cost.world.actions import ActionBook
from foretune.cost.world.learning import Lesson, WorldConfig
from foretune.cost.world.model import World
from foretune.cost.world.programs import measure
from foretune.dataset import Group, Program
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.features import (
    extract_untransformed,
)
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.metaschedule._cost_model import positive
from foretune.records import Trial
from foretune.space import Action, Space
from foretune.testing import rankers as suite
from foretune.testing.rankers import Subject, nest_group, training_groups
from foretune.workload import Workload
from foretune.world import action_text, steps_of
from foretune.world.transition import NUMBERS, ActionTable
from tests.space.programs import CPU, PROGRAMS, space, te

pytest.importorskip("torch")

TREES = {
    "rounds": 30,
    "patience": 20,
    "min_child_weight": 0.5,
    "learning_rate": 0.15,
    "columns": 0.4,
    "boosters": 2,
}
"""For hundreds of programs."""
TINY = {
    "dimension": 16,
    "transition_options": {"members": 2, "terminal_epochs": 2, "batch": 256},
    "trajectories": 30,
    "device": "cpu",
}
LEARNED_FROM = ("matmul", "batch_matmul", "softmax")
UNSEEN = "layer_norm"
D = 16


def group(name, n=12, seed=0):
    """Candidates of a small program with made-up seconds."""
    here = space(name)
    candidates = list(dict.fromkeys(here.sample(np.random.default_rng(seed), n)))
    seconds = [1e-3 * (1 + zlib.crc32(c.key.encode()) % 97 / 97) for c in candidates]
    programs = [Program(candidate=c) for c in candidates]
    return Group(
        here.workload.key, name, name, here.hardware.key, programs, np.array(seconds), here.hardware
    )


def groups():
    return [group(name) for name in LEARNED_FROM]


def make(**options):
    return WorldRanker(**{**TREES, **TINY, **options})


@pytest.fixture(scope="module")
def trained():
    ranker = make()
    ranker.fit(groups())
    return ranker


@pytest.fixture(scope="module")
def lesson():
    config = WorldConfig(**{k: v for k, v in TINY.items() if k != "device"})
    return Lesson.of(groups(), config, 0, threads=1, device="cpu"), config


def rolled(world, name):
    """What a rollout of some candidates takes."""
    candidates = [p.candidate for p in group(name).programs]
    rows, lengths = world._book.paths(candidates)
    return world.initial(candidates[0].workload), world._book.table(), rows, lengths


def columns_of(ranker):
    """Which columns the trees of a ranker read."""
    return set(np.concatenate([member.columns for member in ranker._members]).tolist())


def same_trees(first, second):
    here = group(UNSEEN)
    return np.array_equal(score_group(first, here), score_group(second, here))


# Without programs that can be replayed, the ranker is one of actions, and a ranker all the same.

NESTS = functools.partial(WorldRanker, **{**TREES, "rounds": 100, "boosters": 3, "device": "cpu"})


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(Subject(NESTS))


def test_without_a_program_to_replay_it_says_so(caplog):
    with caplog.at_level(logging.WARNING, "foretune.cost.world"):
        NESTS().fit(training_groups(8))
    assert "ranked by their actions alone" in caplog.text


# Actions as numbers


@pytest.mark.parametrize("name", ["matmul", "conv2d_nhwc", "pooling", "softmax"])
def test_rows_are_the_steps_of_the_candidate(name):
    check_rows(space(name).sample(np.random.default_rng(1), 20))


def check_rows(candidates):
    book = ActionBook(lambda texts: np.array([[len(t)] for t in texts], np.float32))
    half = len(candidates) // 2
    for some in (candidates[:half], candidates):
        rows, lengths = book.paths(some)
        table = book.table()
        for candidate, row, length in zip(some, rows, lengths, strict=True):
            steps = steps_of(candidate.actions())
            texts = [action_text(action, candidate.sketch.axes) for action in steps]
            assert [book.texts[at] for at in row[:length]] == texts
            assert [table.kinds[at] for at in row[:length]] == [step.kind for step in steps]
            assert table.texts[row[:length], 0].tolist() == [len(text) for text in texts]
    assert len(table) == len(book) == len(set(book.texts))


# What is learned


def test_scores_order_programs_of_workloads_it_has_not_seen(trained):
    here = group(UNSEEN)
    scores = score_group(trained, here)
    assert scores.shape == (len(here),) and np.isfinite(scores).all()
    assert len(np.unique(scores)) > 1
    alone = [trained.score([p], here.machine)[0] for p in here.programs]
    assert np.allclose(scores, alone, atol=1e-3)
    assert np.isfinite(trained.score(here.programs, None)).all()


def test_trees_read_predicted_states(trained):
    assert {at for at in columns_of(trained) if at < D}
    states, legal = trained._states([p.candidate for p in group(UNSEEN).programs])
    assert states.shape[1] == D and legal.all()
    assert np.allclose(np.linalg.norm(states, axis=1), 1.0, atol=1e-3)
    assert len(np.unique(states, axis=0)) > 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_ranker(trained):
    again = make()
    again.fit(groups())
    assert same_trees(trained, again)


def test_trees_learn_from_transitions_that_have_not_seen_the_workload(lesson, monkeypatch):
    lesson, config = lesson
    learned_from = {}
    real = learning.train_transition

    def train(paths, *args, validation=None, **options):
        # Nothing is chosen by what is left out.
        assert validation is None or not options["choose"]
        model = real(paths, *args, validation=validation, **options)
        held = set() if validation is None else set(validation.workload.tolist())
        learned_from[id(model)] = (set(paths.workload.tolist()), held)
        return model

    monkeypatch.setattr(learning, "train_transition", train)
    world = learning.learn(lesson, config, 0, 1, "cpu")
    number = dict(zip(lesson.workloads, lesson.paths.workload.tolist(), strict=True))
    everything = set(number.values())
    assert set(world.unaware) == set(number) and len(learned_from) == 2
    for key, model in world.unaware.items():
        seen, held = learned_from[id(model)]
        assert number[key] in held and seen | held == everything and not seen & held
    assert world.transition.config.members == 2
    assert [epoch.member for epoch in world.transition.history] == [0] * 2 + [1] * 2
    # What has not seen a workload is a member of what scores.
    each = world.transition.rollout(*rolled(world, "matmul"))
    assert any(
        np.array_equal(world.unaware[key].rollout(*rolled(world, "matmul"))[0], each[at])
        for key in world.unaware for at in range(2)
    )  # fmt: skip
    # Those are what fitting looks at, and nothing else does.
    candidates = [p.candidate for p in group("matmul").programs]
    fitting, scoring = world.predicted(candidates, aware=False), world.predicted(candidates)
    assert not np.array_equal(fitting, scoring)
    unseen = [p.candidate for p in group(UNSEEN).programs]
    assert np.array_equal(world.predicted(unseen, aware=False), world.predicted(unseen))


def test_a_given_world_is_not_learned_again(trained):
    other = WorldRanker(**TREES, world=trained._world)
    other.fit(groups())
    assert other._world is trained._world and same_trees(trained, other)


def test_transitions_begin_at_the_untransformed_program_and_end_at_the_features():
    config = WorldConfig(**{k: v for k, v in TINY.items() if k != "device"})
    lesson = Lesson.of(groups(), config, 0)
    paths, reader = lesson.paths, lesson.reader
    candidates = lesson.seen.candidates
    assert len(paths) == len(candidates) == 30
    finals = np.stack(reader.finals(candidates, None))
    assert np.allclose(paths.states[paths.terminal], finals, atol=1e-5)
    for at in (0, 15, 29):
        initial = reader.initial(candidates[at].workload)
        assert np.allclose(paths.states[paths.initial[at]], initial, atol=1e-5)
        rows = extract_untransformed(candidates[at].workload)
        assert np.allclose(initial, reader.states.of(program_vector(rows)[None])[0])
    # Where a program begins is not where it ends, and not where others begin.
    apart = paths.states[paths.initial] - paths.states[paths.terminal]
    assert (np.linalg.norm(apart, axis=1) > 1e-3).all()
    assert len(np.unique(paths.states[paths.initial], axis=0)) == len(LEARNED_FROM)
    seen = measure(groups(), 30, 0)
    assert np.array_equal(seen.vectors, lesson.seen.vectors)
    assert paths.lengths.tolist() == [len(steps_of(c.actions())) for c in candidates]


def test_a_file_of_features_holds_everything(trained, tmp_path, monkeypatch):
    trained.save(tmp_path / "w.npz")
    read = rankers.load_for_run(tmp_path / "w.npz")
    assert same_trees(trained, read)
    monkeypatch.setitem(readers._VERSIONS, "per_store", "another")
    with pytest.raises(VersionMismatchError, match="per_store"):
        rankers.load(tmp_path / "w.npz")


def test_words_of_actions_tell_them_apart(trained):
    actions = trained._world.reader.actions
    one, two, other, longer = actions(
        ["split k0.1 4 32", "split k0.1 8 16", "split k0.2 4 32", "compute_at k0.1 *.1"]
    )
    # Factors are numbers, which transitions read beside the words.
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other) and not np.array_equal(one, longer)


# Files


def test_a_file_holds_everything(trained, tmp_path):
    path = tmp_path / "w.npz"
    trained.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["w.npz"]
    for read in (rankers.load(path), rankers.load_for_run(path)):
        assert isinstance(read, WorldRanker) and same_trees(trained, read)
        assert read.world_config == trained.world_config
        assert (read.scale, read.strength) == (trained.scale, trained.strength)
    assert rankers.load(path, threads=2).config.threads == 2
    read = rankers.load(path)
    read.save(tmp_path / "again.npz")
    assert same_trees(trained, rankers.load(tmp_path / "again.npz"))


@pytest.mark.parametrize(
    "name", ["TEXT_VERSION", "feature_states.SCHEMA", "transition_module.SCHEMA"]
)
def test_another_version_is_refused(trained, tmp_path, monkeypatch, name):
    trained.save(tmp_path / "w.npz")
    monkeypatch.setattr(f"foretune.cost.world.ranker.{name}", "another")
    with pytest.raises(VersionMismatchError, match="versions must be"):
        rankers.load(tmp_path / "w.npz")


def test_a_file_without_its_world_is_refused(trained, tmp_path):
    trained.save(tmp_path / "w.npz")
    meta, arrays = read_model(tmp_path / "w.npz")
    fewer = {k: v for k, v in arrays.items() if not k.startswith("transition/")}
    write_model(tmp_path / "w.npz", "world", meta, fewer)
    with pytest.raises(RecordError, match="damaged"):
        rankers.load(tmp_path / "w.npz")


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deep": 3}, "'deep'"),
        ({"transition_options": {"members": 1}}, "members >= 2.*crossfit=false"),
        ({"trajectories": 1}, "trajectories >= 2"),
        ({"dimension": 1}, "dimension >= 2"),
        ({"transition_options": {"deep": 1}}, "transition_options.*'deep'"),
        ({"target": "text"}, "'target': it is one of the package foretune_research"),
        ({"state": "final"}, "'state': it is one of the package foretune_research"),
        ({"encoder": "codebert"}, "'encoder': it is one of the package foretune_research"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        WorldRanker(**options)


LONGEST = 30
"""Actions of a program at most, of those that were looked at in the data of the package."""


def doubled(x, name):
    return te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name=name)


def long_program():
    """Forty operators after one another: TVM inlines all but the last."""
    first = out = te.placeholder((64, 96), name="A")
    for at in range(40):
        out = doubled(out, f"T{at}")
    return Workload.from_module(te.create_prim_func([first, out]), "chain")


def test_programs_of_more_actions_than_any_learned_from_are_ranked_by_all_of_them(caplog):
    ranker = shipped.shipped("world", "llvm")
    candidates = Space.generate(long_program(), CPU).sample(np.random.default_rng(0), 24)
    assert min(len(steps_of(c.actions())) for c in candidates) > LONGEST
    with caplog.at_level(logging.WARNING, "foretune.cost.world"):
        scores = ranker.score([Program(candidate=c) for c in candidates], CPU)
        states, legal = ranker._states(candidates)
    assert np.isfinite(scores).all() and len(np.unique(scores)) > 1 and legal.all()
    # Of length 1 but for the grid that they are rounded to.
    assert np.allclose(np.linalg.norm(states, axis=1), 1.0, atol=1e-2)
    # They differ in their last actions alone, which count like any other.
    assert len(np.unique(states, axis=0)) > 1
    assert caplog.text == ""


def test_numbers_beyond_the_eighth_tell_no_programs_apart(trained):
    model = trained._world.transition
    first = ("C.i", *range(1, NUMBERS + 1))
    actions = [Action("split", (*first, *rest)) for rest in ((), (64,), (2,))]
    axes = {"C": ("i",)}
    table = ActionTable.of(
        actions, trained._world.reader.actions([action_text(a, axes) for a in actions])
    )
    start = trained._world.initial(group(UNSEEN).programs[0].candidate.workload)
    ends = model.rollout(start, table, np.arange(3)[:, None], np.ones(3, int))
    assert np.allclose(ends, ends[:, :1], atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_no_action_of_tvms_rules_has_more_numbers_than_are_looked_at(name):
    for candidate in space(name).sample(np.random.default_rng(0), 8):
        for action in candidate.actions():
            assert sum(not isinstance(each, str) for each in action.args) <= NUMBERS


def test_programs_of_others_are_ranked_by_their_actions(trained):
    own = group(UNSEEN, 4)
    foreign = [Program(actions=p.actions) for p in own.programs]
    scores = trained.score([*own.programs, *foreign], own.machine)
    assert np.isfinite(scores).all()
    assert np.allclose(scores[: len(own)], score_group(trained, own), atol=1e-3)
    states, _ = trained._states([None, own.programs[0].candidate])
    assert not states[0].any() and states[1].any()
    assert np.isfinite(score_group(trained, nest_group((64, 64, 64), 4))).all()


@pytest.mark.slow
def test_actions_have_the_same_numbers_in_every_process():
    code = (
        "from tests.cost.test_world import group\n"
        "from foretune.cost.world.actions import ActionBook\n"
        "import numpy as np\n"
        "book = ActionBook(lambda texts: np.zeros((len(texts), 0), np.float32))\n"
        "book.paths([p.candidate for p in group('softmax', 40).programs])\n"
        "print(*book.texts, sep='\\n')"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and found[0].count("\n") > 40


def test_the_book_forgets_when_it_has_become_large(trained, monkeypatch):
    world = World(trained._world.reader, trained._world.transition)
    others = [p.candidate for p in group("matmul").programs]
    candidates = [p.candidate for p in group(UNSEEN).programs]
    world.predicted(others)
    before = world.predicted(candidates)
    own = {action_text(a, c.sketch.axes) for c in candidates for a in steps_of(c.actions())}
    assert set(world._book.texts) > own
    monkeypatch.setattr("foretune.cost.world.actions._ACTIONS", 1)
    assert np.allclose(world.predicted(candidates), before, atol=5e-4)
    assert set(world._book.texts) == own


def test_the_book_knows_actions_of_sketches_it_has_forgotten(monkeypatch):
    monkeypatch.setattr("foretune.cost.world.actions._SKETCHES", 0)
    asked = []

    def read(texts):
        asked.extend(texts)
        return np.array([[len(t), asked.index(t)] for t in texts], np.float32)

    book = ActionBook(read)
    rng = np.random.default_rng(0)
    for name in ("matmul", "softmax", "matmul", "conv2d_nhwc"):
        rows, lengths = book.paths(space(name).sample(rng, 40))
        table = book.table()
        assert len(table) == len(book) == len(asked)
        assert table.texts.tolist() == [[len(t), at] for at, t in enumerate(book.texts)]
        used = np.unique(rows[:, : lengths.min()])
        some = book.some(used)
        assert np.array_equal(some.numbers, table.numbers[used])
        assert some.kinds == tuple(table.kinds[at] for at in used)
        book.trim()
    assert len(set(asked)) == len(asked), "every action is read once"


# In a run


def test_it_becomes_a_cost_model(trained, tmp_path):
    trained.save(tmp_path / "w.npz")
    here = group(UNSEEN)
    candidates = [p.candidate for p in here.programs]
    model = cost.create("world", rng=0, hardware=CPU, ranker=tmp_path / "w.npz")
    assert model.abilities.informed and model.abilities.informed_draft
    scores = model.predict(candidates).score
    assert np.isfinite(scores).all()
    assert np.allclose(scores, trained.scale * score_group(trained, here), atol=1e-3)
    for_tvm = positive(scores)
    assert np.isfinite(for_tvm).all() and (for_tvm >= 0).all()
    assert (np.argsort(for_tvm, kind="stable") == np.argsort(scores, kind="stable")).all()


def measured(candidate, seconds):
    return Trial.of(candidate, Measurement(Status.OK, (seconds,), (True,)), "e", {})


def scaled(ranker, scale=0.5):
    """The ranker as if its scores were worth something."""
    found = copy.copy(ranker)
    found.scale = scale
    return found


def test_alone_it_learns_nothing_in_the_run(trained):
    candidates = [p.candidate for p in group(UNSEEN).programs]
    programs = [Program(candidate=candidate) for candidate in candidates]
    ranker = scaled(trained)
    options = {"ranker": ranker, "online": False, "draft": "ranker"}
    model = cost.create("world", rng=0, hardware=CPU, **options)
    before = model.predict(candidates).score
    np.testing.assert_allclose(before, 0.5 * ranker.score(programs, CPU))
    model.update([measured(each, 1e-3 * at) for at, each in enumerate(candidates, 1)])
    np.testing.assert_array_equal(model.predict(candidates).score, before)
    np.testing.assert_array_equal(model.draft(candidates), before)
    assert model.abilities.informed_draft


def test_without_weights_the_cost_model_says_what_to_do():
    no_such = Hardware("board", '{"kind": "no such"}', threads=1)
    with pytest.raises(BadInputError, match="foretune train"):
        cost.create("world", rng=0, hardware=no_such)


def test_it_reads_no_programs():
    assert rankers.needs("world").decisions_only


@pytest.mark.parametrize(
    ("own", "is_read"),
    [({"state": "predicted", "target": "features"}, True), ({"state": "final"}, False)],
)
def test_a_file_of_a_study_names_the_package(trained, tmp_path, own, is_read):
    trained.save(tmp_path / "w.npz")
    meta, arrays = read_model(tmp_path / "w.npz")
    assert meta["options"].keys().isdisjoint(WorldRanker.studied)
    options = {**meta["options"], **own}
    write_model(tmp_path / "w.npz", "world", {**meta, "options": options}, arrays)
    if is_read:
        assert same_trees(trained, rankers.load(tmp_path / "w.npz"))
        return
    with pytest.raises(VersionMismatchError, match="foretune_research"):
        rankers.load(tmp_path / "w.npz")
