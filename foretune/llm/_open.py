"""A session from the text that a user gives."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from foretune._options import option_names
from foretune.errors import BadInputError
from foretune.llm._base import LanguageModel
from foretune.llm._endpoint import OPENAI_URL, Endpoint, EndpointConfig
from foretune.llm._local import LocalModel
from foretune.llm._session import Session
from foretune.llm._transcript import Replay, Transcript
from foretune.llm._usage import SessionConfig

URL = "OPENAI_BASE_URL"
"""Variable with the address of a model that is given without one."""
_KEY = "OPENAI_API_KEY"
_TEXTS = {"model", "base_url", "key_file", "key_env", "device"}
_NUMBERS = {"temperature", "max_tokens", *option_names(SessionConfig)}
_SERVER = {"base_url", "key_file", "key_env", "extra", "disturbs"}
"""Settings that a model in this process has not."""
_KNOWN = {*_TEXTS, *_NUMBERS, *_SERVER}
_TYPES: tuple[tuple[set[str], tuple[type, ...], str], ...] = (
    (_NUMBERS, (int, float), "a number"),
    (_TEXTS, (str,), "a text"),
    ({"disturbs"}, (bool,), "true or false"),
)


def open_session(text: str, *, environment: Mapping[str, str] | None = None) -> Session:
    """A session with the model that ``text`` names.

    ====================  =======================================================================
    ``MODEL@URL``         a model of an OpenAI-compatible server, for example
                          ``qwen2.5-coder@http://localhost:11434/v1``
    ``MODEL``             the same at ``OPENAI_BASE_URL``, or OpenAI's own
    ``FILE.json``         settings: fields of ``EndpointConfig`` (with ``key_file`` or ``key_env``
                          in the place of ``key``; ``device`` for a folder) and of ``SessionConfig``
    ``FILE.jsonl``        a transcript, whose last run is replayed without a model
    ``FOLDER``            a model of transformers
    ====================  =======================================================================

    The key in ``OPENAI_API_KEY`` is sent to OpenAI and nobody else, unless ``key_env`` names that
    variable: a server that somebody else runs must not learn it.

    Args:
        text: Which model.
        environment: Variables in which addresses and keys are looked up; none if None.

    Raises:
        BadInputError: ``text`` is none of these, or a setting makes no sense.
        RecordError: A transcript cannot be read.
        MissingDependencyError: A package is missing.
    """
    environment = environment or {}
    path = Path(text)
    if text.endswith(".jsonl"):
        if not path.is_file():
            raise BadInputError(f"there is no transcript at {text}: give a file that exists")
        return Session(Replay(Transcript(path)))
    if text.endswith(".json"):
        return _from_settings(path, _read(path), environment)
    # Unlike the method of a path this answers of names that are too long for one, too.
    if os.path.isdir(path):
        return Session(LocalModel(path), SessionConfig(concurrency=1))
    model, at, url = text.rpartition("@http")
    if not at and (text.endswith("@") or "://" in text):
        raise BadInputError(
            f"a language model reads MODEL@URL, with a URL of http or https, but got {text!r}: for "
            "example qwen2.5-coder@http://localhost:11434/v1"
        )
    settings = {"model": model, "base_url": "http" + url} if at else {"model": text}
    return _from_settings(Path(), settings, environment)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(
            f"the settings of a language model are a JSON object, but {path} cannot be read "
            f"({type(error).__name__}): see docs/llm.md"
        ) from error
    if not isinstance(data, dict):
        raise BadInputError(f"the settings of a language model are a JSON object: see {path}")
    _check(path, data)
    return data


def _check(path: Path, data: Mapping[str, Any]) -> None:
    """Refuses names and types without the values: one may be a key, written here by mistake."""
    unknown = set(data) - _KNOWN
    if unknown:
        raise BadInputError(
            f"{path} has no setting {sorted(unknown)[0]!r}: choose from {', '.join(sorted(_KNOWN))}"
        )
    for names, kinds, told in _TYPES:
        for name in sorted(names & set(data)):
            if data[name] is not None and type(data[name]) not in kinds:
                raise BadInputError(
                    f"{path}: {name} is {told}, but got {type(data[name]).__name__}"
                )


def _from_settings(path: Path, data: Mapping[str, Any], environment: Mapping[str, str]) -> Session:
    model = data.get("model") or ""
    session = {name: data[name] for name in option_names(SessionConfig) if name in data}
    own = ("temperature", "max_tokens", "extra", "disturbs")
    chosen = {name: data[name] for name in own if name in data}
    folder = path.parent / model
    if model and path.name and os.path.isdir(folder):
        if foreign := sorted(_SERVER & set(data)):
            raise BadInputError(
                f"{path}: {foreign[0]} is for models behind a server, but the model is the folder "
                f"{folder}: leave it out"
            )
        chosen = {**chosen, "device": data.get("device")}
        # One question at a time: others would only wait for it while their own time runs.
        return Session(_local(folder, chosen), SessionConfig(**{"concurrency": 1, **session}))
    if data.get("device"):
        raise BadInputError(
            f"{path}: device is for models in this process, but there is no folder {folder}: leave "
            "it out, or give the folder of a model of transformers"
        )
    url = data.get("base_url") or environment.get(URL) or OPENAI_URL
    key = _key(path, data, url, environment)
    return Session(Endpoint(EndpointConfig(model, url, key, **chosen)), SessionConfig(**session))


def _local(folder: Path, chosen: Mapping[str, Any]) -> LanguageModel:
    return LocalModel(folder, **{name: v for name, v in chosen.items() if v is not None})


def _key(path: Path, data: Mapping[str, Any], url: str, environment: Mapping[str, str]) -> str:
    file, variable = data.get("key_file"), data.get("key_env")
    if file and variable:
        raise BadInputError(f"{path} has key_file and key_env, but there is one key: leave one out")
    if file:
        return _key_in(path, file)
    if variable:
        if not environment.get(variable):
            # Without its value, which may be the key itself.
            raise BadInputError(
                f"{path}: the environment has no variable that is called as key_env says: set it, "
                "or use key_file"
            )
        return environment[variable]
    return environment.get(_KEY, "") if _is_openai(url) else ""


def _is_openai(url: str) -> bool:
    """Whether an address is OpenAI's own, encrypted."""
    try:
        own, parts = urlsplit(OPENAI_URL), urlsplit(url)
        return (parts.scheme, parts.hostname, parts.port or 443) == (own.scheme, own.hostname, 443)
    except ValueError:
        return False


def _key_in(settings: Path, file: str) -> str:
    try:
        return (settings.parent / file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        # Without the path, also as the cause: it may be the key itself.
        raise BadInputError(
            f"{settings}: the file that key_file names cannot be read: check its path, which is "
            "relative to the settings"
        ) from None
