"""Calls of one run to a language model: concurrent, counted, retried, remembered, and given up.

All tasks of a run share a session, because they share the server's patience and the budget. What
goes wrong in a call is no error of the run: the answer is None, the reason is counted, and after
``patience`` times in a row without an answer, or one call that says that there will never be any,
the session says so once and answers None from then on. Questions that were put together and fail
together count once: a server that is started again is not gone. A budget of calls that is spent
ends the asking alone: what is under way by then is paid for, and waited for.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as OutOfTime
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foretune.errors import RecordError
from foretune.llm._base import Answer, LanguageModel, LlmError, Message, one_line
from foretune.llm._question import Question, Streak
from foretune.llm._transcript import Replay, Transcript, key_of
from foretune.llm._usage import SessionConfig, Usage

logger = logging.getLogger(__name__)

_BACK_OFF_S = 0.5
_LONGEST_WAIT_S = 30.0
_GRACE_S = 2.0
"""A client that is out of time gets so long to say so."""
_TOO_LATE = "no answer in time"
_OVER = "the time of the run is over"
_LONGEST_NAME, _LONGEST_REASON = 120, 500
"""Characters that are shown: names and reasons of a replayed file may be anything."""
_NOT_YET = "no answer came before the end of the run"
_USELESS = 10
"""Times in a row that answers hold nothing usable after which the model is left out."""


class _Unsent(LlmError):
    """A question was not sent, which says nothing of the model."""


class Session:
    """Asks one model, from a few threads.

    Everything that a caller learns from it stands in the transcript: which questions had no answer
    in time, and after which ``submit`` or ``wait`` the model was left out. So a session with a
    ``Replay`` goes as the recorded one went, however long things take. It counts no calls, and
    writes nothing.

    Args:
        model: Who answers; closed with the session.
        config: How it is treated.
        transcript: Where answers are kept and looked up; None keeps nothing on disk.

    Attributes:
        usage: What was used so far.
        reason: Why the model is not called any more; empty while it is.
        left_out: Whether nothing needs to be prepared for the model any more. Follows ``reason`` at
            the next ``submit`` or ``wait``, moments that a replay can tell.

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
        self.left_out = False
        self._replay = model if isinstance(model, Replay) else None
        self._transcript = Transcript(None if self._replay else transcript)
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(self.config.concurrency)
        self._asked: Counter[str] = Counter()
        self._waiting: dict[str, list[Question]] = {}
        """Key of a request that is under way -> the questions that it shall answer."""
        self._disturbed: set[str] = set()
        self._closing = threading.Event()
        self._steps = self._waits = 0
        self._missed, self._useless = Streak(), Streak()
        self._miss_reason = ""
        """Why the last question of this run that somebody is to blame for had no answer."""
        self._concluded = (0, 0, 0)
        """Calls, answers and cached answers of the runs that have ended."""
        self._unanswered = ""
        """Why the run that has just ended had no answer at all."""
        self._not_before = 0.0
        self._end = math.inf
        self._hopeless = False
        """Whether not even an answer that is under way is waited for any more."""
        self._diverged = self._told_of_cut = self._told_of_pause = False

    @property
    def unrecorded(self) -> bool:
        """Whether answers are kept in no file so far; a replay keeps none anyway."""
        return self._replay is None and self._transcript.path is None

    def record_in(self, path: Path) -> None:
        """Keeps answers in a file, and knows those that are there, unless it has one already.

        Raises:
            RecordError: The file cannot be read.
        """
        if self.unrecorded:
            self._transcript = Transcript(path)

    def end_after(self, seconds: float | None) -> None:
        """No answer is waited for longer than so many wall seconds from now; None: no such limit.

        What has no answer by then is nobody's fault, and does not make the model be left out.
        """
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def name(self) -> str:
        """What the model is called, for messages and results."""
        return one_line(self.model.name, _LONGEST_NAME)

    @property
    def given_up(self) -> bool:
        """Whether the model is not called any more; ``reason`` says why."""
        return bool(self.reason)

    @property
    def why_unanswered(self) -> str:
        """Why the last question that somebody is to blame for had no answer; empty if none."""
        return self.reason or one_line(self._miss_reason, _LONGEST_REASON)

    def disturbs(self, kind: str) -> bool:
        """Whether the model must not be asked while programs are timed on hardware of a kind.

        To be asked before the first question: a replay has to ask when the recorded run asked.
        """
        disturbs = self.model.disturbs(kind)
        if disturbs:
            self._disturbed.add(kind)
        return disturbs

    def submit(self, messages: Sequence[Message]) -> Question:
        """Asks in the background; the result is None where there is no answer.

        The result raises RecordError where an answer cannot be written to the transcript.

        Raises:
            RecordError: The transcript cannot be written.
        """
        key = key_of(messages, self.model.name, self.model.settings)
        with self._lock:
            self._unanswered = ""
            self._step()
            asked = Question(list(messages), key, self._asked[key], self._waits)
            self._asked[key] += 1
            if self._is_settled(asked):
                return asked
            if key in self._waiting:
                self._waiting[key].append(asked)
                return asked
            self._waiting[key] = [asked]
        # A daemon: a server that never answers must not keep the process from ending.
        threading.Thread(target=self._run, args=(key, asked.messages), daemon=True).start()
        return asked

    def wait(self, asked: Question) -> Answer | None:
        """The answer to what ``submit`` asked; None once it takes too long.

        A client bounds what it reads. This bounds everything else: names that are not resolved, a
        server that sends its head byte by byte, questions that wait for their turn.

        Raises:
            RecordError: The transcript cannot be written.
        """
        left = max(0.0, self._end - time.monotonic())
        # A budget that is spent has paid for what is under way.
        longest = 0.0 if self._hopeless else min(self.config.timeout_s + _GRACE_S, left)
        try:
            answer = asked.result(longest)
        except OutOfTime:
            answer = self._abandoned(asked)
        with self._lock:
            self._waits += 1
            self._step()
            if self._replay is not None:
                self._compare(asked)
        return answer

    def _step(self) -> None:
        """Counts what the caller does; where the model is left out, it is from such a step on."""
        self._steps += 1
        if self._replay is None and not self._transcript.begun:
            self._transcript.begin(self.model.name, self.model.settings, sorted(self._disturbed))
        if self.left_out:
            return
        if self._replay is None:
            if self.given_up:
                self._transcript.leave_out(self._steps, self.reason)
                self.left_out = True
        elif self._replay.run.left_out is not None:
            after, reason = self._replay.run.left_out
            if self._steps >= after:
                self._give_up(reason)
                self.left_out = True

    def _is_settled(self, asked: Question) -> bool:
        """Whether the model need not be called for a question, or must not."""
        if self._replay is None:
            outcome = self._transcript.find(asked.key)
        else:
            outcome = self._replay.outcome(asked.key, asked.nth)
        if outcome is not None:
            self.usage.cached += 1
            asked.set_result(outcome)
        elif self._replay is not None or self.given_up or self._closing.is_set():
            self._go_without(asked, self.reason)
        return asked.done()

    def _compare(self, asked: Question) -> None:
        """Says so once where a replay needs what the transcript does not tell."""
        assert self._replay is not None
        if not self._diverged and not self._replay.knows(asked.key, asked.nth):
            self._diverged = True
            logger.warning(
                "the transcript neither answers a question of this run nor says that it had no "
                "answer: from here on the run may differ from the recorded one"
            )

    def _abandoned(self, asked: Question) -> Answer | None:
        """Goes on without an answer, unless it has just come."""
        with self._lock:
            if not asked.done():
                reason = _OVER if time.monotonic() >= self._end else _TOO_LATE
                told = self.reason if self._hopeless else reason
                self._miss(reason, asked.after)
                self._go_without(asked, told)
                # The request goes on: who asks the same again may profit from it.
                self._waiting[asked.key].remove(asked)
        return asked.result()

    def _go_without(self, asked: Question, reason: str) -> None:
        """Settles a question without an answer. After the end of a run nobody is interested."""
        if not self._closing.is_set():
            self.usage.failed += 1
            if self._replay is None:
                self._transcript.add_failure(asked.messages, asked.key, asked.nth, reason)
        asked.set_result(None)

    def _run(self, key: str, messages: Sequence[Message]) -> None:
        """One request, in a thread of its own."""
        try:
            try:
                with self._slots:
                    answer = self._try(key, messages)
            except LlmError as error:
                self._failed(key, error)
            else:
                self._answered(key, messages, answer)
        except BaseException as error:
            # Also where the transcript cannot be written: who waits has to know.
            with self._lock:
                for asked in self._waiting.pop(key, []):
                    asked.set_exception(error)

    def _answered(self, key: str, messages: Sequence[Message], answer: Answer) -> None:
        with self._lock:
            # On disk before it is counted: who has counted it may read the file.
            self._transcript.add(messages, self.model.name, self.model.settings, answer)
            self.usage.answers += 1
            self.usage.seconds += answer.seconds
            self._count_tokens(answer)
            waiting = self._waiting.pop(key)
            if waiting:
                # One that came too late does not show that the next one will come in time.
                self._missed.length = 0
            for asked in waiting:
                asked.set_result(answer)

    def _failed(self, key: str, error: LlmError) -> None:
        with self._lock:
            waiting = self._waiting[key]
            # What nobody waits for any more was counted when that came to be.
            if waiting and not isinstance(error, _Unsent):
                self._miss(str(error), min(asked.after for asked in waiting))
            if error.final:
                self._give_up(str(error))
            while waiting:
                self._go_without(waiting[0], str(error))
                del waiting[0]
            del self._waiting[key]

    def _try(self, key: str, messages: Sequence[Message]) -> Answer:
        """One request, with retries, until its time is over."""
        deadline = min(time.monotonic() + self.config.timeout_s, self._end)
        until = 0.0
        for attempt in range(1 + self.config.retries):
            self._wait_until(until, deadline)
            self._count_call(key)
            try:
                return self.model.complete(messages, max(0.1, deadline - time.monotonic()))
            except RecordError:
                raise
            except Exception as error:
                if not isinstance(error, LlmError):
                    # Whatever a client, a template or a device raises: no answer, and no more.
                    raise LlmError(f"asking failed ({type(error).__name__})") from error
                with self._lock:
                    self._count_tokens(error)
                    if error.wait_s:
                        self._pause(error.wait_s)
                if not error.again or attempt == self.config.retries:
                    raise
                # Our own patience has a limit; what a server asks for is kept, or not waited for.
                until = time.monotonic() + min(_BACK_OFF_S * 2**attempt, _LONGEST_WAIT_S)
                if max(until, self._not_before) >= deadline:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, seconds: float) -> None:
        """Keeps to what a server asks: one that is too busy for one call is so for all of them.

        Questions that have no time for the pause are not sent, for which nobody is to blame.
        """
        now = time.monotonic()
        self._not_before = max(self._not_before, now + seconds)
        if now < self._end <= self._not_before:
            self._give_up("it asks not to be called before the run is over", hopeless=False)
        elif seconds >= self.config.timeout_s and not self._told_of_pause:
            self._told_of_pause = True
            logger.warning(
                "the language model %s asks not to be called for %.0f s, longer than a question "
                "waits: the run goes on without it meanwhile",
                self.name,
                seconds,
            )

    def _wait_until(self, until: float, deadline: float) -> None:
        """Waits for a moment, and for the server to be ready again, which may be put off meanwhile.

        Raises:
            _Unsent: The deadline comes first, or the run is over.
        """
        while True:
            moment = max(until, self._not_before)
            if moment >= deadline:
                raise _Unsent("no time is left: the server asks not to be called before")
            left = moment - time.monotonic()
            if self._closing.wait(max(0.0, left)):
                raise _Unsent("the run is over")
            if left <= 0:
                return

    def _count_call(self, key: str) -> None:
        with self._lock:
            if self.given_up:
                raise _Unsent(self.reason)
            if not self._waiting[key]:
                raise _Unsent("nobody waits for the answer any more")
            if self.config.calls is not None and self.usage.calls >= self.config.calls:
                self._give_up(f"its budget of {self.config.calls} calls is spent", hopeless=False)
                raise _Unsent(self.reason)
            self.usage.calls += 1

    def _count_tokens(self, used: Answer | LlmError) -> None:
        self.usage.prompt_tokens += used.prompt_tokens
        self.usage.completion_tokens += used.completion_tokens

    def _miss(self, reason: str, after: int) -> None:
        if time.monotonic() >= self._end:
            return
        self._missed.add(after)
        self._miss_reason = reason
        if self._missed.length >= self.config.patience:
            self._give_up(reason)

    def judge(self, asked: Question, answer: Answer, usable: bool) -> None:
        """Takes note of whether an answer held anything usable.

        A model of whose answers nothing is usable, time after time, is left out; where they are cut
        off, that is said once.
        """
        if usable:
            self._useless.length = 0
            return
        if answer.cut_off and not self._told_of_cut:
            self._told_of_cut = True
            logger.warning(
                "answers of the language model %s are cut off before there is anything usable in "
                "them: raise max_tokens in its settings, or switch its thinking off",
                self.name,
            )
        with self._lock:
            self._useless.add(asked.after)
            if self._useless.length >= _USELESS and self._replay is None:
                self._give_up(f"{_USELESS} times in a row nothing in its answers was usable")

    def _give_up(self, reason: str, *, hopeless: bool = True) -> None:
        """Sends nothing from now on, and says so once.

        Args:
            reason: Why.
            hopeless: Whether nothing is to be expected of what is under way, either.
        """
        if self._closing.is_set():
            return
        self._hopeless = self._hopeless or hopeless
        if self.reason:
            return
        self.reason = one_line(reason, _LONGEST_REASON) or "no reason given"
        logger.warning(
            "the language model %s is not asked any more: %s; the run goes on without it",
            self.name,
            self.reason,
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
            "model": self.name,
            "settings": self.model.settings,
            **asdict(usage),
            "hit_rate": usage.hit_rate,
            "usd": self.usd,
            "left_out": self.reason or self._unanswered or None,
        }

    def conclude(self) -> None:
        """To be called at the end of a run: says so if the model was asked and answered nothing.

        Short runs end before as many questions had no answer as it takes to leave a model out. The
        next run with this session may ask it again.
        """
        with self._lock:
            usage = self.usage
            counts = (usage.calls, usage.answers, usage.cached)
            calls, answers, cached = (
                now - before for now, before in zip(counts, self._concluded, strict=True)
            )
            self._concluded = counts
            reason, self._miss_reason = self._miss_reason, ""
            if self.given_up or self._replay is not None or not calls or answers or cached:
                return
            self._unanswered = one_line(reason, _LONGEST_REASON) or _NOT_YET
            logger.warning(
                "the language model %s answered nothing in this run, which went on without it: %s",
                self.name,
                self._unanswered,
            )

    def close(self) -> None:
        """Ends waiting; calls that are under way are not waited for, a line being written is."""
        with self._lock:
            self._closing.set()
        self.model.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
