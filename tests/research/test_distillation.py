"""Questions, answers that are kept, and how much hints leak: no language model is needed."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from foretune.cost.behaviour.scores import AnalyticScores
from foretune.describe import METRICS
from foretune.errors import BadInputError
from foretune.llm import Answer, LanguageModel, LlmError, Session, SessionConfig
from foretune.testing import rankers as suite
from foretune_research.distillation import __main__ as command
from foretune_research.distillation import teaching as room
from foretune_research.distillation.leakage import audit
from foretune_research.distillation.teaching import Answered, Question
from foretune_research.hf.scores import HfScores
from tests.cost.behaviour.behaviour_support import nest_analysis

CPU = [metric.name for metric in METRICS if "cpu" in metric.kinds]
OWN = np.array(["cpu" in metric.kinds for metric in METRICS])
GROUPS = [suite.nest_group(shape, 80) for shape in suite.TRAINING_SHAPES[:3]]


def asked(**options):
    given = {"read_nests": suite.nest_batches, "formulas": AnalyticScores(nest_analysis)}
    return room.questions(GROUPS, **{**given, **options})


def test_the_student_is_never_told_a_hint_and_what_is_shared_stands_first():
    found = asked(hints=1.0, per_group=10)
    for each in found:
        told = each.messages[1]["content"]
        assert f"hint_score: {each.speed:.2f}" in told
        assert "hint" not in each.lesson[1]["content"]
        assert told.startswith(each.lesson[1]["content"])
        assert each.messages[0] == each.lesson[0]
    assert len({each.prefix for each in found}) == 1


def test_speeds_are_those_beside_the_fastest_of_the_whole_group():
    found = asked(per_group=80, sampling="good_only")
    for group in GROUPS:
        own = [each.speed for each in found if each.group == group.key]
        assert max(own) == 1.0 and 0 < len(own) <= 32
    # Good ones only are the fastest 32; borderline and bad ones are slower.
    mixed = asked(per_group=80)
    assert min(each.speed for each in mixed) < min(each.speed for each in found)


def test_both_asks_twice_about_those_that_have_a_hint():
    found = asked(hints=0.5, both=True, per_group=20)
    hinted = [each for each in found if each.hinted]
    assert 0 < len(hinted) < len(found) - len(hinted)
    without = {(each.group, each.program) for each in found if not each.hinted}
    assert all((each.group, each.program) in without for each in hinted)


@pytest.mark.parametrize(
    ("options", "told"), [({"hints": 2.0}, "0 <= hints <= 1"), ({"sampling": "best"}, "'best'")]
)
def test_what_makes_no_sense_is_refused(options, told):
    with pytest.raises(BadInputError, match=told):
        asked(**options)


def one(scores=None, text="", hinted=False, program="p", reason=""):
    question = Question("g", "cpu", "prefix", program, 0.5, hinted, np.where(OWN, 0.4, np.nan))
    return Answered(question, scores, text, reason)


SOME = np.where(OWN, np.linspace(0.1, 0.9, len(METRICS)), np.nan)


def test_what_cannot_be_learned_from_is_left_out_and_counted():
    answers = [
        one(SOME),
        one(SOME),
        one(None, program="q"),
        one(None, program="r", reason="unanswered"),
        one(np.where(OWN, 0.7, np.nan), program="s"),
        one(SOME, "as the hint says", hinted=True, program="t"),
        one(SOME, "as the hint says", program="u"),
    ]
    found, reasons = room.kept(answers)
    assert [each.question.program for each in found] == ["p", "u"]
    assert reasons == {
        "is there already": 1,
        "malformed": 1,
        "unanswered": 1,
        "says the same of everything": 1,
        "mentions its hint": 1,
    }


def test_what_is_missing_of_an_answer_is_told_by_formulas():
    holes = SOME.copy()
    holes[0] = np.nan
    found, _ = room.kept([one(holes)])
    assert found[0].scores[0] == 0.4
    np.testing.assert_array_equal(found[0].scores[1:], SOME[1:])
    assert np.isnan(found[0].scores[~OWN]).all()


class Leaky(LanguageModel):
    """Writes its hint into every score, where it has one; else a number that is the program's."""

    name = "leaky"

    def complete(self, messages, seconds):
        text = messages[1]["content"]
        if "drop" in text:
            raise LlmError("no")
        value = (sum(map(ord, text)) % 97) / 97
        if "hint_score: " in text:
            value = float(text.split("hint_score: ")[1][:4])
        return Answer(json.dumps({name: value for name in CPU}))


def test_a_teacher_that_writes_down_its_hint_is_found_out():
    with Session(Leaky(), SessionConfig(retries=0)) as session:
        answers = room.llm_teacher(session)(asked(hints=1.0, both=True, per_group=20))
    found = audit(answers)
    assert found.groups == 3 and found.programs >= 40
    assert found.hinted > 0.95 and abs(found.unhinted) < 0.4
    assert found.leak == pytest.approx(found.hinted - found.unhinted)
    assert found.metrics["roofline_score"] > 0.5 and found.metrics["occupancy_score"] == 0
    assert json.dumps(found.to_json())


def test_formulas_do_not_look_at_hints():
    found = audit(room.formula_teacher(asked(hints=1.0, both=True, per_group=20)))
    assert found.leak == 0 and found.hinted == found.unhinted > 0.2
    assert set(found.metrics.values()) == {0}


def test_an_audit_needs_pairs():
    with pytest.raises(BadInputError, match="both=True"):
        audit(room.formula_teacher(asked(hints=1.0)))


def test_answers_that_do_not_come_are_counted_as_such():
    question = replace(asked(per_group=2)[0], program="drop")
    with Session(Leaky(), SessionConfig(retries=0)) as session:
        answers = room.llm_teacher(session)([question])
    assert answers[0].scores is None and answers[0].reason == "unanswered"


@pytest.mark.slow
def test_one_command_teaches_a_student_that_is_read_again(shared_data, tmp_path, capsys):
    for needed in ("torch", "transformers", "tokenizers"):
        pytest.importorskip(needed)
    with gzip.open(shared_data / "devices" / "cpu-i7-3770.jsonl.gz") as file:
        lines = [line for line, _ in zip(file, range(12), strict=False)]
    sample, student = tmp_path / "cpu-i7-3770.jsonl", tmp_path / "student"
    sample.write_bytes(b"".join(lines))
    given = ["--data", str(sample), "-o", str(student), "--teacher", "leaky"]
    command.main([*given, "--programs", "2", "--epochs", "1", "--full"])
    told = json.loads(capsys.readouterr().out)
    assert told["audit"]["leak"] > 0.1 and told["answers"] > 0 and len(told["losses"]) == 1
    assert HfScores(student, threads=1, device="cpu").model.readout == "heads"
