"""The cost model behaviour: informed at once, corrected by measurements, looking closer by LLM."""

import functools
import json

import numpy as np
import pytest

from foretune import cost, search
from foretune.cost import Abilities, rankers
from foretune.cost._opinions import opinion
from foretune.cost.behaviour.classifier import Classifier
from foretune.cost.behaviour.llm_scores import LlmScores
from foretune.cost.behaviour.model import BehaviourModel, behaviour
from foretune.cost.behaviour.ranker import BehaviourRanker
from foretune.cost.behaviour.scores import AnalyticScores
from foretune.cost.gbdt_ranker import GbdtActionRanker
from foretune.cost.shipped import shipped
from foretune.describe import METRICS
from foretune.errors import BadInputError
from foretune.hardware import preset
from foretune.llm import Answer, LanguageModel, LlmError, Session, SessionConfig
from foretune.testing import cost_models, synthetic_features
from foretune.testing import rankers as suite
from foretune.testing.rankers import NEST_HARDWARE, nest_seconds
from foretune.testing.synthetic import SyntheticSpace
from foretune.tuning import resolve_names, strategy_options
from foretune_research.behaviour.ranker import BehaviourVariants
from tests.cost.behaviour.behaviour_support import tiny_nests

CPU = [metric.name for metric in METRICS if "cpu" in metric.kinds]
SHAPE = suite.UNSEEN_SHAPES[0]


@functools.cache
def trained():
    made = BehaviourVariants(
        read_nests=suite.nest_batches, stage="2", rounds=60, min_child_weight=5.0, threads=1
    )
    made.fit(suite.training_groups(24))
    return made


def synthetic_batches(candidates):
    """Nests of synthetic candidates, which have none: their first tile as two loops."""
    rows = np.array([i for i, c in enumerate(candidates) if c.legal], dtype=np.intp)
    extents = [[candidates[i].decisions[0][0], candidates[i].decisions[0][-1]] for i in rows]
    return [(rows, tiny_nests(extents))] if len(rows) else []


def synthetic(*, rng, **options):
    made = trained().staged("2")
    made._read_nests = synthetic_batches
    return BehaviourModel(rng=rng, ranker=made, extract=synthetic_features, **options)


@functools.cache
def classifier():
    made = shipped("classifier", "llvm")
    made._read_nests = synthetic_batches
    return made


def in_two_stages(*, rng, **options):
    return synthetic(rng=rng, first=classifier(), **options)


FACTORIES = [synthetic, in_two_stages]


@pytest.mark.slow
@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("check", cost_models.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, factory):
    check(factory)


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("check", [cost_models.check_illegal, cost_models.check_empty])
def test_contract_in_short(check, factory):
    check(factory)


def model(**options):
    return BehaviourModel(
        rng=np.random.default_rng(0), hardware=NEST_HARDWARE, ranker=trained(), **options
    )


def test_it_is_informed_before_the_first_measurement():
    made = model()
    assert made.abilities == Abilities(informed=True, informed_draft=True) and made.status == {}
    candidates = [p.candidate for p in suite.nest_group(SHAPE, 60).programs]
    score = made.predict(candidates).score
    seconds = np.array([nest_seconds(c) for c in candidates])
    assert suite.pair_accuracy(score, seconds) > 0.65


class Scripted(LanguageModel):
    name = "scripted"

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def complete(self, messages, seconds):
        self.asked.append(messages[1]["content"])
        return Answer(self.answer(messages))


def fine(messages):
    """Scores that differ from program to program."""
    lines = len(messages[1]["content"])
    return json.dumps({name: (lines % 17) / 17 for name in CPU})


def absent(_messages):
    raise LlmError("cannot be reached")


def nonsense(_messages):
    return "The program is fast."


def asking(answer, keep=6, patience=3):
    chat = Scripted(answer)
    session = Session(chat, SessionConfig(timeout_s=5.0, retries=0, patience=patience))
    source = LlmScores(session, fallback=AnalyticScores())
    return synthetic(rng=np.random.default_rng(0), source=source, keep=keep), chat


def strategy(made, name="evolutionary"):
    return search.create(name, SyntheticSpace(), made, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["evolutionary", "mcts"])
