"""What a session with a language model may use, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from foretune._options import Bounds, Count, require_options


@dataclass(frozen=True)
class SessionConfig:
    """How a model is treated.

    Attributes:
        calls: Requests at most, retries and failures included; None for no limit.
        timeout_s: Wall seconds for an answer, retries included.
        retries: Further tries of a request that failed and may succeed later.
        concurrency: Requests at the same time.
        patience: Times in a row that there is no answer after which the model is left out.
            Questions that were put together and fail count once.
        usd_per_million_prompt, usd_per_million_completion: Price of 1e6 tokens, for the count.
    """

    calls: Annotated[int | None, Bounds(ge=0)] = None
    timeout_s: Annotated[float, Bounds(gt=0, lt=86400)] = 60.0
    retries: Annotated[int, Bounds(ge=0)] = 2
    concurrency: Count = 4
    patience: Count = 3
    usd_per_million_prompt: Annotated[float, Bounds(ge=0, finite=True)] = 0.0
    usd_per_million_completion: Annotated[float, Bounds(ge=0, finite=True)] = 0.0

    def __post_init__(self) -> None:
        require_options("llm", self)


@dataclass
class Usage:
    """What a session has used so far.

    Attributes:
        calls: Requests sent, retries and failures included.
        answers: Answers got, those that came too late included.
        cached: Answers that were known already and cost nothing.
        failed: Questions that got no answer.
        prompt_tokens, completion_tokens: As the server counts them, answers that could not be read
            included.
        seconds: Wall seconds of all answers, also where they overlapped.
        invalid: Answers without one usable proposal.
        dropped: Parts of answers that were not usable.
        proposals: Usable proposals.
        judged: Proposals that the cost model looked at.
        hits: Those among them that it prefers to the program they came from.
    """

    calls: int = 0
    answers: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    invalid: int = 0
    dropped: int = 0
    proposals: int = 0
    judged: int = 0
    hits: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Share of the judged proposals that are hits; None while there are none."""
        return self.hits / self.judged if self.judged else None
