"""Answers on disk: a cache for the next run and a transcript that can be replayed without a model.

One JSON object per line: the messages, the model and its settings, and what it answered. The key
of an answer is the hash of the first three. No key of a server is in it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError, RecordError
from foretune.llm._base import MOST_TOKENS, Answer, LanguageModel, LlmError, Message

SCHEMA = "foretune.llm/1"


def key_of(messages: Sequence[Message], model: str, settings: Mapping[str, Any]) -> str:
    """32 hex digits: hash of everything that decides an answer."""
    text = json.dumps([[dict(m) for m in messages], model, dict(settings)], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Transcript:
    """Answers by key, kept in memory and appended to a file. Safe among threads.

    Args:
        path: The file, made if need be; None keeps nothing on disk.

    Raises:
        RecordError: The file cannot be read or is not a transcript.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.model = ""
        self.settings: dict[str, Any] = {}
        self._answers: dict[str, Answer] = {}
        self._lock = threading.Lock()
        if path is not None and path.exists():
            self._load(path)

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: str) -> Answer | None:
        """The answer with a key, if there is one."""
        return self._answers.get(key)

    def add(
        self, messages: Sequence[Message], model: str, settings: Mapping[str, Any], answer: Answer
    ) -> None:
        """Keeps an answer; it is on disk before it is used.

        Raises:
            RecordError: The file cannot be written.
        """
        key = key_of(messages, model, settings)
        line = json.dumps(
            {
                "schema": SCHEMA,
                "key": key,
                "model": model,
                "settings": dict(settings),
                "messages": [dict(m) for m in messages],
                "text": answer.text,
                "prompt_tokens": answer.prompt_tokens,
                "completion_tokens": answer.completion_tokens,
                "seconds": answer.seconds,
            }
        )
        with self._lock:
            if self.path is not None:
                try:
                    # The break first: what a killed run left unfinished stays a line of its own.
                    with self.path.open("ab") as file:
                        file.write(b"\n" + line.encode() + b"\n")
                except OSError as error:
                    raise RecordError(
                        f"{self.path} cannot be written ({error.strerror}): make room"
                    ) from error
            self._answers[key] = answer

    def _load(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise RecordError(f"{path} cannot be read ({error.strerror})") from error
        for line in lines:
            try:
                data = json.loads(line)
                answer = Answer(
                    str(data["text"]),
                    min(int(data["prompt_tokens"]), MOST_TOKENS),
                    min(int(data["completion_tokens"]), MOST_TOKENS),
                    float(data["seconds"]),
                )
                known, key = data["schema"] == SCHEMA, str(data["key"])
                model, settings = str(data["model"]), dict(data["settings"])
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue
            if known:
                self._answers[key] = answer
                self.model, self.settings = model, settings
        if any(line.strip() for line in lines) and not self._answers:
            raise RecordError(
                f"{path} must be a transcript of {SCHEMA}, but no line of it is: give another file"
            )


class Replay(LanguageModel):
    """Answers what a transcript holds, and nothing else: a run without a model.

    Args:
        transcript: What was said.

    Raises:
        BadInputError: It is empty.
    """

    def __init__(self, transcript: Transcript) -> None:
        if not len(transcript):
            raise BadInputError(
                f"a transcript holds answers, but {transcript.path} has none: record one first"
            )
        self._transcript = transcript
        self.name = transcript.model

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the recorded model."""
        return self._transcript.settings

    def complete(self, messages: Sequence[Message], seconds: float) -> Answer:
        """What was answered then.

        Raises:
            LlmError: These messages are not in the transcript.
        """
        found = self._transcript.find(key_of(messages, self.name, self.settings))
        if found is None:
            raise LlmError("the transcript has no answer to these messages")
        return found
