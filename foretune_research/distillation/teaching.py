"""From a teacher's answers to a tuned local model: LLMTuner's distillation, step by step.

1. ``questions``: programs of training groups (good, borderline and bad ones, or good ones only as
   in the paper) in words, with how fast they are as a hint for a share of them.
2. ``answered``: a teacher answers: formulas, or a language model behind a server.
3. ``kept``: what is malformed, sparse, mentions its hint, says the same of every metric, or is
   there already is left out, and counted.
4. ``leakage.audit``: how far a teacher's scores agree with measured speed with the hint and without
   it, on the same programs. What a hint adds is no judgement, and no program tells it.
5. ``tuning.tune``: LoRA on attention and perceptrons, loss on the answer alone; or on what linear
   heads say in front of each number.

Hints are the paper's, and its weak point: teach without them (``hints=0``) unless the audit says
that they leak little.

Source: LLMTuner, section 3.2. Deviations: sampling, the audit, numbers alone in place of sentences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.cost.behaviour import prompts, reading
from foretune.cost.behaviour.answers import read_scores
from foretune.cost.behaviour.labels import SAMPLINGS, sampled
from foretune.cost.behaviour.scores import AnalyticScores, ScoreSource
from foretune.describe import METRICS
from foretune.describe.text import device_text, program_text
from foretune.errors import BadInputError, unknown_name

if TYPE_CHECKING:
    from foretune.dataset import Group
    from foretune.llm import Message, Session

_MENTIONS = re.compile(r"\bhint", re.IGNORECASE)
_SAME = 1e-9


@dataclass(frozen=True)
class Question:
    """One program to be scored.

    Attributes:
        group: Key of its group.
        kind: Of the device.
        prefix, program: Texts.
        speed: Fastest of its group over its seconds, in [0, 1]; 0 for a failure.
        hinted: Whether the teacher is told ``speed``.
        formulas: Scores by formulas, shape (len(METRICS),).
    """

    group: str
    kind: str
    prefix: str
    program: str
    speed: float
    hinted: bool
    formulas: FloatArray

    @property
    def messages(self) -> list[Message]:
        """As the teacher is asked."""
        return prompts.question(self.prefix, self.program, self.speed if self.hinted else None)

    @property
    def lesson(self) -> list[Message]:
        """As the student is: never with a hint."""
        return prompts.question(self.prefix, self.program)


@dataclass(frozen=True)
class Answered:
    """A question with the teacher's answer.

    Attributes:
        question: The question.
        scores: Shape (len(METRICS),), NaN where there is none; None: nothing usable.
        text: What was said; empty of formulas.
        reason: Why there is nothing usable.
    """

    question: Question
    scores: FloatArray | None
    text: str = ""
    reason: str = ""


Teacher = Callable[[Sequence[Question]], list[Answered]]


def questions(
    groups: Sequence[Group],
    *,
    sampling: str = "good_borderline_bad",
    per_group: int = 40,
    hints: float = 0.0,
    both: bool = False,
    seed: int = 0,
    read_nests: Any = None,
    formulas: ScoreSource | None = None,
) -> list[Question]:
    """What the teacher is asked.

    Args:
        groups: Training groups; those whose device is not known are passed over.
        sampling: One of ``labels.SAMPLINGS``.
        per_group: Programs of a group at most.
        hints: Share of them whose speed the teacher is told.
        both: Ask about those with a hint without it, too: for the audit.
        seed: Of what is drawn.
        read_nests: What describes candidates; ``foretune.describe.nests_of`` unless given.
        formulas: Scores by formulas.

    Raises:
        BadInputError: There is no such sampling, or ``0 <= hints <= 1`` does not hold.
    """
    if sampling not in SAMPLINGS:
        raise unknown_name("sampling of programs", sampling, SAMPLINGS)
    if not 0 <= hints <= 1:
        raise BadInputError(f"distillation: 0 <= hints <= 1 must hold, but got {hints}")
    source = formulas or AnalyticScores()
    found: list[Question] = []
    for number, group in enumerate(groups):
        device = reading.device_of(group)
        if device is None:
            continue
        rng = np.random.default_rng([seed, number])
        rows = sampled(group.seconds, sampling, rng)
        rows = np.sort(rng.permutation(rows)[:per_group])
        chosen = group.subset(rows)
        # Of the whole group: the fastest need not be among those drawn.
        speed = group.labels[rows]
        prefix = prompts.instructions(device, device_text(device))
        for places, nests in reading.batches_of(chosen, read_nests):
            scores = source.behaviours(nests, device).scores
            for at, place in enumerate(places.tolist()):
                text = program_text(nests, at)
                hinted = bool(rng.random() < hints)
                for told in (True, False) if hinted and both else (hinted,):
                    found.append(
                        Question(
                            group.key, device.kind, prefix, text, float(speed[place]), told,
                            scores[at],
                        )
                    )  # fmt: skip
    return found


def formula_teacher(asked: Sequence[Question]) -> list[Answered]:
    """Scores by formulas: they cannot look at hints."""
    return [Answered(each, each.formulas) for each in asked]


def llm_teacher(session: Session) -> Teacher:
    """A language model behind a server.

    Args:
        session: With the model.
    """

    def answer(asked: Sequence[Question]) -> list[Answered]:
        put = [(each, session.submit(each.messages)) for each in asked]
        found = []
        for each, question in put:
            got = session.wait(question)
            if got is None:
                found.append(Answered(each, None, reason="unanswered"))
                continue
            reading_ = read_scores(got.text, each.kind)
            session.judge(question, got, reading_.scores is not None)
            reason = "" if reading_.scores is not None else "malformed"
            found.append(Answered(each, reading_.scores, got.text, reason))
        return found

    return answer


def kept(answers: Sequence[Answered]) -> tuple[list[Answered], Counter[str]]:
    """Answers to learn from, and how many were left out for which reason.

    What is missing of a usable answer is taken from formulas: the form has no gaps.
    """
    found: list[Answered] = []
    reasons: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    for each in answers:
        question = each.question
        own = np.array([question.kind in metric.kinds for metric in METRICS])
        if each.scores is None:
            reasons[each.reason or "malformed"] += 1
            continue
        known = each.scores[own & ~np.isnan(each.scores)]
        if question.hinted and _MENTIONS.search(each.text):
            reasons["mentions its hint"] += 1
        elif len(known) and np.ptp(known) < _SAME:
            reasons["says the same of everything"] += 1
        elif (question.prefix, question.program) in seen:
            reasons["is there already"] += 1
        else:
            seen.add((question.prefix, question.program))
            filled = np.where(np.isnan(each.scores), question.formulas, each.scores)
            # Formulas may not say everything, either.
            filled = np.where(own, np.nan_to_num(filled, nan=0.5), np.nan)
            found.append(Answered(question, filled, each.text))
    return found, reasons
