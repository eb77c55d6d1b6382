"""The world model over texts, its switches, their files and bad input."""

from __future__ import annotations

import copy
import logging
import zlib
from dataclasses import replace

import numpy as np
import pytest

from foretune import cost
from foretune.cost import rankers, score_group
from foretune.cost.gbdt import program_vector
from foretune.cost.world import learning, readers
from foretune.cost.world.learning import Lesson
from foretune.dataset import Group, Program
from foretune.errors import BadInputError
from foretune.features import (
    action_columns,
    action_features,
    extract_per_store,
)
from foretune.measure import Measurement, Status
from foretune.records import Trial
from foretune.testing.rankers import nest_group
from foretune_research.world import program_text, reader
from foretune_research.world.config import WorldStudyConfig
from foretune_research.world.programs import final_texts, observe
from foretune_research.world.ranker import WorldVariants
from tests.cost import small_world
from tests.space.programs import CPU, space

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

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
    "encoder_options": {
        "dimension": 8,
        "width": 16,
        "layers": 1,
        "heads": 2,
        "vocabulary": 300,
        "windows": 4,
    },
    "contrastive_options": {"epochs": 1},
    "transition_options": {
        "members": 2,
        "horizons": ((1, 1), (0, 1)),
        "terminal_epochs": 1,
        "batch": 256,
    },
    "target": "text",
    "trajectories": 30,
    "encoder_states": 60,
    "device": "cpu",
}
LEARNED_FROM = ("matmul", "batch_matmul", "softmax")
UNSEEN = "layer_norm"
D = 8


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
    return WorldVariants(**{**TREES, **TINY, **options})


def make_of_features(**options):
    return WorldVariants(**{**TREES, **FEATURES, **options})


@pytest.fixture(scope="module")
def trained():
    ranker = make()
    ranker.fit(groups())
    return ranker


@pytest.fixture(scope="module")
def lesson():
    config = WorldStudyConfig(**{k: v for k, v in TINY.items() if k != "device"})
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


def test_without_crossfitting_every_member_has_seen_everything(lesson):
    lesson, config = lesson
    whole = learning.learn(lesson, replace(config, crossfit=False), 0, 1, "cpu")
    assert whole.unaware == {} and whole.transition.config.members == 2
    assert learning.learn(lesson, config, 0, 1, "cpu").unaware.keys() == set(lesson.workloads)


def test_trajectories_are_spread_over_workloads(tmp_path):
    found = observe(groups(), 9, 0, tmp_path)
    counts = [sum(t.workload == key for t in found.trajectories) for key in found.workloads]
    assert counts == [3, 3, 3]
    assert all(key in found.texts for t in found.trajectories for key in t.states)
    again = observe(groups(), 9, 0, tmp_path)
    assert [t.states for t in again.trajectories] == [t.states for t in found.trajectories]


def test_programs_on_several_machines_are_replayed_once():
    here = group("softmax", 4)
    elsewhere = replace(here, hardware="another")
    found = observe([here, elsewhere], 100, 0)
    assert len(found.trajectories) == len(here)


def test_times_on_several_machines_compare():
    here = group("softmax", 6)
    elsewhere = replace(group("matmul", 6), seconds=100 * group("matmul", 6).seconds)
    found = observe([here, elsewhere], 100, 0)
    for key in found.workloads:
        own = [
            s for t, s in zip(found.trajectories, found.seconds, strict=True) if t.workload == key
        ]
        assert min(own) == 1.0 and max(own) < 2.0


def test_a_given_world_is_not_learned_again(trained):
    other = WorldVariants(**TREES, world=trained._world)
    other.fit(groups())
    assert other._world is trained._world and same_trees(trained, other)


# Switches


@pytest.fixture(scope="module")
def switched(trained):
    """A ranker with the trained world and a switch, fitted."""

    def fitted(**options):
        ranker = WorldVariants(**TREES, world=trained._world, **options)
        ranker.fit(groups())
        return ranker

    return fitted


def test_the_initial_state_says_as_much_as_none(switched):
    initial, none = switched(state="initial"), switched(state="none")
    assert not {at for at in columns_of(initial) if at < D}
    assert same_trees(initial, none)


def test_the_final_state_is_that_of_the_program(switched, trained, monkeypatch):
    ranker = switched(state="final")
    here = group(UNSEEN)
    candidates = [p.candidate for p in here.programs]
    texts = final_texts(candidates, None)
    replayed = [c.sketch.template.replay(c.decisions).mod for c in candidates]
    assert texts == [program_text(module) for module in replayed]
    states, _ = ranker._states(candidates)
    assert np.allclose(states, trained._world.reader.encoder.encode(texts), atol=2e-4)
    assert ranker.needs.programs and not trained.needs.programs
    texts[3] = None
    monkeypatch.setattr(reader, "final_texts", lambda *_: texts)
    scores = score_group(ranker, here)
    assert np.isnan(scores[3]) and np.isfinite(np.delete(scores, 3)).all()


