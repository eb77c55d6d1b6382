"""A pretrained model: informed at once, corrected by measurements, and absent where untrained."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import ClassVar

import numpy as np
import pytest

from foretune import cost
from foretune.cost import Abilities, Needs, Ranker, rankers, shipped
from foretune.cost._opinions import expectation
from foretune.cost.gbdt import GbdtConfig, GradientBoosting, program_vector
from foretune.cost.pretrained import PretrainedModel
from foretune.dataset import Program
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.features import machine_fit
from foretune.measure import Measurement, Status
from foretune.records import Trial
from foretune.testing.rankers import (
    NEST_HARDWARE,
    is_legal,
    nest_features,
    nest_seconds,
    nest_space,
    training_groups,
    unseen_groups,
)
from foretune.tuning import resolve_names
from tests.space.programs import CPU, space

SHAPE = (128, 128, 128)


@pytest.fixture(autouse=True)
def weights(tmp_path, monkeypatch):
    """A package without weights, or with those that a test puts here."""
    folder = tmp_path / "package" / "weights"
    folder.mkdir(parents=True)
    monkeypatch.setattr(shipped.importlib.resources, "files", lambda _package: folder.parent)
    return folder


class Expert(Ranker):
    """Knows the latency of nests, in another unit, or the opposite of it."""

    def __init__(self, factor=1.0, reads=True):
        self.factor = factor
        self.needs = Needs(programs=reads)
        self.scale = 0.5
        self.scored = 0

    def fit(self, groups, validation=()):
        """Trained already."""

    def score(self, programs, machine, hardware=""):
        assert machine is programs[0].candidate.hardware and hardware == machine.key
        self.scored += len(programs)
        level = [-2 * np.log2(nest_seconds(p.candidate)) for p in programs]
        return self.factor * np.array(level, dtype=np.float64)

    def save(self, path):
        """Nothing to save."""

    @classmethod
    def load(cls, path):
        """There is only one."""
        return cls()


def model(ranker=None, **options):
    options = {"extract": nest_features, **options}
    return PretrainedModel(
        rng=np.random.default_rng(0), hardware=NEST_HARDWARE, ranker=ranker or Expert(), **options
    )


def without_sisters(made):
    """The model, where no workload teaches another."""

    class Alone(GbdtConfig):
        sisters: ClassVar[float] = 0.0

    trees = made._correction
    trees.config = Alone(**asdict(trees.config))
    return made


def nests(n=64, seed=0, shape=SHAPE):
    """Candidates that run."""
    drawn = nest_space(shape).sample(np.random.default_rng(seed), 2 * n)
    return [c for c in drawn if not np.isnan(nest_seconds(c))][:n]


def test_the_ranker_is_asked_once_about_a_candidate():
    expert = Expert()
    made, some = model(expert), nests(24)
    first = made.predict([*some, *some]).score
    assert expert.scored == 24
    made.update(records(some))
    made.predict(some)
    assert expert.scored == 24
    np.testing.assert_array_equal(first[:24], first[24:])
    np.testing.assert_allclose(first[:24], model(Expert()).predict(some).score)


def test_what_the_ranker_said_is_forgotten_some_day():
    expert = Expert()
    made, some = model(expert, cache=8), nests(24)
    score = made.predict(some).score
    made.predict(some[-8:])
    assert expert.scored == 24
    np.testing.assert_array_equal(made.predict(some).score, score)
    assert expert.scored > 24


def levels(candidates):
    return -np.log2([nest_seconds(candidate) for candidate in candidates])


def records(candidates, factor=lambda candidate: 1.0):
    made = []
    for candidate in candidates:
        seconds = nest_seconds(candidate) * factor(candidate)
        measurement = Measurement(Status.OK, (seconds,), (True,))
        made.append(Trial.of(candidate, measurement, "test", {}))
    return made


def correlation(a, b):
    return float(np.corrcoef(a, b)[0, 1])


class TestBlend:
    def test_scores_mean_something_before_any_measurement(self):
        made, candidates = model(), nests()
        assert made.abilities.ready and made.abilities.informed
        np.testing.assert_allclose(made.predict(candidates).score, levels(candidates))

    def test_the_scale_makes_log2_slow_downs_of_scores(self):
        expert = Expert()
        expert.scale = 0.25
        np.testing.assert_allclose(model(expert).predict(nests()).score, levels(nests()) / 2)

    def test_an_expert_is_still_believed_after_a_batch(self):
        made = model()
        made.update(records(nests(8)))
        unseen = nests(64, seed=1)
        assert correlation(made.predict(unseen).score, levels(unseen)) > 0.97

    def test_one_that_misleads_is_forgotten(self):
        made = model(Expert(factor=-1.0))
        unseen = nests(64, seed=1)
        assert correlation(made.predict(unseen).score, levels(unseen)) < -0.99
        made.update(records(nests(96)))
        assert correlation(made.predict(unseen).score, levels(unseen)) > 0.3

    def test_measurements_correct_what_the_ranker_does_not_know(self):
        """Here unrolling costs a factor of eight, of which no other workload knew."""

        def factor(candidate):
            return 8.0 if candidate.decisions[5] == 3 else 1.0

        made, unseen = model(), nests(200, seed=1)
        true = levels(unseen) - np.log2([factor(c) for c in unseen])
        before = correlation(made.predict(unseen).score, true)
        made.fit(records(nests(96), factor))
        assert correlation(made.predict(unseen).score, true) > before + 0.02

    def test_the_trees_have_the_less_to_say_the_less_was_measured(self):
        few, many = model(trust=1e9), model(trust=0)
        for made in (few, many):
            made.update(records(nests(24)))
        unseen = nests(32, seed=1)
        np.testing.assert_allclose(few.predict(unseen).spread, 0, atol=1e-6)
        assert correlation(few.predict(unseen).score, levels(unseen)) > 0.999
        assert (many.predict(unseen).spread > 0).any()

    def test_workloads_are_told_apart(self):
        made = without_sisters(model())
        other = nests(24, shape=(64, 64, 64))
        made.update(records(nests(24)))
        mixed = [*other, *nests(8, seed=2)]
        score = made.predict(mixed).score
        np.testing.assert_allclose(score[:24], levels(other))

    def test_what_one_workload_taught_is_used_on_another(self):
        made, plain = model(), without_sisters(model())
        other, seconds = nests(48, shape=(64, 64, 64)), lambda c: nest_seconds(c) ** -2
        for each in (made, plain):
            each.update(records(nests(64), seconds))
        truth = -np.log2([seconds(c) for c in other])
        told = np.corrcoef(made.predict(other).score, truth)[0, 1]
        untold = np.corrcoef(plain.predict(other).score, truth)[0, 1]
        assert untold == pytest.approx(-1) and told > untold

    def test_illegal_programs_are_nan_and_failures_are_taken(self):
        made = model()
        drawn = nest_space(SHAPE).sample(np.random.default_rng(3), 200)
        failed = Measurement(Status.CRASH, message="segmentation fault")
        made.update([replace(r, measurement=failed) for r in records(nests(20))])
        score = made.predict(drawn).score
        assert (np.isnan(score) == [not is_legal(c) for c in drawn]).all()

    def test_fit_forgets_the_run_but_not_the_training(self):
        made = model()
        made.update(records(nests(64), lambda c: nest_seconds(c) ** -2))
        made.fit([])
        np.testing.assert_allclose(made.predict(nests()).score, levels(nests()))


class Refusing(Expert):
    """Finds that illegal nests are illegal, as rankers do that make programs."""

    def score(self, programs, machine, hardware=""):
        scores = super().score(programs, machine, hardware)
        legal = [is_legal(program.candidate) for program in programs]
        return np.where(legal, np.nan_to_num(scores, nan=-99.0), np.nan)


class TestAlone:
    """What is measured changes nothing."""

    def made(self, ranker, **options):
        # Nests have no programs: whoever reads features of theirs fails.
        return model(ranker, extract=None, online=False, **options)

    @pytest.mark.parametrize("factor", [1.0, -1.0])
    def test_measurements_change_nothing(self, factor):
        made, unseen = self.made(Expert(factor)), nests(64, seed=1)
        for learn in (made.update, made.fit):
            learn(records(nests(64)))
            np.testing.assert_allclose(made.predict(unseen).score, factor * levels(unseen))
        assert not made.predict(unseen).spread.any()

    def test_another_draft_is_not_judged_either(self):
        made = self.made(Expert(), draft=Expert(factor=-1.0, reads=False))
        made.update(records(nests(64)))
        np.testing.assert_allclose(made.draft(nests()), -levels(nests()))

    def test_illegal_programs_are_nan_and_drafted_last(self):
        made = self.made(Refusing(), draft="ranker")
        drawn = nest_space(SHAPE).sample(np.random.default_rng(3), 200)
        legal = np.array([is_legal(candidate) for candidate in drawn])
        assert (np.isnan(made.predict(drawn).score) == ~legal).all() and not legal.all()
        drafted = made.draft(drawn)
        assert np.isfinite(drafted).all()
        assert drafted[~legal].max() < drafted[legal].min()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"rounds": 3}, "rounds must be left out where online=False, but got 3"),
            ({"extract": nest_features}, "extract must be left out where online=False"),
            ({"online": "no"}, "online must be bool, but got 'no'"),
        ],
    )
    def test_what_would_have_no_effect_is_refused(self, options, message):
        given = {"extract": None, "online": False, **options}
        with pytest.raises(BadInputError, match=message):
            model(Expert(), **given)

    def test_features_of_actions_are_one_row_already(self):
        with pytest.raises(BadInputError, match="aggregate is for features of stores"):
            model(Expert(reads=False), extract=None, aggregate=program_vector)
        made = model(Expert(reads=False), extract=nest_features, aggregate=program_vector)
        made.update(records(nests()))
        assert made.predict(nests()).score.shape == (len(nests()),)


class TestDraft:
    def test_a_ranker_of_actions_drafts_for_itself(self):
        made = model(Expert(reads=False))
        np.testing.assert_allclose(made.draft(nests()), levels(nests()))

    def test_one_that_reads_programs_does_not(self):
        expert = Expert()
        made = model(expert)
        np.testing.assert_allclose(made.draft(nests()), machine_fit(nests()))
        assert expert.scored == 0

    def test_one_that_reads_programs_drafts_itself_where_asked(self):
        made = model(Expert(), draft="ranker")
        assert made.abilities.informed_draft
        np.testing.assert_allclose(made.draft(nests()), levels(nests()))
        misled = model(Expert(factor=-1.0), draft="ranker")
        misled.update(records(nests(64)))
        np.testing.assert_allclose(misled.draft(nests(16, seed=1)), 0, atol=1e-9)

    def test_it_may_have_another_draft_for_it(self):
        made = model(Expert(), draft=Expert(factor=3.0, reads=False))
        np.testing.assert_allclose(made.draft(nests()), 3 * levels(nests()))
        np.testing.assert_allclose(made.predict(nests()).score, levels(nests()))

    @pytest.mark.parametrize("reads", [True, False])
    def test_one_that_misleads_is_forgotten(self, reads):
        """Where no program is read, the trees put something better in its place."""
        misled = Expert(factor=-1.0, reads=False)
        options = {"draft": misled} if reads else {"extract": None}
        made = model(Expert(factor=-1.0) if reads else misled, **options)
        unseen = nests(64, seed=1)
        assert correlation(made.draft(unseen), levels(unseen)) < -0.99
        made.update(records(nests(64)))
        if reads:
            np.testing.assert_allclose(made.draft(unseen), 0, atol=1e-9)
        else:
            assert correlation(made.draft(unseen), levels(unseen)) > 0.2
        made.fit([])
        assert correlation(made.draft(unseen), levels(unseen)) < -0.99

    def test_a_draft_is_forgotten_on_the_workload_it_misleads_on(self):
        made = model(Expert(), draft=Expert(factor=-1.0, reads=False))
        made.update(records(nests(64)))
        other = nests(16, shape=(64, 64, 64))
        np.testing.assert_allclose(made.draft(other), -levels(other))

    def test_one_that_reads_no_program_drafts_with_the_trees(self):
        made = model(Expert(reads=False), extract=None)
        made.update(records(nests(24)))
        unseen = nests(16, seed=1)
        np.testing.assert_array_equal(made.draft(unseen), made.predict(unseen).score)

    def test_only_a_trained_draft_is_informed(self):
        assert model(Expert(reads=False)).abilities.informed_draft
        assert model(Expert(), draft=Expert(reads=False)).abilities.informed_draft
        untrained = model(Expert())
        assert untrained.abilities.informed and not untrained.abilities.informed_draft
        assert not cost.create("gbdt:scratch").abilities.informed_draft

    def test_a_draft_that_reads_programs_is_refused(self):
        with pytest.raises(BadInputError, match="drafts must not read programs"):
            model(Expert(), draft=Expert())

    def test_unknown_ones_are_not_nan(self):
        class Unsure(Expert):
            def score(self, programs, machine, hardware=""):
                return np.full(len(programs), np.nan)

        assert (model(Unsure(reads=False)).draft(nests(8)) == 0).all()

    def test_models_without_training_draft_by_the_machine(self):
        made = cost.create("gbdt:scratch")
        np.testing.assert_array_equal(made.draft(nests()), machine_fit(nests()))
        assert not made.abilities.informed


@pytest.fixture(scope="module")
def trained():
    options = {"min_child_weight": 0.5, "learning_rate": 0.15, "columns": 0.4}
    ranker = rankers.create("gbdt_actions", rounds=80, **options)
    ranker.fit(training_groups(32), unseen_groups(32)[:1])
    return ranker


class TestActionRanker:
    """A model that never reads a program, from end to end."""

    def test_predicting_makes_no_program(self, trained):
        made = PretrainedModel(rng=np.random.default_rng(0), hardware=NEST_HARDWARE, ranker=trained)
        made.update(records(nests(24)))
        unseen = nests(64, seed=1)
        assert correlation(made.predict(unseen).score, levels(unseen)) > 0.6
        assert correlation(made.draft(unseen), levels(unseen)) > 0.5

    def test_it_is_read_from_a_file(self, trained, tmp_path):
        trained.save(tmp_path / "mine.npz")
        for name in (tmp_path / "mine.npz", str(tmp_path / "mine.npz")):
            made = cost.create("mlp", hardware=NEST_HARDWARE, ranker=name)
            np.testing.assert_allclose(
                made.draft(nests(8)), expectation(trained, nests(8)), rtol=1e-5
            )

    def test_real_candidates_are_scored(self, trained):
        made = PretrainedModel(rng=np.random.default_rng(0), hardware=CPU, ranker=trained)
        drawn = space("conv2d_nhwc").sample(np.random.default_rng(0), 16)
        assert np.isfinite(made.predict(drawn).score).all()


class TestShipped:
    def put(self, path, **options):
        ranker = rankers.create("gbdt_actions", rounds=5, **options)
        ranker.fit(training_groups(8))
        ranker.save(path)

    def test_without_weights_gbdt_is_what_it_was(self, weights):
        made = cost.create("gbdt", rng=3, hardware=NEST_HARDWARE)
        assert isinstance(made, GradientBoosting) and made.abilities == Abilities(ready=False)
        scratch = cost.create("gbdt:scratch", rng=3, hardware=NEST_HARDWARE)
        assert (made.config, made._seed) == (scratch.config, scratch._seed)

    def test_with_weights_it_is_informed(self, weights):
        self.put(weights / "default-llvm.npz")
        made = cost.create("gbdt", hardware=NEST_HARDWARE)
        assert isinstance(made, PretrainedModel) and made.abilities.informed
        assert not cost.create("gbdt:scratch", hardware=NEST_HARDWARE).abilities.informed

    def test_weights_of_another_kind_of_target_are_not_used(self, weights):
        self.put(weights / "default-llvm.npz")
        gpu = replace(NEST_HARDWARE, target='{"kind": "cuda"}')
        assert not cost.create("gbdt", hardware=gpu).abilities.informed
        assert not cost.create("gbdt").abilities.informed

    @pytest.mark.parametrize("options", [{"online": False}, {"draft": "ranker"}])
    def test_options_of_weights_are_refused_where_none_fit(self, options):
        with pytest.raises(BadInputError, match=f"{next(iter(options))} is for a trained ranker"):
            cost.create("gbdt", **options)

    def test_a_ranker_of_one_s_own_needs_no_hardware(self):
        assert cost.create("gbdt", ranker=Expert(reads=False)).abilities.informed

    def test_features_of_one_s_own_are_not_mixed_with_them(self, weights):
        self.put(weights / "default-llvm.npz")
        made = cost.create("gbdt", hardware=NEST_HARDWARE, extract=nest_features)
        assert isinstance(made, GradientBoosting)

    @pytest.mark.parametrize(
        "change",
        [
            {"simd_bits": 0},
            {"l1_bytes": 0},
            {"l2_bytes": 0},
            {"target": '{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}'},
        ],
    )
    def test_hardware_of_which_too_little_is_known_starts_from_scratch(self, weights, change):
        self.put(weights / "default-llvm.npz")
        assert not cost.create("gbdt", hardware=replace(NEST_HARDWARE, **change)).abilities.informed

    def test_a_triple_of_the_same_architecture_is_known(self, weights):
        self.put(weights / "default-llvm.npz")
        known = replace(NEST_HARDWARE, target='{"kind": "llvm", "mtriple": "x86_64-linux-gnu"}')
        assert cost.create("gbdt", hardware=known).abilities.informed

    def test_they_use_one_thread_however_they_were_trained(self, weights):
        self.put(weights / "default-llvm.npz", threads=2)
        assert cost.create("gbdt", hardware=NEST_HARDWARE).ranker.config.threads == 1

    def test_options_reach_the_trees(self, weights):
        self.put(weights / "default-llvm.npz")
        made = cost.create("gbdt", hardware=NEST_HARDWARE, rounds=7, trust=3)
        trees = made._correction.config
        assert (trees.rounds, trees.trust) == (7, 3)
        given = cost.create("gbdt", hardware=NEST_HARDWARE, prior_strength=1e6)
        for each in (made, given):
            each.update(records(nests(24), lambda c: nest_seconds(c) ** -2))
        # What misleads counts for less after as many measurements as it says, or as somebody says.
        kept, left = (np.ptp(each.predict(nests()).score) for each in (given, made))
        assert left < 0.8 * kept
        with pytest.raises(BadInputError, match="no option 'deep'"):
            cost.create("gbdt", hardware=NEST_HARDWARE, deep=1)

    def test_a_draft_comes_with_them(self, weights):
        self.put(weights / "default-llvm.npz")
        made = model(Expert())
        assert not np.allclose(made.draft(nests()), machine_fit(nests()))

    def test_a_head_per_hardware_is_chosen_for_the_one_at_hand(self, weights, caplog):
        pytest.importorskip("torch")
        small = {"embed": (16,), "attention_heads": 2, "decoder": (16,), "epochs": 1}
        ranker = rankers.create("mtl_tlp", threads=1, device="cpu", **small)
        wide = replace(NEST_HARDWARE, name="wide", simd_bits=512, threads=8)
        groups = [
            replace(group, hardware=machine.key, machine=machine)
            for group in training_groups(12)
            for machine in (NEST_HARDWARE, wide)
        ]
        ranker.fit(groups)
        file = weights / "mine.npz"
        ranker.save(file)
        drawn = nests(8)
        programs = [Program(candidate=candidate) for candidate in drawn]
        near = replace(wide, name="unseen", threads=7)
        there = nest_space(SHAPE, near).sample(np.random.default_rng(0), 16)
        with caplog.at_level("INFO", "foretune.cost"):
            made = cost.create(str(file), hardware=NEST_HARDWARE)
            own = made.ranker.scale * ranker.score(programs, NEST_HARDWARE, NEST_HARDWARE.key)
            np.testing.assert_allclose(made.predict(drawn).score, own, rtol=1e-4, atol=1e-5)
            expected = ranker.score([Program(c) for c in there], near, wide.key)
            found = cost.create(str(file), hardware=near).predict(there).score
            np.testing.assert_allclose(found, ranker.scale * expected, rtol=1e-4, atol=1e-5)
        lines = [r.getMessage() for r in caplog.records]
        assert len(lines) == 1 and f"{near.key}: the head of {wide.key}" in lines[0]

    @pytest.mark.parametrize("name", ["mlp", "world", "tlp"])
    def test_named_weights_that_are_missing_say_how_to_get_them(self, weights, name):
        with pytest.raises(BadInputError, match=rf"'{name}'.*'llvm'.*foretune train"):
            cost.create(name, hardware=NEST_HARDWARE)

    def test_weights_of_another_version_are_refused(self, weights, monkeypatch):
        self.put(weights / "default-llvm.npz")
        monkeypatch.setattr("foretune.features.ACTION_FEATURE_VERSION", "another")
        with pytest.raises(VersionMismatchError, match="train"):
            cost.create("gbdt", hardware=NEST_HARDWARE)


def test_a_file_is_a_cost_model_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ranker = rankers.create("gbdt_actions", rounds=20, boosters=1)
    ranker.fit(training_groups(8))
    ranker.save(tmp_path / "mine.npz")
    model = cost.create("mine.npz", rng=0, hardware=NEST_HARDWARE)
    assert isinstance(model, PretrainedModel) and model.abilities.informed
    assert model.ranker.name == "gbdt_actions"
    for name in ("mine.npz", str(tmp_path / "mine.npz")):
        assert resolve_names("default", name)[1] == name
    with pytest.raises(BadInputError, match=r"foretune train.*no other\.npz"):
        resolve_names("default", "other.npz")
    (tmp_path / "torn.npz").write_bytes(b"PK")
    with pytest.raises(RecordError):
        cost.create("torn.npz", rng=0, hardware=NEST_HARDWARE)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("world", ("world", {})),
        ("world:online=false", ("world", {"online": False})),
        ("mlp:formulas:draft=default", ("mlp:formulas", {"draft": "default"})),
        ("w/state=none.npz", ("w/state=none.npz", {})),
        ("a:b=c.npz", ("a:b=c.npz", {})),
        (
            "w/state=none.npz:online=false:draft=ranker",
            ("w/state=none.npz", {"online": False, "draft": "ranker"}),
        ),
    ],
)
def test_a_name_may_hold_options(name, parts):
    assert cost.split_name(name) == parts


def test_options_in_a_name_reach_the_model(tmp_path):
    ranker = rankers.create("gbdt_actions", rounds=5, boosters=1)
    ranker.fit(training_groups(8))
    file = tmp_path / "state=none.npz"
    ranker.save(file)
    assert resolve_names("random", f"{file}:online=false")[1] == f"{file}:online=false"
    learning, alone = (
        cost.create(f"{file}{words}", hardware=NEST_HARDWARE) for words in ("", ":online=false")
    )
    before = alone.predict(nests()).score
    np.testing.assert_array_equal(learning.predict(nests()).score, before)
    for made in (learning, alone):
        made.update(records(nests(24)))
    np.testing.assert_array_equal(alone.predict(nests()).score, before)
    assert not np.allclose(learning.predict(nests()).score, before)
    again = cost.create(f"{file}:online=false", hardware=NEST_HARDWARE, online=True)
    again.update(records(nests(24)))
    assert not np.allclose(again.predict(nests()).score, before), "beside the name comes first"


def test_trees_that_start_anew_read_formulas_by_their_name():
    cost.check_name("gbdt:scratch:features=formulas")
    assert resolve_names("default", "gbdt:scratch:features=formulas")[1].endswith("=formulas")
    made = cost.create("gbdt:scratch:features=formulas")
    assert made._extract.keywords == {"source": "formulas"}
    with pytest.raises(BadInputError, match="source of per-store features of gbdt 'trees'"):
        cost.create("gbdt:scratch:features=trees")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("random:online=false", "'random' has no option 'online': it has none"),
        (
            "gbdt:scratch:online=false",
            "'gbdt:scratch' has no option 'online': choose from features",
        ),
        ("world:rounds=3", "'world' has no option 'rounds': choose from .*online"),
        ("world:online=maybe", "online must be bool, but got 'maybe'"),
        ("world:online=false:online=true", "gives 'online' twice"),
        ("nobody:online=false", "'nobody'.*world"),
        ("no-such.npz:online=false", r"there is no no-such\.npz"),
    ],
)
def test_options_in_a_name_are_refused_before_anything_is_loaded(name, message):
    with pytest.raises(BadInputError, match=message):
        cost.check_name(name)
    with pytest.raises(BadInputError, match=message):
        resolve_names("default", name)
