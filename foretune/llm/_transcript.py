"""Answers on disk: a cache for the next run, and a transcript that is replayed without a model.

One JSON object per line; its ``kind`` says what it tells:

=============  ====================================================================================
``run``        a run begins: its model and settings, and which hardware's timing the model disturbs
``answer``     messages, the model and its settings, and what it answered
``no answer``  messages that a run went on without an answer to, which time it asked them, and why
``left out``   a run asked no more questions, after which step of its session, and why
=============  ====================================================================================

The key of a question is the hash of messages, model and settings. An answer is for every run; what
went wrong counts for its own run alone, because another one may ask again. A run uses only what
came in time, so an answer that came too late stands beside a line that says so. No key of a server
is in the file. ``foretune.llm/1`` had answers alone, without ``kind`` and ``run``; it is read, too.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.llm._base import MOST_TOKENS, Answer, LanguageModel, LlmError, Message

_VERSION = 2
"""Version that is written. Every version up to it can be read."""
SCHEMA = f"foretune.llm/{_VERSION}"
_UNREADABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


def key_of(messages: Sequence[Message], model: str, settings: Mapping[str, Any]) -> str:
    """32 hex digits: hash of everything that decides an answer."""
    text = json.dumps([[dict(m) for m in messages], model, dict(settings)], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass
class Run:
    """What a run met, so that a replay meets the same.

    Attributes:
        model, settings: Who was asked, and how.
        disturbs: Kinds of hardware that the model disturbed while programs were timed on them.
        answers: What was answered to this run, by key.
        failures: Key of a question and how often it had been asked before -> why there was no
            answer.
        left_out: After which step of the session the model was left out, and why; None if it
            never was.
    """

    model: str
    settings: dict[str, Any]
    disturbs: frozenset[str] = frozenset()
    answers: dict[str, Answer] = field(default_factory=dict)
    failures: dict[tuple[str, int], str] = field(default_factory=dict)
    left_out: tuple[int, str] | None = None


class Transcript:
    """Answers by key, kept in memory and appended to a file. Safe among threads.

    What adds to it raises RecordError where the file cannot be written.

    Args:
        path: The file, made if need be; None keeps nothing on disk.

    Attributes:
        last: The run of the file that began last, as it was when the file was read; None if there
            is none.

    Raises:
        RecordError: The file cannot be read or is not a transcript.
        VersionMismatchError: A line was written by a newer version.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.last: Run | None = None
        self._own = ""
        self._answers: dict[str, Answer] = {}
        self._lock = threading.Lock()
        if path is not None and path.exists():
            self._load(path)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def begun(self) -> bool:
        """Whether this process's run stands in it."""
        return bool(self._own)

    def find(self, key: str) -> Answer | None:
        """The answer with a key, if there is one."""
        return self._answers.get(key)

    def begin(self, model: str, settings: Mapping[str, Any], disturbs: Sequence[str]) -> None:
        """Begins a run; what is added from now on is its.

        Args:
            model: Who is asked.
            settings: How it is asked.
            disturbs: Kinds of hardware that it disturbs while programs are timed on them.
        """
        self._own = uuid.uuid4().hex
        self._write("run", model=model, settings=dict(settings), disturbs=list(disturbs))

    def add(
        self, messages: Sequence[Message], model: str, settings: Mapping[str, Any], answer: Answer
    ) -> None:
        """Keeps an answer; it is on disk before it is used."""
        key = key_of(messages, model, settings)
        self._write(
            "answer",
            key=key,
            model=model,
            settings=dict(settings),
            messages=[dict(m) for m in messages],
            text=answer.text,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            seconds=answer.seconds,
            cut_off=answer.cut_off,
        )
        self._answers[key] = answer

    def add_failure(self, messages: Sequence[Message], key: str, nth: int, reason: str) -> None:
        """Keeps that a run goes on without an answer.

        Args:
            messages: What was asked.
            key: Their key.
            nth: How often they had been asked before.
            reason: Why there is none.
        """
        told = [dict(m) for m in messages]
        self._write("no answer", key=key, nth=nth, reason=reason, messages=told)

    def leave_out(self, after: int, reason: str) -> None:
        """Keeps that the model is left out, after so many steps of the session."""
        self._write("left out", after=after, reason=reason)

    def _write(self, kind: str, **fields: Any) -> None:
        if self.path is None:
            return
        line = json.dumps({"schema": SCHEMA, "kind": kind, "run": self._own, **fields})
        try:
            # The break first: what a killed run left unfinished stays a line of its own.
            with self._lock, self.path.open("ab") as file:
                file.write(b"\n" + line.encode() + b"\n")
        except OSError as error:
            raise RecordError(
                f"{self.path} cannot be written ({error.strerror}): make room"
            ) from error

    def _load(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise RecordError(f"{path} cannot be read ({error.strerror})") from error
        runs: dict[str, Run] = {}
        known = False
        for line in lines:
            try:
                data = json.loads(line)
                version = _version_of(data["schema"])
            except _UNREADABLE:
                continue
            if version > _VERSION:
                raise VersionMismatchError(
                    f"{path} must hold {SCHEMA} or earlier, but a line is {data['schema']!r}: read "
                    "it with the newer foretune that wrote it"
                )
            try:
                known = (version > 0 and self._take(data, runs)) or known
            except _UNREADABLE:
                continue
        # What an older version wrote counts as a run where no run's beginning is told.
        self.last = next(reversed(runs.values())) if runs else self.last
        if any(line.strip() for line in lines) and not known:
            raise RecordError(
                f"{path} must be a transcript of {SCHEMA}, but no line of it is: give another file"
            )

    def _take(self, data: Mapping[str, Any], runs: dict[str, Run]) -> bool:
        """Takes in a line; whether it is of a known kind."""
        kind, run = data.get("kind", "answer"), runs.get(data.get("run", ""))
        if kind == "run":
            runs[str(data["run"])] = Run(
                str(data["model"]), dict(data["settings"]), frozenset(data["disturbs"])
            )
        elif kind == "answer":
            model, settings = str(data["model"]), dict(data["settings"])
            key, answer = str(data["key"]), _answer(data)
            self._answers[key] = answer
            if run is not None:
                run.answers[key] = answer
            else:
                self.last = Run(model, settings)
        elif kind == "no answer":
            failed, reason = (str(data["key"]), int(data["nth"])), str(data["reason"])
            if run is not None:
                run.failures[failed] = reason
        elif kind == "left out":
            left_out = int(data["after"]), str(data["reason"])
            if run is not None:
                run.left_out = left_out
        else:
            return False
        return True


def _version_of(schema: Any) -> int:
    """Of the schema of a line; 0 for what is none of a transcript's."""
    matched = re.fullmatch(r"foretune\.llm/(\d{1,9})", schema) if isinstance(schema, str) else None
    return int(matched[1]) if matched else 0


def _answer(data: Mapping[str, Any]) -> Answer:
    return Answer(
        str(data["text"]),
        min(int(data["prompt_tokens"]), MOST_TOKENS),
        min(int(data["completion_tokens"]), MOST_TOKENS),
        float(data["seconds"]),
        bool(data.get("cut_off", False)),
    )


class Replay(LanguageModel):
    """Answers what a transcript's last run was answered, and nothing else: a run without a model.

    Args:
        transcript: What was said.

    Attributes:
        run: The run that is replayed.

    Raises:
        BadInputError: It is empty.
    """

    def __init__(self, transcript: Transcript) -> None:
        if transcript.last is None:
            raise BadInputError(
                f"a transcript holds a run, but {transcript.path} has none: record one first"
            )
        self.run = transcript.last
        self.name = self.run.model
        self._transcript = transcript

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the recorded model."""
        return self.run.settings

    def disturbs(self, kind: str) -> bool:
        """Whether the recorded model did: questions are asked when they were asked then."""
        return kind in self.run.disturbs

    def outcome(self, key: str, nth: int) -> Answer | None:
        """What the recorded run got for a question.

        Args:
            key: Of the question.
            nth: How often it was asked before.
        """
        if (key, nth) in self.run.failures:
            return None
        return self.run.answers.get(key) or self._transcript.find(key)

    def knows(self, key: str, nth: int) -> bool:
        """Whether the transcript says how a question ended."""
        return (key, nth) in self.run.failures or self.outcome(key, nth) is not None

    def complete(self, messages: Sequence[Message], seconds: float) -> Answer:
        """What was answered then.

        Raises:
            LlmError: These messages are not in the transcript.
        """
        answer = self.outcome(key_of(messages, self.name, self.settings), 0)
        if answer is None:
            raise LlmError("the transcript has no answer to these messages")
        return answer
