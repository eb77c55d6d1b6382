"""A language model scores programs; whatever it does, every program has scores."""

import json
import time

import numpy as np
import pytest

from foretune.cost.behaviour.llm_scores import LlmScores
from foretune.cost.behaviour.scores import AnalyticScores
from foretune.describe import METRICS
from foretune.llm import Answer, LanguageModel, LlmError, Session, SessionConfig
from tests.cost.behaviour.behaviour_support import (
    DEVICES,
    LANES,
    analysis,
    device_words,
    nest_text,
    tiny_nests,
)

CPU = [metric.name for metric in METRICS if "cpu" in metric.kinds]
NESTS = tiny_nests([[64, 8], [64, 6], [32, 8]])


class Scripted(LanguageModel):
    """Answers by a function of the messages; keeps what it was asked."""

    name = "scripted"

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def complete(self, messages, seconds):
        self.asked.append(messages)
        return Answer(self.answer(messages))


def source(answer, **settings):
    model = Scripted(answer)
    session = Session(model, SessionConfig(**{"timeout_s": 5.0, "retries": 0, **settings}))
    made = LlmScores(
        session,
        fallback=AnalyticScores(analysis),
        program_text=nest_text,
        device_text=device_words,
    )
    return made, model


def by_extent(messages):
    """A model that scores by the first extent of the program."""
    first = float(messages[1]["content"].split("\n")[1].split()[0])
    return json.dumps(dict.fromkeys(CPU, first / 100))


def test_scores_are_the_models_and_nothing_else_is_known():
    made, _ = source(by_extent)
    found = made.behaviours(NESTS, DEVICES[0])
    np.testing.assert_allclose(found.scores[:, LANES], [0.64, 0.64, 0.32])
    assert np.isnan(found.seconds).all() and not found.limits_s
    assert made.counts.answers == 3 and made.counts.fallback == 0


def test_what_is_shared_stands_first_and_programs_of_equal_text_are_asked_about_once():
    made, model = source(by_extent)
    made.behaviours(tiny_nests([[64, 8], [64, 8], [16, 2]]), DEVICES[0])
    assert len(model.asked) == 2
    assert len({messages[0]["content"] for messages in model.asked}) == 1
    assert "1536 GFLOP/s" not in model.asked[0][1]["content"]
    assert device_words(DEVICES[0]) in model.asked[0][0]["content"]
    again = made.behaviours(tiny_nests([[64, 8]]), DEVICES[0])
    assert len(model.asked) == 2 and made.counts.cached == 1
    assert again.scores[0, LANES] == 0.64


def test_another_device_is_another_question():
    made, model = source(by_extent)
    for device in DEVICES[:2]:
        made.behaviours(tiny_nests([[64, 8]]), device)
    assert len(model.asked) == 2
    assert model.asked[0][0]["content"] != model.asked[1][0]["content"]


def test_what_cannot_be_used_is_asked_for_once_more():
    def shy(messages):
        return "I would say fast." if len(messages) == 2 else by_extent(messages)

    made, model = source(shy)
    found = made.behaviours(NESTS, DEVICES[0])
    np.testing.assert_allclose(found.scores[:, LANES], [0.64, 0.64, 0.32])
    assert len(model.asked) == 6 and made.counts.retried == 3 and made.counts.malformed == 3
    assert "no JSON object" in model.asked[-1][3]["content"]


def nonsense(_messages):
    return "{'fast': yes}"


def absent(_messages):
    raise LlmError("cannot be reached", again=True)


def silent(_messages):
    time.sleep(0.5)
    return "too late"


@pytest.mark.parametrize("answer", [nonsense, absent, silent])
def test_a_model_of_no_use_costs_nothing_but_its_scores(answer):
    made, model = source(answer, timeout_s=0.05, patience=2)
    wanted = analysis(NESTS, DEVICES[0]).scores
    began = time.monotonic()
    for _ in range(12):
        np.testing.assert_array_equal(made.behaviours(NESTS, DEVICES[0]).scores, wanted)
    assert made.counts.fallback == 36
    assert made.session.left_out, "it is asked on and on"
    asked = len(model.asked)
    made.behaviours(NESTS, DEVICES[0])
    assert len(model.asked) == asked
    assert time.monotonic() - began < 15


def test_a_server_that_is_not_there_is_asked_one_question_a_batch():
    made, model = source(absent, patience=3)
    for _ in range(5):
        assert np.isnan(made.told(NESTS, DEVICES[0]).scores).all()
    assert len(model.asked) == 3 and made.left_out and made.counts.fallback == 15


def test_a_model_that_comes_back_is_asked_about_all():
    there = iter([False, *[True] * 9])

    def late(messages):
        return by_extent(messages) if next(there) else absent(messages)

    made, model = source(late)
    assert np.isnan(made.told(NESTS, DEVICES[0]).scores).all()
    np.testing.assert_allclose(made.told(NESTS, DEVICES[0]).scores[:, LANES], [0.64, 0.64, 0.32])
    assert len(model.asked) == 4 and not made.left_out


def test_scores_that_a_model_leaves_out_stay_unknown():
    def partly(messages):
        whole = json.loads(by_extent(messages))
        return json.dumps({name: whole[name] for name in CPU if name != "lane_efficiency_score"})

    made, _ = source(partly)
    found = made.behaviours(NESTS, DEVICES[0])
    assert np.isnan(found.scores[:, LANES]).all() and made.counts.missing == 3
