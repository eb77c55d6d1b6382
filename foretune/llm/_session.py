"""Calls of one run to a language model: concurrent, counted, retried, remembered, and given up.

All tasks of a run share a session, because they share the server's patience and the budget. What
goes wrong in a call is no error of the run: the answer is None, the reason is counted, and after
``patience`` calls in a row without an answer, or one that says that there will never be any, the
session says so once and answers None from then on.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foretune._options import require_types
from foretune.errors import BadInputError, RecordError
from foretune.llm._base import Answer, LanguageModel, LlmError, Message
from foretune.llm._transcript import Transcript, key_of

logger = logging.getLogger(__name__)

_BACK_OFF_S = 0.5
_LONGEST_WAIT_S = 30.0
_GRACE_S = 2.0
"""A client that is out of time gets so long to say so."""


@dataclass(frozen=True)
class SessionConfig:
    """How a model is treated.

    Attributes:
        calls: Requests at most, retries and failures included; None for no limit.
        timeout_s: Wall seconds for an answer, retries included.
        retries: Further tries of a request that failed and may succeed later.
        concurrency: Requests at the same time.
        patience: Questions in a row without an answer after which the model is left out.
        usd_per_million_prompt, usd_per_million_completion: Price of 1e6 tokens, for the count.
    """

    calls: int | None = None
    timeout_s: float = 60.0
    retries: int = 2
    concurrency: int = 4
    patience: int = 3
    usd_per_million_prompt: float = 0.0
    usd_per_million_completion: float = 0.0

    def __post_init__(self) -> None:
        require_types("llm", self)
        for name in ("concurrency", "patience"):
            if getattr(self, name) < 1:
                raise BadInputError(f"llm: {name} >= 1 must hold, but got {getattr(self, name)}")
        if self.calls is not None and self.calls < 0:
            raise BadInputError(f"llm: calls >= 0 must hold, but got {self.calls}")
        if self.retries < 0:
            raise BadInputError(f"llm: retries >= 0 must hold, but got {self.retries}")
        for name in ("usd_per_million_prompt", "usd_per_million_completion"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInputError(
                    f"llm: {name} >= 0 must hold, and be finite, but got {getattr(self, name)}"
                )
        if not 0 < self.timeout_s < 86400:
            raise BadInputError(f"llm: 0 < timeout_s < 86400 must hold, but got {self.timeout_s}")


@dataclass
class Usage:
    """What a session has used so far.

    Attributes:
        calls: Requests sent, retries and failures included.
        answers: Answers got.
        cached: Answers that were known already and cost nothing.
        failed: Questions that got no answer.
        prompt_tokens, completion_tokens: As the server counts them.
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


