"""Scores by a language model behind a server.

Every distinct program is asked about once per device: programs of equal text are one, and answers
are remembered. An answer that cannot be used is asked for once more, with what was wrong; then
formulas answer. A model that is absent, silent or talks nonsense is left out by its session, which
says so once; from then on nothing is asked. As long as it has been of no use, one question goes
ahead of each batch, and the others follow only if something comes of it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foretune._arrays import FloatArray
from foretune.cost.behaviour import prompts
from foretune.cost.behaviour.answers import Counts, read_scores
from foretune.cost.behaviour.scores import AnalyticScores, ScoreSource, scores_alone
from foretune.describe import METRICS, Behaviours, Nests
from foretune.hardware import Device
from foretune.llm import Answer, Message, Question, Session

_REMEMBERED = 1 << 14
"""Programs whose scores are kept."""

ProgramText = Callable[[Nests, int], str]
DeviceText = Callable[[Device], str]


class LlmScores(ScoreSource):
    """Asks a session about programs.

    Args:
        session: With the model; closed by who opened it.
        fallback: What scores programs that the model did not; formulas unless given.
        program_text: A program of a batch in words; ``describe.text.program_text`` unless given.
        device_text: The same of a device.
    """

    name = "llm"

    def __init__(
        self,
        session: Session,
        *,
        fallback: ScoreSource | None = None,
        program_text: ProgramText | None = None,
        device_text: DeviceText | None = None,
    ) -> None:
        self.session = session
        self.fallback = fallback or AnalyticScores()
        self.counts = Counts()
        self._program_text, self._device_text = program_text, device_text
        self._known: OrderedDict[str, FloatArray] = OrderedDict()
        self._prefixes: dict[str, str] = {}
        self._of_use = False
        """Whether there were scores in any of the last answers."""

    @property
    def left_out(self) -> bool:
        """Whether the session does not ask the model any more."""
        return self.session.left_out

    def behaviours(self, nests: Nests, device: Device) -> Behaviours:
        """Scores of the model, of formulas where it has none."""
        scores = self.told(nests, device).scores
        rows = np.flatnonzero(np.isnan(scores).all(axis=1))
        if len(rows):
            scores[rows] = self.fallback.behaviours(nests.take(rows), device).scores
        return scores_alone(device, scores)

    def told(self, nests: Nests, device: Device) -> Behaviours:
        """Scores of the model, none where it has none; those are counted as ``fallback``."""
        scores = np.full((len(nests), len(METRICS)), np.nan)
        if not self.left_out:
            self._ask(scores, [self._words(nests, row) for row in range(len(nests))], device)
        self.counts.programs += len(nests)
        self.counts.fallback += int(np.isnan(scores).all(axis=1).sum())
        return scores_alone(device, scores)

    def _ask(self, scores: FloatArray, texts: Sequence[str], device: Device) -> None:
        """Fills in what the model says."""
        prefix = self._prefix(device)
        keys = [_key(prefix, text) for text in texts]
        wanted: dict[str, list[int]] = {}
        for row, key in enumerate(keys):
            if key in self._known:
                self.counts.cached += 1
                self._known.move_to_end(key)
                scores[row] = self._known[key]
            else:
                wanted.setdefault(key, []).append(row)
        questions = {key: prompts.question(prefix, texts[rows[0]]) for key, rows in wanted.items()}
        ahead = 0 if self._of_use else 1
        for part in (list(questions)[:ahead], list(questions)[ahead:]):
            if part:
                answers = self._answers({key: questions[key] for key in part}, device.kind)
                self._of_use = bool(answers)
                for key, own in answers.items():
                    self._remember(key, own)
                    scores[wanted[key]] = own
            if not self._of_use:
                return

    def _answers(self, questions: Mapping[str, list[Message]], kind: str) -> dict[str, FloatArray]:
        """Scores by key, of questions that are put together; what cannot be used, once more."""
        answers: dict[str, FloatArray] = {}
        asked = {key: self.session.submit(messages) for key, messages in questions.items()}
        again: dict[str, Question] = {}
        for key, question in asked.items():
            scores, answer, told = self._read(question, kind)
            if scores is not None:
                answers[key] = scores
            elif answer is not None:
                self.counts.retried += 1
                repeated = prompts.once_more(questions[key], answer.text, told)
                again[key] = self.session.submit(repeated)
        for key, question in again.items():
            scores, _answer, _told = self._read(question, kind)
            if scores is not None:
                answers[key] = scores
        return answers

    def _read(self, question: Question, kind: str) -> tuple[FloatArray | None, Answer | None, str]:
        answer = self.session.wait(question)
        if answer is None:
            self.counts.unanswered += 1
            return None, None, ""
        reading = read_scores(answer.text, kind)
        self.counts.add(reading.counts)
        self.session.judge(question, answer, reading.scores is not None)
        return reading.scores, answer, reading.told

    def _remember(self, key: str, scores: FloatArray) -> None:
        self._known[key] = scores
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _words(self, nests: Nests, row: int) -> str:
        if self._program_text is not None:
            return self._program_text(nests, row)
        from foretune.describe.text import program_text

        return program_text(nests, row)

    def _prefix(self, device: Device) -> str:
        sheet = repr((device.key, sorted(device.factors.items())))
        known = self._prefixes.get(sheet)
        if known is None:
            if self._device_text is not None:
                told = self._device_text(device)
            else:
                from foretune.describe.text import device_text

                told = device_text(device)
            known = self._prefixes[sheet] = prompts.instructions(device, told)
        return known


def _key(prefix: str, text: str) -> str:
    return hashlib.blake2b(f"{prefix}\0{text}".encode(), digest_size=16).hexdigest()


def open_scores(model: str) -> LlmScores:
    """Scores by the language model that ``open_session`` opens by that name."""
    from foretune.llm import open_session

    return LlmScores(open_session(model))
