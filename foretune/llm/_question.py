"""A question to a language model that is under way, and how such questions are counted."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from foretune.llm._base import Answer, Message


class Question(Future[Answer | None]):
    """A question that was put; its result is the answer, or None where the run goes on without.

    Attributes:
        messages: What is asked.
        key: Hash of everything that decides the answer.
        nth: How often the same was asked before.
        after: Answers that had been waited for when it was put: the same of questions that are put
            together.
    """

    def __init__(self, messages: Sequence[Message], key: str, nth: int, after: int) -> None:
        super().__init__()
        self.messages = messages
        self.key = key
        self.nth = nth
        self.after = after


@dataclass
class Streak:
    """How often in a row something went wrong; questions that were put together count once.

    Attributes:
        length: How often.
        last: ``Question.after`` of the last one.
    """

    length: int = 0
    last: int = -1

    def add(self, after: int) -> None:
        """Once more, with a question of so much before it."""
        if after > self.last:
            self.length += 1
            self.last = after