class Session:
    """Asks one model, from a few threads.

    Args:
        model: Who answers; closed with the session.
        config: How it is treated.
        transcript: Where answers are kept and looked up; None keeps nothing on disk.

    Raises:
        RecordError: The transcript cannot be read.
    """

    def __init__(
        self,
        model: LanguageModel,
        config: SessionConfig | None = None,
        transcript: Path | None = None,
    ) -> None:
        self.model = model
        self.config = config or SessionConfig()
        self.usage = Usage()
        self.reason = ""
        self._transcript = Transcript(transcript)
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(self.config.concurrency)
        self._asked: dict[str, Future[Answer | None]] = {}
        self._closing = threading.Event()
        self._in_a_row = 0
        self._not_before = 0.0

    def record_in(self, path: Path) -> None:
        """Keeps answers in a file, and knows those that are there, unless it has one already.

        Raises:
            RecordError: The file cannot be read.
        """
        if self._transcript.path is None:
            self._transcript = Transcript(path)

    @property
    def given_up(self) -> bool:
        """Whether the model is left out from now on; ``reason`` says why."""
        return bool(self.reason)

    def submit(self, messages: Sequence[Message]) -> Future[Answer | None]:
        """Asks in the background; the result is None where there is no answer.

        The result raises RecordError where an answer cannot be written to the transcript.
        """
        key = key_of(messages, self.model.name, self.model.settings)
        with self._lock:
            waiting = self._asked.get(key)
            if waiting is not None:
                return waiting
            found = self._transcript.find(key)
            if found is not None or self.given_up or self._closing.is_set():
                self.usage.cached += found is not None
                done: Future[Answer | None] = Future()
                done.set_result(found)
                return done
            asked: Future[Answer | None] = Future()
            self._asked[key] = asked
        # A daemon: a server that never answers must not keep the process from ending.
        threading.Thread(target=self._run, args=(asked, key, list(messages)), daemon=True).start()
        return asked

    def wait(self, asked: Future[Answer | None]) -> Answer | None:
        """The answer to what ``submit`` asked; None once it takes too long.

        A client bounds what it reads. This bounds everything else: names that are not resolved, a
        server that sends its head byte by byte, questions that wait for their turn.

        Raises:
            RecordError: The answer cannot be written to the transcript.
        """
        try:
            return asked.result(0.0 if self.given_up else self.config.timeout_s + _GRACE_S)
        except OutOfTime:
            with self._lock:
                self.usage.failed += 1
                self._miss("no answer in time", final=False)
            return None

    def _run(self, asked: Future[Answer | None], key: str, messages: Sequence[Message]) -> None:
        try:
            with self._slots:
                answer = self._ask(key, messages)
        except BaseException as error:
            asked.set_exception(error)
        else:
            asked.set_result(answer)

    def _ask(self, key: str, messages: Sequence[Message]) -> Answer | None:
        try:
            answer = self._try(messages)
        except LlmError as error:
            with self._lock:
                self._asked.pop(key, None)
                self.usage.failed += 1
                self._miss(str(error), error.final)
            return None
        self._transcript.add(messages, self.model.name, self.model.settings, answer)
        with self._lock:
            self._asked.pop(key, None)
            self._in_a_row = 0
            self.usage.answers += 1
            self.usage.prompt_tokens += answer.prompt_tokens
            self.usage.completion_tokens += answer.completion_tokens
            self.usage.seconds += answer.seconds
        return answer

    def _try(self, messages: Sequence[Message]) -> Answer:
        """One question, with retries, until its time is over."""
        deadline = time.monotonic() + self.config.timeout_s
        for attempt in range(1 + self.config.retries):
            self._wait_until(self._not_before, deadline)
            self._count_call()
            try:
                return self.model.complete(messages, max(0.1, deadline - time.monotonic()))
            except RecordError:
                raise
            except Exception as error:
                if not isinstance(error, LlmError):
                    # Whatever a client, a template or a device raises: no answer, and no more.
                    raise LlmError(f"asking failed ({type(error).__name__})") from error
                if not error.again or attempt == self.config.retries:
                    raise
                # Our own patience has a limit; what a server asks for is kept, or not waited for.
                wait = max(error.wait_s, min(_BACK_OFF_S * 2**attempt, _LONGEST_WAIT_S))
                until = time.monotonic() + wait
                if until >= deadline:
                    raise
                with self._lock:
                    # A server that is too busy for one call is so for all of them.
                    self._not_before = max(self._not_before, until if error.wait_s else 0.0)
                self._wait_until(until, deadline)
        raise AssertionError("the last attempt returns or raises")

    def _miss(self, reason: str, final: bool) -> None:
        self._in_a_row += 1
        if final or self._in_a_row >= self.config.patience:
            self._give_up(reason)

    def _wait_until(self, until: float, deadline: float) -> None:
        left = min(until, deadline) - time.monotonic()
        if (left > 0 and self._closing.wait(left)) or self._closing.is_set():
            raise LlmError("the run is over")

    def _count_call(self) -> None:
        with self._lock:
            if self.given_up:
                raise LlmError(self.reason)
            if self.config.calls is not None and self.usage.calls >= self.config.calls:
                self._give_up(f"its budget of {self.config.calls} calls is spent")
                raise LlmError(self.reason)
            self.usage.calls += 1

    def _give_up(self, reason: str) -> None:
        if self.reason or self._closing.is_set():
            return
        self.reason = reason
        logger.warning(
            "the language model %s is not asked any more: %s; the run goes on without it",
            self.model.name,
            reason,
        )

    def count(self, **amounts: int) -> None:
        """Adds to fields of ``usage``."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self.usage, name, getattr(self.usage, name) + amount)

    @property
    def status(self) -> str:
        """A few words for the progress of a run."""
        usage = self.usage
        if self.given_up:
            return "language model left out"
        price = f", ${self.usd:.4f}" if self.usd else ""
        rate = "" if usage.hit_rate is None else f", {usage.hit_rate:.0%} better than their parent"
        return (
            f"language model: {usage.calls} calls, {usage.prompt_tokens} + "
            f"{usage.completion_tokens} tokens, {usage.seconds:.0f} s{price}, "
            f"{usage.invalid} invalid answers, {usage.proposals} proposals{rate}"
        )

    @property
    def usd(self) -> float:
        """Price of the tokens so far; 0 where no price was given."""
        usage, config = self.usage, self.config
        return (
            usage.prompt_tokens * config.usd_per_million_prompt
            + usage.completion_tokens * config.usd_per_million_completion
        ) / 1e6

    def to_json(self) -> Mapping[str, Any]:
        """What a result says about the session. Holds no key."""
        usage = self.usage
        return {
            "model": self.model.name,
            "settings": self.model.settings,
            **asdict(usage),
            "hit_rate": usage.hit_rate,
            "usd": self.usd,
            "left_out": self.reason or None,
        }

    def close(self) -> None:
        """Ends waiting; calls that are under way are not waited for."""
        self._closing.set()
        self.model.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
