"""The door to language models: messages in, one answer out."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretune.errors import ForetuneError

MOST_TOKENS = 10**9
"""What a server says of more is no count of one answer."""
Message = Mapping[str, str]
"""``{"role": "system" or "user", "content": text}``, as every chat interface has them."""


def one_line(text: str, most: int) -> str:
    """Foreign text for a message: printable characters of one line, which no terminal obeys.

    Before → after: ``"\\x1b[2Jno\\n room"`` → ``"[2Jno room"``.

    Args:
        text: What a server or a file says.
        most: Characters that are kept at most.
    """
    line = "".join(c if c.isprintable() else " " for c in text[: 4 * most])
    return " ".join(line.split())[:most]


class LlmError(ForetuneError):
    """A language model gave no answer.

    Args:
        message: What happened; never holds a key.
        again: Whether the same call may succeed later.
        final: Whether no call will ever succeed: a wrong key, an unknown model.
        wait_s: Seconds that the server asks to be left alone.
        prompt_tokens, completion_tokens: What the call used all the same, where that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        again: bool = False,
        final: bool = False,
        wait_s: float = 0.0,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
    ) -> None:
        super().__init__(message)
        self.again = again
        self.final = final
        self.wait_s = wait_s
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens


@dataclass(frozen=True)
class Answer:
    """What a model said.

    Attributes:
        text: The answer: data, of which nothing may ever be executed.
        prompt_tokens, completion_tokens: As the model counts them; 0 where it does not.
        seconds: Wall seconds that it took.
        cut_off: Whether it ends because it was as long as it may be.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    cut_off: bool = False


class LanguageModel(abc.ABC):
    """Completes a conversation. May be called from several threads.

    Attributes:
        name: What it is called in prompts' hashes, results and messages.
    """

    name: str

    @abc.abstractmethod
    def complete(self, messages: Sequence[Message], seconds: float) -> Answer:
        """The answer to messages.

        Args:
            messages: The conversation.
            seconds: Wall seconds that it may take.

        Raises:
            LlmError: There is none.
        """

    @property
    def settings(self) -> dict[str, Any]:
        """What decides an answer beside the messages: temperature, limits... A JSON object."""
        return {}

    def disturbs(self, kind: str) -> bool:
        """Whether it must not think while programs are timed, because it uses what they run on.

        Args:
            kind: Of the target, as ``Hardware.kind``.
        """
        return False

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Lets go of connections and memory."""