def test_without_action_features_only_the_state_tells_programs_apart(switched):
    names = ["state"] * D + [column.name for column in action_columns()]
    read = {names[at] for at in columns_of(switched(actions=False))}
    assert "state" in read
    assert all(name == "state" or name.startswith("machine.") for name in read)


def test_without_hardware_every_machine_is_the_same(switched):
    here = group(UNSEEN)
    other = replace(CPU, threads=64, simd_bits=128, l1_bytes=1024, peak_gflops=9.0)
    ranker, seeing = switched(hardware=False), switched()
    assert np.array_equal(ranker.score(here.programs, CPU), ranker.score(here.programs, other))
    # Not only where these trees look.
    one, two = (ranker._matrix(here.programs, machine)[0] for machine in (CPU, other))
    assert np.array_equal(one, two)
    one, two = (seeing._matrix(here.programs, machine)[0] for machine in (CPU, other))
    assert not np.array_equal(one, two)


def test_hardware_hides_what_it_changes_and_nothing_else(switched):
    ranker = switched(hardware=False)
    names = np.array([column.name for column in action_columns()])
    hidden = {str(name) for name in names[ranker._hidden]}
    other = replace(CPU, threads=64, simd_bits=32, l1_bytes=1024, peak_gflops=9.0)
    changed = set()
    for name in (*LEARNED_FROM, UNSEEN):
        one, two = (action_features(group(name, 40).programs, machine) for machine in (CPU, other))
        changed |= {str(each) for each in names[(one != two).any(axis=0)]}
    assert changed <= hidden
    of_summary = {name for name in hidden if name.startswith("summary.")}
    assert of_summary == {name for name in changed if name.startswith("summary.")}
    assert of_summary == {"summary.lanes_filled", "summary.accumulators", "summary.fit"}


@pytest.mark.parametrize("transition", ["untrained", "actions_only"])
def test_controls_of_the_transition(lesson, transition):
    lesson, config = lesson
    world = learning.learn(lesson, replace(config, transition=transition), 0, 1, "cpu")
    candidates = [p.candidate for p in group(UNSEEN).programs]
    found = world.predicted(candidates)
    turned = world.predicted(candidates, initial=-world.initial(candidates[0].workload))
    assert np.array_equal(found, turned) == (transition == "actions_only")
    assert bool(world.unaware) == (transition == "actions_only")
    assert (world.transition.history == ()) == (transition == "untrained")


# States of features instead of texts