def test_only_those_about_to_be_measured_are_shown_to_a_language_model(name):
    made, chat = asking(fine)
    ask = strategy(made, name)
    batch = ask.ask(4)
    assert 1 <= len(chat.asked) <= 6 and len(batch) == 4
    assert made.status["answers"] == len(chat.asked) and made.status["fallback"] == 0
    assert made.status["scores"] == "llm"


def test_what_it_was_shown_decides_among_them():
    made, _ = asking(fine, keep=12)
    candidates = SyntheticSpace().sample(np.random.default_rng(5), 12)
    before = made.predict(candidates).score
    looked = made.look(candidates)
    assert (np.argsort(before) != np.argsort(looked)).any()
    np.testing.assert_array_equal(made.predict(candidates).score, looked)
    # Others stay comparable: the level is that of the first stage.
    assert looked.mean() == pytest.approx(before.mean(), abs=0.3)


@pytest.mark.parametrize("answer", [absent, nonsense])
def test_a_language_model_of_no_use_leaves_what_formulas_say(answer):
    made, chat = asking(answer)
    alone = synthetic(rng=np.random.default_rng(0))
    candidates = SyntheticSpace().sample(np.random.default_rng(5), 60)
    wanted = alone.predict(candidates)
    for start in range(0, 60, 4):
        np.testing.assert_array_equal(
            made.look(candidates[start : start + 4]), wanted.score[start : start + 4]
        )
    np.testing.assert_array_equal(made.predict(candidates).score, wanted.score)
    assert made.status["fallback"] == 60 and len(chat.asked) <= 10
    # It is left out by now, and the search goes as without it.
    assert made.abilities.closer == 0 and alone.abilities.closer == 0
    for _ in range(2):
        ours, theirs = strategy(made).ask(4), strategy(alone).ask(4)
        assert [c.key for c in ours] == [c.key for c in theirs]
    asked = len(chat.asked)
    made.look(candidates)
    assert len(chat.asked) == asked


def test_of_a_batch_that_is_answered_in_part_the_rest_keeps_its_opinion():
    def some(messages):
        return fine(messages) if len(messages[1]["content"]) % 2 else nonsense(messages)

    made, _ = asking(some)
    candidates = SyntheticSpace().sample(np.random.default_rng(5), 40)
    before = made.predict(candidates).score
    looked = made.look(candidates)
    kept = looked == before
    assert 0 < kept.sum() < len(candidates)
    assert made.status["fallback"] == kept.sum()
    assert looked[~kept].mean() == pytest.approx(before[~kept].mean(), abs=1e-6)


@pytest.mark.parametrize("name", ["evolutionary", "mcts", "random"])
def test_every_strategy_goes_on_whatever_the_model_says(name):
    made, _ = asking(fine)
    batch = strategy(made, name).ask(3)
    assert 1 <= len(batch) <= 3


def test_a_classifier_ranks_all_and_formulas_those_about_to_be_measured():
    made = in_two_stages(rng=np.random.default_rng(0), keep=8)
    formulas = synthetic(rng=np.random.default_rng(0))
    candidates = SyntheticSpace().sample(np.random.default_rng(5), 60)
    before = made.predict(candidates).score
    np.testing.assert_array_equal(before, opinion(classifier(), candidates))
    assert made.abilities.closer == 8
    first, second = np.argsort(-before)[:8].tolist(), np.argsort(-before)[8:].tolist()
    made.look([candidates[row] for row in first])
    after = made.predict(candidates).score
    # Those that were looked at stand first, in the order of formulas; others as they were.
    assert after[first].min() > after[second].max()
    wanted = formulas.predict([candidates[row] for row in first]).score
    np.testing.assert_allclose(np.diff(after[first]), np.diff(wanted), atol=1e-9)
    np.testing.assert_array_equal(after[second], before[second])


def test_a_second_look_is_comparable_with_the_first():
    made = in_two_stages(rng=np.random.default_rng(0), keep=8)
    formulas = synthetic(rng=np.random.default_rng(0))
    candidates = SyntheticSpace().sample(np.random.default_rng(5), 30)
    for start in (20, 0, 10):
        made.look(candidates[start : start + 10])
    wanted = formulas.predict(candidates).score
    np.testing.assert_allclose(
        made.predict(candidates).score - wanted, (made.predict(candidates).score - wanted).mean()
    )


