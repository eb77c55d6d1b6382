"""Edits that a language model proposes.

Idea: the strategy says before each batch of measurements which programs it will edit next; the
model is asked about these while the candidates are measured, or after that where it would disturb
the measuring. Its answers are read strictly; what was wrong with one is told to the model once, in
the next prompt about a program of that sketch, because in another one identifiers mean other
things. A program whose answer has nothing usable gets a single random edit, as in the paper;
programs that the model was not asked about, because it is slow and the tree is expanded many times
for each measurement, get the edits of another proposer.

Source: Reasoning Compiler (Tang et al., NeurIPS 2025), section 3.1. Deviations: several
alternatives per call; decisions with their values instead of names alone; corrections are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foretune._options import (
    Bounds,
    Count,
    OneOf,
    configured,
    option_names,
    refuse_unknown,
    require_options,
)
from foretune.errors import BadInputError
from foretune.search import proposers
from foretune.search.proposers._answers import Reading, read
from foretune.search.proposers._base import Proposer, Situation, Variant
from foretune.search.proposers._prompts import STYLES, messages
from foretune.search.proposers.random import RandomProposer
from foretune.space import Candidate

if TYPE_CHECKING:
    from foretune.llm import Question, Session
    from foretune.space import Space

_MOST_TOLD = 8
"""Corrections in a prompt: about as much text as the table of a program."""
_CUT_OFF = "the answer was cut off because it was too long: answer with the JSON alone"


@dataclass(frozen=True)
class LlmConfig:
    """What a language model is asked.

    Attributes:
        history: Ancestors that a prompt shows, 0 to 3.
        style: ``"diff"`` or ``"full"``.
        proposals: Alternatives asked for per call.
        asked: Programs asked about per batch of measurements.
        otherwise: Proposer for programs that the model is not asked about.
    """

    history: Annotated[int, Bounds(ge=0, le=3)] = 2
    style: Annotated[str, OneOf(STYLES)] = STYLES[0]
    proposals: Count = 4
    asked: Count = 4
    otherwise: str = proposers.DEFAULT

    def __post_init__(self) -> None:
        require_options("llm", self)
        if proposers.asks_llm(self.otherwise):
            raise BadInputError("llm: otherwise must be another proposer than 'llm' itself")


class LlmProposer(Proposer[Candidate]):
    """Asks a language model, which sees the program, its ancestors, their speed and the machine.

    Args:
        space: Where programs come from.
        rng: The only source of randomness.
        llm: The session; shared by all tasks of a run.
        options: Fields of ``LlmConfig``.

    Raises:
        BadInputError: There is no session, or an option is unknown or makes no sense.
    """

    config_type: ClassVar[type[LlmConfig]] = LlmConfig

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        *,
        llm: Session | None = None,
        **options: Any,
    ) -> None:
        super().__init__(space, rng)
        self._space = space
        if llm is None:
            raise BadInputError(
                "the proposer 'llm' needs a language model, but got none: give one with --llm, for "
                "example --llm qwen2.5-coder@http://localhost:11434/v1, or choose the proposer "
                "'learned'"
            )
        self.config, unknown = configured(self.config_type, "llm", options)
        refuse_unknown("llm", unknown, option_names(self.config_type))
        self.session = llm
        self._otherwise = proposers.create(self.config.otherwise, space, rng)
        self._random = RandomProposer(space, rng)
        self._asked: dict[str, Question | None] = {}
        """Key of a program -> the question about it; None while that has to wait for its turn."""
        self._answered: set[str] = set()
        self._corrections: dict[str, list[str]] = {}
        """Key of a sketch -> what was wrong in answers about its programs and is not told yet."""

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses what ``LlmConfig`` does not know or refuses; the session is not looked at."""
        config, others = configured(cls.config_type, "llm", options)
        refuse_unknown("llm", set(others) - {"llm"}, option_names(cls.config_type))
        proposers.check(config.otherwise, {})

    @property
    def foresight(self) -> int:
        """Programs asked about per batch; none once the model is left out."""
        return 0 if self.session.left_out else self.config.asked

    def prepare(self, situations: Sequence[Situation[Candidate]]) -> None:
        """Asks in the background; later, where the model would disturb what is timed."""
        self._asked, self._answered = {}, set()
        if self.session.disturbs(self.space.hardware.kind):
            self._asked = {each.program.candidate.key: None for each in situations}
        else:
            self._ask(situations)

    def _ask(self, situations: Sequence[Situation[Candidate]]) -> None:
        for each in situations:
            program = each.program.candidate
            corrections = self._corrections.pop(program.sketch.key, ())
            self._asked[program.key] = self.session.submit(self._prompt(each, corrections))

    def _prompt(
        self, situation: Situation[Candidate], corrections: Sequence[str]
    ) -> list[dict[str, str]]:
        """What the model is asked about a program."""
        return messages(
            situation,
            history=self.config.history,
            style=self.config.style,
            alternatives=self.config.proposals,
            corrections=corrections,
        )

    def _read(self, text: str, program: Candidate) -> Reading:
        """What an answer about a program comes to."""
        return read(text, program, self._space, self.rng, alternatives=self.config.proposals)

    def propose(self, situations: Sequence[Situation[Candidate]]) -> list[list[Candidate]]:
        """The model's edits where it was asked, those of another proposer elsewhere."""
        keys = [each.program.candidate.key for each in situations]
        # The second time that a program occurs there is no second answer.
        asked = [key in self._asked and key not in keys[:at] for at, key in enumerate(keys)]
        mine = [each for each, was in zip(situations, asked, strict=True) if was]
        self._ask([s for s in mine if self._asked[s.program.candidate.key] is None])
        others = [each for each, was in zip(situations, asked, strict=True) if not was]
        edits = iter(self._otherwise.propose(others) if others else [])
        return [
            self._answers(each) if was else next(edits)
            for each, was in zip(situations, asked, strict=True)
        ]

    def _answers(self, situation: Situation[Candidate]) -> list[Candidate]:
        """What the model proposes for a program, or a single random edit."""
        program = situation.program.candidate
        asked = self._asked.pop(program.key)
        assert asked is not None
        answer = self.session.wait(asked)
        if answer is None:
            return self._random.draw(program, 1)
        reading = self._read(answer.text, program)
        corrections = reading.corrections
        if answer.cut_off and not reading.edits:
            corrections = [_CUT_OFF]
        self._keep(program.sketch.key, corrections)
        self.session.judge(asked, answer, bool(reading.edits))
        self.session.count(
            dropped=reading.dropped,
            invalid=int(not reading.edits),
            proposals=len(reading.edits),
        )
        if not reading.edits:
            return self._random.draw(program, 1)
        self._answered.add(program.key)
        return reading.edits

    def _keep(self, sketch: str, corrections: Sequence[str]) -> None:
        """Keeps what the next prompt about a sketch shall tell, the latest where it is much."""
        if corrections:
            kept = [told for told in self._corrections.get(sketch, []) if told not in corrections]
            self._corrections[sketch] = [*kept, *corrections][-_MOST_TOLD:]

    def judged(
        self, situation: Situation[Candidate], children: Sequence[Variant[Candidate]]
    ) -> None:
        """Counts how many of the model's edits the cost model prefers to what they came from."""
        before = situation.program.score
        if situation.program.candidate.key not in self._answered or before is None:
            return
        # What comes of it later is another proposer's.
        self._answered.discard(situation.program.candidate.key)
        known = [child.score for child in children if child.score is not None]
        self.session.count(judged=len(known), hits=sum(score > before for score in known))

    @property
    def status(self) -> str:
        """Calls, invalid answers, proposals and how many of them are hits."""
        return self.session.status