FEATURES = {
    "target": "features",
    "dimension": 16,
    "transition_options": {"members": 2, "terminal_epochs": 2, "batch": 256},
    "trajectories": 30,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def described():
    ranker = make_of_features()
    ranker.fit(groups())
    return ranker


def test_the_final_state_of_features_is_that_of_the_program(described, monkeypatch):
    ranker = WorldVariants(**TREES, world=described._world, state="final")
    ranker.fit(groups())
    here = group(UNSEEN)
    candidates = [p.candidate for p in here.programs]
    states, _ = ranker._states(candidates)
    rows = [program_vector(each) for each in extract_per_store(candidates)]
    assert np.allclose(states, described._world.reader.states.of(np.stack(rows)), atol=2e-4)
    vectors = [*rows[:3], None, *rows[4:]]
    monkeypatch.setattr(readers, "vectors_of", lambda *_: vectors)
    scores = score_group(ranker, here)
    assert np.isnan(scores[3]) and np.isfinite(np.delete(scores, 3)).all()


# Files


def test_a_file_holds_everything(trained, tmp_path):
    path = tmp_path / "w.npz"
    trained.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["w.npz"]
    for read in (rankers.load(path), rankers.load_for_run(path)):
        assert isinstance(read, WorldVariants) and same_trees(trained, read)
        assert read.world_config.crossfit == trained.world_config.crossfit
        assert (read.scale, read.strength) == (trained.scale, trained.strength)
    assert rankers.load(path, threads=2).config.threads == 2
    read = rankers.load(path)
    read.save(tmp_path / "again.npz")
    assert same_trees(trained, rankers.load(tmp_path / "again.npz"))


def test_switches_are_in_the_file(switched, tmp_path):
    ranker = switched(state="none", hardware=False)
    ranker.save(tmp_path / "w.npz")
    read = rankers.load(tmp_path / "w.npz")
    assert (read.state, read.actions, read.hardware) == ("none", True, False)
    assert same_trees(ranker, read)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "final?"}, "unknown state of world"),
        ({"transition": "none"}, "unknown transition of world"),
        ({"target": "text", "encoder": "bert"}, "unknown backend"),
        ({"target": "text", "positives": "none"}, "unknown positives"),
        ({"crossfit": 2}, "crossfit"),
        ({"transition_options": {"members": 1}}, "members >= 2.*crossfit=false"),
        ({"target": "seconds"}, "unknown target of world"),
        ({"target": "text", "dimension": 64}, "dimension must be left out"),
        ({"encoder": "codebert"}, "encoder must be left out where target='features'.*'text'"),
        ({"encoder_states": 60}, "encoder_states must be left out"),
        (
            {"target": "features", "transition_options": {"horizons": ((1, 1),)}},
            "only the ends are known",
        ),
        ({"target": "text", "encoder_options": {"deep": 1}}, "'deep'"),
        ({"target": "text", "contrastive_options": {"deep": 1}}, "contrastive_options.*'deep'"),
        ({"state": "none", "actions": False}, "tell the programs of a workload apart"),
        ({"state": "initial", "actions": False}, "tell the programs of a workload apart"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        WorldVariants(**options)


def test_unknown_kinds_and_long_texts_are_scored_with_a_warning_each(caplog):
    short = {**TINY["encoder_options"], "window": 16, "stride": 8, "windows": 2}
    ranker = make(encoder_options=short)
    ranker.fit([group("softmax")])
    here = group("matmul")
    with caplog.at_level(logging.WARNING, "foretune.cost.world"):
        for _ in range(2):
            assert np.isfinite(score_group(ranker, here)).all()
    assert caplog.text.count("longer than the 24 tokens") == 1
    assert caplog.text.count("an action 'cache_write'") == 1


def test_programs_of_others_are_ranked_by_their_actions(trained):
    own = group(UNSEEN, 4)
    foreign = [Program(actions=p.actions) for p in own.programs]
    scores = trained.score([*own.programs, *foreign], own.machine)
    assert np.isfinite(scores).all()
    assert np.allclose(scores[: len(own)], score_group(trained, own), atol=1e-3)
    states, _ = trained._states([None, own.programs[0].candidate])
    assert not states[0].any() and states[1].any()
    assert np.isfinite(score_group(trained, nest_group((64, 64, 64), 4))).all()


# In a run


def measured(candidate, seconds):
    return Trial.of(candidate, Measurement(Status.OK, (seconds,), (True,)), "e", {})


def scaled(ranker, scale=0.5):
    """The ranker as if its scores were worth something."""
    found = copy.copy(ranker)
    found.scale = scale
    return found


def test_alone_it_learns_nothing_in_the_run(switched, trained):
    candidates = [p.candidate for p in group(UNSEEN).programs]
    programs = [Program(candidate=candidate) for candidate in candidates]
    for ranker in map(scaled, (trained, switched(state="final"))):
        options = {"ranker": ranker, "online": False, "draft": "ranker"}
        model = cost.create("world", rng=0, hardware=CPU, **options)
        before = model.predict(candidates).score
        np.testing.assert_allclose(before, 0.5 * ranker.score(programs, CPU))
        model.update([measured(each, 1e-3 * at) for at, each in enumerate(candidates, 1)])
        np.testing.assert_array_equal(model.predict(candidates).score, before)
        np.testing.assert_array_equal(model.draft(candidates), before)
        assert model.abilities.informed_draft


def test_names():
    assert rankers.create("world:reference").config.objective == "ndcg"
    assert rankers.needs("world:reference").decisions_only
    assert rankers.create("world:variants", state="final").needs.programs


# A head


def test_a_head_without_hardware_sees_every_machine_alike():
    given = {**small_world.OPTIONS, "head": True, "world": small_world.trained()._world}
    ranker = WorldVariants(**given, hardware=False)
    ranker.fit([small_world.group(name) for name in small_world.LEARNED_FROM])
    candidates = space("softmax").sample(np.random.default_rng(0), 5)
    machine = candidates[0].hardware
    assert not ranker._factors_of(machine).any()
    assert small_world.trained()._factors_of(machine).any()
    assert np.isfinite(ranker.member_scores(candidates, machine)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "text"}, "target='features' must hold for a head.*got 'text'"),
        ({"state": "final"}, "state='predicted' must hold"),
        (
            {"transition_options": {"action_embedding": "text"}},
            "action_embedding='numbers' or 'both'",
        ),
        ({"actions": False}, "actions=True must hold.*head_reads='states'"),
    ],
)
def test_what_has_no_derivative_gets_no_head(options, message):
    with pytest.raises(BadInputError, match=message):
        WorldVariants(head=True, **options)