def test_a_language_model_orders_what_formulas_were_asked_about():
    session = Session(Scripted(fine), SessionConfig(timeout_s=5.0))
    made = in_two_stages(rng=np.random.default_rng(0), source=LlmScores(session), keep=8)
    alone = in_two_stages(rng=np.random.default_rng(0), keep=8)
    candidates = SyntheticSpace().sample(np.random.default_rng(5), 40)
    order = np.argsort(-made.predict(candidates).score)
    chosen = [candidates[row] for row in order[:8]]
    looked, formulas = made.look(chosen), alone.look(chosen)
    assert not np.allclose(looked, formulas)
    rest = made.predict([candidates[row] for row in order[8:]]).score
    assert looked.min() > rest.max() and made.status["answers"] > 0


def test_a_language_model_of_no_use_leaves_both_other_stages():
    session = Session(Scripted(absent), SessionConfig(timeout_s=5.0, retries=0, patience=1))
    made = in_two_stages(rng=np.random.default_rng(0), source=LlmScores(session), keep=8)
    alone = in_two_stages(rng=np.random.default_rng(0), keep=8)
    for _ in range(2):
        ours, theirs = strategy(made).ask(4), strategy(alone).ask(4)
        assert [c.key for c in ours] == [c.key for c in theirs]
    assert made.abilities.closer == 8 and made.source.left_out


@pytest.mark.parametrize("name", ["evolutionary", "mcts", "random"])
def test_every_strategy_searches_in_two_stages(name):
    made = in_two_stages(rng=np.random.default_rng(0), keep=6)
    assert len(strategy(made, name).ask(3)) == 3


def test_the_classifier_of_the_package_is_named():
    made = cost.create("behaviour:first=classifier:keep=5:online=false", hardware=NEST_HARDWARE)
    assert isinstance(made.ranker, Classifier) and made.abilities.closer == 5
    made.ranker._read_nests = suite.nest_batches
    candidates = [p.candidate for p in suite.nest_group(SHAPE, 20).programs]
    assert made.predict(candidates).score.shape == (20,)


def test_names_hold_where_scores_are_from():
    assert cost.asks_llm("behaviour:scores=llm") and not cost.asks_llm("behaviour")
    assert not cost.asks_llm("gbdt")
    cost.check_name("behaviour:scores=llm:keep=8:online=false")
    for name, told in (
        ("behaviour:keep=all", "keep must be int"),
        ("behaviour:features=formulas", "'features'"),
        ("gbdt:scores=llm", "'scores'"),
    ):
        with pytest.raises(BadInputError, match=told):
            cost.check_name(name)
    assert resolve_names("default", "behaviour:scores=llm")[1] == "behaviour:scores=llm"


def test_a_language_model_serves_who_names_it():
    assert strategy_options("evolutionary", {}, has_llm=True)["proposer"] == "llm"
    alone = strategy_options("evolutionary", {}, has_llm=True, scored=True)
    assert "proposer" not in alone
    both = strategy_options("evolutionary", {"proposer": "llm"}, has_llm=True, scored=True)
    assert both["proposer"] == "llm"
    assert strategy_options("gradient", {}, has_llm=True, scored=True) == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"scores": "llm"}, "--llm"),
        ({"scores": "hf"}, "model=FOLDER"),
        ({"scores": "gut"}, "'gut'"),
        ({"keep": 0}, "keep >= 1"),
        ({"first": "foo"}, "'foo'.*analytic, classifier"),
        ({"first": "classifier", "hardware": preset("t4")}, "'cuda'"),
        ({"model": "folder"}, "leave one of them out"),
        ({"ranker": GbdtActionRanker()}, "ranker 'behaviour'"),
        ({"ranker": "nobody"}, "foretune train --ranker behaviour"),
    ],
)
def test_what_makes_no_sense_is_refused(options, told):
    given = {"ranker": trained(), "hardware": NEST_HARDWARE, **options}
    with pytest.raises(BadInputError, match=told):
        behaviour(rng=np.random.default_rng(0), **given)


def test_a_file_of_weights_serves(tmp_path):
    trained().save(tmp_path / "mine.npz")
    made = behaviour(
        rng=np.random.default_rng(0), hardware=NEST_HARDWARE, ranker=tmp_path / "mine.npz"
    )
    assert isinstance(made.ranker, BehaviourRanker) and made.ranker.stage == "2"
    assert isinstance(rankers.load(tmp_path / "mine.npz"), BehaviourRanker)
