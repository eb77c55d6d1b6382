"""A session from the text that a user gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError
from foretune.llm._base import LanguageModel
from foretune.llm._endpoint import OPENAI_URL, Endpoint, EndpointConfig
from foretune.llm._local import LocalModel
from foretune.llm._session import Session, SessionConfig
from foretune.llm._transcript import Replay, Transcript

_ENDPOINT = {"model", "base_url", "key_file", "temperature", "max_tokens", "extra"}
_SESSION = set(SessionConfig.__dataclass_fields__)
_NUMBERS = (int, float)


def open_session(text: str, *, key: str = "", base_url: str = "") -> Session:
    """A session with the model that ``text`` names.

    ====================  =======================================================================
    ``MODEL@URL``         a model of an OpenAI-compatible server, for example
                          ``qwen3@http://localhost:11434/v1``
    ``MODEL``             the same at ``base_url``
    ``FILE.json``         settings: fields of ``EndpointConfig`` (with ``key_file`` in the place of
                          ``key``) and of ``SessionConfig``
    ``FILE.jsonl``        a transcript, replayed without a model
    ``FOLDER``            a model of transformers
    ====================  =======================================================================

    Args:
        text: Which model.
        key: The server's key, where no ``key_file`` says otherwise.
        base_url: The server, where ``text`` names none; OpenAI's if empty.

    Raises:
        BadInputError: ``text`` is none of these, or a setting makes no sense.
        RecordError: A transcript cannot be read.
        MissingDependencyError: A package is missing.
    """
    path = Path(text)
    if text.endswith(".jsonl"):
        if not path.is_file():
            raise BadInputError(f"there is no transcript at {text}: give a file that exists")
        return Session(Replay(Transcript(path)), transcript=path)
    if text.endswith(".json"):
        return _from_settings(path, _read(path), key, base_url)
    if path.is_dir():
        return Session(LocalModel(path), SessionConfig(concurrency=1))
    model, at, url = text.rpartition("@http")
    config = (
        EndpointConfig(model, "http" + url, key)
        if at
        else EndpointConfig(text, base_url or OPENAI_URL, key)
    )
    return Session(Endpoint(config))


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
    return data


def _from_settings(path: Path, data: Mapping[str, Any], key: str, base_url: str) -> Session:
    unknown = set(data) - _ENDPOINT - _SESSION
    if unknown:
        # Its value may be a key that was written here by mistake: only the name is shown.
        raise BadInputError(
            f"{path} has no setting {sorted(unknown)[0]!r}: choose from "
            f"{', '.join(sorted(_ENDPOINT | _SESSION))}"
        )
    for name in _SESSION | {"temperature", "max_tokens"}:
        if data.get(name) is not None and type(data[name]) not in _NUMBERS:
            raise BadInputError(f"{path}: {name} is a number, but got {type(data[name]).__name__}")
    model, url = str(data.get("model", "")), str(data.get("base_url") or base_url or OPENAI_URL)
    if data.get("key_file"):
        key = _key(path.parent / str(data["key_file"]))
    session = SessionConfig(**{name: data[name] for name in _SESSION & set(data)})
    chosen = {name: data[name] for name in ("temperature", "max_tokens", "extra") if name in data}
    if (folder := path.parent / model).is_dir() and model:
        return Session(_local(folder, chosen), session)
    return Session(Endpoint(EndpointConfig(model, url, key, **chosen)), session)


def _local(folder: Path, chosen: Mapping[str, Any]) -> LanguageModel:
    return LocalModel(folder, **{k: v for k, v in chosen.items() if k != "extra" and v is not None})


def _key(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"the key of a language model is read from key_file, but {path} cannot be read: "
            "check the path"
        ) from error
