"""The ranker behaviour: two stages, devices told or hidden, files, and the contract of rankers."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.cost import rankers, score_group
from foretune.cost._ranker import Ranker
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost.behaviour.answers import Counts
from foretune.cost.behaviour.columns import NAMES, SCORE_NAMES
from foretune.cost.behaviour.composition import best_first, coarse, composed
from foretune.cost.behaviour.ranker import BehaviourRanker
from foretune.cost.behaviour.scores import AnalyticScores, ScoreSource, scores_alone
from foretune.dataset import Group, Program
from foretune.describe import METRICS, behaviours
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.hardware import device_of, hardware_of, known_devices
from foretune.testing import rankers as suite
from foretune.testing.rankers import NEST_HARDWARE, Subject
from foretune_research.behaviour.identities import Disguised
from foretune_research.behaviour.ranker import BehaviourVariants
from tests.cost.behaviour.behaviour_support import DEVICES, UNSEEN, nest_analysis

NEST = {"read_nests": suite.nest_batches, "threads": 1}
QUICK = {"stage": "2", "rounds": 60, "min_child_weight": 5.0}
LEARN = {**QUICK, "rounds": 150, "min_child_weight": 2.0, "learning_rate": 0.15}
SOURCE = AnalyticScores(nest_analysis)
"""Times of the suite follow a formula of its own, which the scores of real kernels do not know."""


# Small data want other leaves: this is the product's ranker with more options.


def subject(*, seed):
    return BehaviourVariants(seed=seed, source=SOURCE, **NEST, **LEARN)


SUBJECT = Subject(
    subject,
    functools.partial(BehaviourVariants.load, source=SOURCE, **NEST),
    needs_device=True,
)


def make(**options):
    return BehaviourVariants(**{**NEST, **QUICK, **options})


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(SUBJECT)


class ByFirst(Ranker):
    """A first stage that scores by the first factor of the first tile, and keeps no file."""

    def __init__(self, *, seed=0):
        self.seed = seed

    def fit(self, groups, validation=()):
        pass

    def score(self, programs, machine, hardware=""):
        return np.array([float(p.candidate.decisions[0][0]) for p in programs])

    def save(self, path):
        write_model(path, "by_first", {"seed": self.seed}, {})

    @classmethod
    def load(cls, path, **parts):
        return cls(seed=read_model(path)[0]["seed"])


@pytest.fixture(autouse=True)
def first_stage():
    rankers.register("by_first", ByFirst)
    yield
    rankers.unregister("by_first")


GROUPS = suite.training_groups(24)
UNSEEN_GROUP = suite.nest_group(suite.UNSEEN_SHAPES[1], 60, seed=3)


def fitted(**options):
    made = make(**options)
    made.fit(GROUPS)
    return made


def test_every_survivor_stands_before_every_program_that_is_discarded():
    both = fitted(stage="both", first="by_first", keep=10)
    second = fitted()
    scores, wanted = score_group(both, UNSEEN_GROUP), score_group(second, UNSEEN_GROUP)
    legal = ~np.isnan(wanted)
    assert (np.isnan(scores) == ~legal).all()
    before = np.array([float(p.candidate.decisions[0][0]) for p in UNSEEN_GROUP.programs])
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf))
    survivors, discarded = order[:10], order[10 : legal.sum()]
    assert before[survivors].min() >= before[discarded].max()
    assert scores[survivors].min() > scores[discarded].max()
    # Survivors as the second stage has them, the discarded as the first.
    np.testing.assert_allclose(scores[survivors], wanted[survivors])
    assert (np.diff(before[discarded]) <= 0).all()


def test_where_all_survive_the_second_stage_decides_alone():
    both = fitted(stage="both", first="by_first", keep=60)
    np.testing.assert_array_equal(
        score_group(both, UNSEEN_GROUP), score_group(fitted(), UNSEEN_GROUP)
    )


def test_the_first_stage_alone():
    alone = fitted(stage=1, first="by_first")
    scores = score_group(alone, UNSEEN_GROUP)
    legal = ~np.isnan(scores)
    before = np.array([float(p.candidate.decisions[0][0]) for p in UNSEEN_GROUP.programs])
    np.testing.assert_array_equal(scores[legal], before[legal])


@given(
    st.lists(st.integers(0, 5) | st.none(), min_size=1, max_size=20),
    st.integers(1, 8),
    st.integers(0, 5),
)
def test_composition(first, keep, seed):
    first = np.array([np.nan if v is None else float(v) for v in first])
    legal = np.flatnonzero(~np.isnan(first))
    if not len(legal):
        return
    survivors = np.sort(legal[best_first(first[legal], seed)[:keep]])
    second = np.random.default_rng(seed).normal(size=len(survivors)) * 10
    scores = composed(first, survivors, second)
    assert (np.isnan(scores) == np.isnan(first)).all()
    assert (scores[survivors] == second).all()
    discarded = np.setdiff1d(legal, survivors)
    if len(discarded):
        assert scores[discarded].max() < second.min()
        assert first[discarded].max() <= first[survivors].min()
        for i in discarded:
            for j in discarded:
                assert (scores[i] < scores[j]) == (first[i] < first[j])


def test_ties_are_not_broken_by_the_order_of_the_file():
    first = best_first(np.zeros(40), 0)[:5]
    assert sorted(first) != list(range(5)) and len(set(first)) == 5
    assert best_first(np.array([np.nan, 1.0, 2.0]), 0).tolist() == [2, 1, 0]


def on(group, device):
    return replace(group, device=device, machine=None, hardware=device.key)


def test_another_device_changes_the_order_and_the_same_data_sheet_does_not():
    made = make()
    made.fit([on(group, DEVICES[i % 4]) for i, group in enumerate(GROUPS)])
    one = score_group(made, on(UNSEEN_GROUP, DEVICES[0]))
    twin = replace(DEVICES[0], key="twin", name="of another name")
    np.testing.assert_array_equal(one, score_group(made, on(UNSEEN_GROUP, twin)))
    other = score_group(made, on(UNSEEN_GROUP, DEVICES[2]))
    known = ~np.isnan(one)
    assert (np.argsort(one[known]) != np.argsort(other[known])).any()


def test_without_factors_all_devices_are_one():
    made = make(factors=False)
    made.fit([on(group, DEVICES[i % 4]) for i, group in enumerate(GROUPS)])
    np.testing.assert_array_equal(
        score_group(made, on(UNSEEN_GROUP, DEVICES[0])), score_group(made, on(UNSEEN_GROUP, UNSEEN))
    )


def test_shuffled_devices_are_others_of_their_kind_and_always_the_same():
    one, other = Disguised("shuffled", 0), Disguised("shuffled", 0)
    for device in known_devices().values():
        shown = one.shown(device)
        assert shown.key != device.key and shown.kind == device.kind
        assert other.shown(device) == shown
    assert any(
        Disguised("shuffled", seed).shown(UNSEEN) != one.shown(UNSEEN) for seed in range(1, 9)
    )


def test_whatever_a_data_sheet_says_is_in_the_file(tmp_path):
    arm = replace(DEVICES[0], key="arm", instruction_set="aarch64", neon_pipes=2.0, in_order=True)
    made = make()
    made.fit([on(group, arm) for group in GROUPS])
    made.save(tmp_path / "model.npz")
    again = rankers.load(tmp_path / "model.npz", **NEST)
    assert again._identities.devices == {"arm": arm}


def test_a_memory_knows_what_other_devices_took():
    """Seconds that no description tells: only other devices know them."""
    rng = np.random.default_rng(1)
    groups = []
    for shape in suite.TRAINING_SHAPES[:3]:
        whole = suite.nest_group(shape, 40)
        hidden = 2.0 ** rng.uniform(0, 3, 40)
        for device in (*DEVICES, UNSEEN):
            times = 1e-3 * hidden * 2 ** rng.normal(0, 0.1, 40)
            groups.append(replace(on(whole, device), seconds=times))
    training = [group for group in groups if group.device is not UNSEEN]
    found = {}
    for memory in (False, True):
        made = make(memory=memory)
        made.fit(training)
        found[memory] = np.mean(
            [
                suite.pair_accuracy(score_group(made, group), group.seconds)
                for group in groups
                if group.device is UNSEEN
            ]
        )
    # Without it trees learn the programs themselves, by heart and worse.
    assert found[True] > 0.9 > found[False]


def test_a_memory_is_kept_in_the_file(tmp_path):
    made = make(memory=True)
    made.fit([on(group, device) for group in GROUPS[:3] for device in DEVICES])
    made.save(tmp_path / "model.npz")
    again = rankers.load(tmp_path / "model.npz", read_nests=suite.nest_batches)
    known = on(GROUPS[0], UNSEEN)
    scores = score_group(made, known)
    np.testing.assert_allclose(score_group(again, known), scores, atol=1e-4)
    assert isinstance(again, BehaviourVariants) and again.memory_used


@pytest.mark.parametrize("stage", ["1", "both"])
def test_both_stages_are_in_the_file(tmp_path, stage):
    made = fitted(stage=stage, first="by_first", keep=5)
    made.save(tmp_path / "model.npz")
    again = rankers.load(tmp_path / "model.npz", **NEST)
    np.testing.assert_allclose(score_group(again, UNSEEN_GROUP), score_group(made, UNSEEN_GROUP))
    assert rankers.load_for_run(tmp_path / "model.npz").stage == stage


class Steps(ScoreSource):
    """Scores rounded to halves, and nothing else: as coarse as a language model."""

    name = "llm"

    def __init__(self):
        self.counts = Counts()

    def behaviours(self, nests, device):
        return scores_alone(device, np.round(behaviours(nests, device).scores * 2) / 2)


def test_what_was_trained_on_formulas_serves_scores_alone(tmp_path):
    made = fitted()
    made.save(tmp_path / "model.npz")
    other = BehaviourVariants.load(tmp_path / "model.npz", source=Steps(), scores="llm", **NEST)
    scores = score_group(other, UNSEEN_GROUP)
    assert suite.pair_accuracy(scores, UNSEEN_GROUP.seconds) > 0.6
    known = ~np.isnan(scores)
    assert (scores[known] != score_group(made, UNSEEN_GROUP)[known]).any()


class Mute(AnalyticScores):
    """Says nothing usable of a share of the programs."""

    name = "llm"

    def __init__(self, share):
        super().__init__()
        self.share = share

    def behaviours(self, nests, device):
        self.counts.programs += len(nests)
        self.counts.fallback += round(self.share * len(nests))
        return super().behaviours(nests, device)


def test_a_ranker_is_not_trained_on_formulas_in_place_of_a_language_model():
    silent = make(source=Mute(0.9))
    with pytest.raises(BadInputError, match=r"scores=llm needs.*formulas answered.*analytic"):
        silent.fit(GROUPS)
    assert silent.source.counts.programs < sum(map(len, GROUPS)), "it is sure before the end"
    made = make(source=Mute(0.4))
    made.fit(GROUPS)
    assert made.status["scores"] == "llm"
    assert made.status["fallback"] == pytest.approx(0.4 * made.status["programs"], rel=0.1)
    assert fitted().status == {}


def test_what_was_trained_on_a_models_scores_is_read_without_the_model(tmp_path):
    made = make(source=Steps())
    made.fit(GROUPS)
    made.save(tmp_path / "model.npz")
    again = rankers.load(tmp_path / "model.npz", **NEST)
    assert again.scores == "llm"
    with pytest.raises(BadInputError, match="model=MODEL@URL"):
        score_group(again, UNSEEN_GROUP)


def test_what_was_trained_on_a_models_scores_does_not_serve_others(tmp_path):
    made = make(source=Steps())
    made.fit(GROUPS)
    made.save(tmp_path / "model.npz")
    with pytest.raises(BadInputError, match=r"'llm'.*'analytic'.*train it"):
        BehaviourVariants.load(tmp_path / "model.npz", scores="analytic", **NEST)


def test_coarse_scores_are_steps_in_range_and_nothing_else():
    table = np.random.default_rng(0).random((200, len(NAMES)))
    found = coarse(table, np.random.default_rng(1))
    scores = found[:, : len(SCORE_NAMES)]
    known = scores[~np.isnan(scores)]
    np.testing.assert_allclose(known * 20, np.round(known * 20), atol=1e-9)
    assert 0.02 < np.isnan(scores).mean() < 0.1 and known.min() >= 0 and known.max() <= 1
    assert np.isnan(found[:, NAMES.index("log2_seconds")]).all()
    np.testing.assert_array_equal(found[:, -1], table[:, -1])


def test_so_many_programs_of_a_group_are_described():
    seen = []

    def read(candidates):
        seen.append(len(candidates))
        return suite.nest_batches(candidates)

    make(read_nests=read, programs=9).fit(GROUPS[:3])
    assert seen == [9, 9, 9]


def on_an_unknown_board(group):
    return replace(group, machine=None, device=None, hardware="unknownboard", source="lab.log")


@pytest.mark.parametrize("factors", [True, False, "shuffled"])
def test_a_group_whose_device_nobody_knows_is_refused_by_name(factors):
    """Not judged as the commonest device of training, in controls neither."""
    told = r"'unknownboard' \(lab\.log\).*--devices FILE\.json.*\{\"unknownboard\": \{\"same_as\""
    made = fitted(factors=factors)
    with pytest.raises(BadInputError, match=told):
        score_group(made, on_an_unknown_board(UNSEEN_GROUP))
    with pytest.raises(BadInputError, match="'unknownboard'"):
        made.score(UNSEEN_GROUP.programs, None, "unknownboard")
    with pytest.raises(BadInputError, match="nothing is known of the device:"):
        made.score(UNSEEN_GROUP.programs, None)


def test_one_group_of_an_unknown_device_is_not_learned_from_as_another():
    mixed = [*GROUPS[1:], on_an_unknown_board(GROUPS[0])]
    with pytest.raises(BadInputError, match="'unknownboard'"):
        make().fit(mixed)


def test_a_first_stage_that_needs_no_device_goes_without():
    alone = fitted(stage=1, first="by_first")
    scores = score_group(alone, on_an_unknown_board(UNSEEN_GROUP))
    np.testing.assert_array_equal(scores, score_group(alone, UNSEEN_GROUP))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stage": 3}, "'3'.*1, 2, both|both"),
        ({"keep": 0}, "keep >= 1"),
        ({"programs": 1}, "programs >= 2"),
        ({"keep": "all"}, "keep must be int"),
        ({"scores": "gut"}, "'gut'"),
        ({"factors": "swapped"}, "'swapped'"),
        ({"lambda": 2.0}, "behaviour: `0 <= lambda <= 1` must hold, but got lambda=2"),
        ({"lambda": 0.5, "rank_share": 0.5}, "lambda and rank_share are one"),
        ({"rounds": "many"}, "behaviour: rounds must be int"),
        ({"regressor": "forest"}, "'forest'"),
        ({"deep": 1}, "'deep'"),
        ({"kep": 1}, "behaviour.* has no option 'kep': .*stage, keep, .*lambda.*depth"),
        ({"first": "foo", "stage": 2}, "first stage of behaviour 'foo': .*classifier"),
        ({"scores": "hf"}, "model=FOLDER"),
        ({"scores": "llm"}, "--llm.*--option model=MODEL@URL"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, told):
    with pytest.raises(BadInputError, match=told):
        BehaviourVariants(**options)


def test_what_only_studies_change_is_refused_by_the_product():
    for options in ({"factors": False}, {"line": False}, {"depth": 3}):
        with pytest.raises(BadInputError, match="is one of the package foretune_research"):
            BehaviourRanker(**options)
    with pytest.raises(BadInputError, match="no option 'lambda'"):
        BehaviourRanker(**{"lambda": 0.5})


def test_options_of_a_command_line():
    rankers.needs("behaviour").refuse_text("behaviour", {"stage": 2, "memory": True})
    rankers.needs("behaviour:variants").refuse_text("x", {"stage": 2, "factors": "shuffled"})
    with pytest.raises(BadInputError, match="source can be given in Python only"):
        rankers.needs("behaviour").refuse_text("behaviour", {"source": "x"})


def test_a_file_of_another_version_is_refused(tmp_path):
    path = tmp_path / "model.npz"
    fitted().save(path)
    meta, arrays = read_model(path)
    write_model(path, "behaviour:variants", {**meta, "versions": {"schema": 0}}, arrays)
    with pytest.raises(VersionMismatchError, match="versions"):
        BehaviourVariants.load(path, **NEST)
    write_model(path, "random", meta, arrays)
    with pytest.raises(RecordError, match="'behaviour:variants'"):
        BehaviourVariants.load(path, **NEST)


def test_logged_programs_that_nothing_rebuilds_are_refused():
    program = Program(actions=GROUPS[0].programs[0].actions)
    group = Group("w", "w", "x", "cpu0", [program], np.array([1.0]), device=DEVICES[0])
    with pytest.raises(BadInputError, match="gbdt_actions"):
        score_group(fitted(), group)


def test_the_nest_machine_is_a_device_with_a_data_sheet():
    device = device_of(NEST_HARDWARE)
    assert device.kind == "cpu" and device.value("cores") >= 1
    assert len(METRICS) == 16 and hardware_of(UNSEEN).kind == "llvm"
