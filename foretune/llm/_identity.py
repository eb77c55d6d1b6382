"""What tells one language model from another, in the names of runs and of work directories.

Never a key, nor where one is: only settings that are listed here are looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from foretune.llm._endpoint import EndpointConfig
from foretune.llm._open import URL
from foretune.llm._usage import SessionConfig

_SECRET = {"key"}
_PRICES = {"usd_per_million_prompt", "usd_per_million_completion"}
"""Which only the count of what a run has cost depends on."""
_SETTINGS = {
    *(each.name for each in (*fields(EndpointConfig), *fields(SessionConfig))),
    "device",
} - {*_SECRET, *_PRICES}


def identity(text: str, *, environment: Mapping[str, str] | None = None) -> str:
    """8 hex digits that change with what a language model is, or how it is asked.

    Of ``settings.json`` its settings count, of ``answers.jsonl`` the answers, of a folder the
    names, sizes and dates of its files; ``model@url`` is taken by its words.

    Args:
        text: As ``foretune.llm.open_session`` reads it. What that refuses has an identity, too: who
            opens it says what is wrong.
        environment: Variables in which the address of a model without one is looked up; none if
            None.
    """
    address = (environment or {}).get(URL, "")
    told = json.dumps(_described(text, address), sort_keys=True)
    return hashlib.blake2b(told.encode(), digest_size=4).hexdigest()


def _described(text: str, address: str) -> Any:
    path = Path(text)
    if text.endswith(".jsonl") and path.is_file():
        return {"answers": hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()}
    if text.endswith(".json"):
        return _settings(path, address)
    if os.path.isdir(path):
        return _folder(path)
    return {"text": text, **({"address": address} if address and "@http" not in text else {})}


def _settings(path: Path, address: str) -> Any:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        told = {name: value for name, value in data.items() if name in _SETTINGS}
        folder = path.parent / str(told.get("model") or "")
    except (OSError, ValueError, AttributeError, RecursionError):
        return {"text": str(path)}
    if told.get("model") and os.path.isdir(folder):
        return {"settings": told, **_folder(folder)}
    if address and not told.get("base_url"):
        told["base_url"] = address
    return {"settings": told}


def _folder(path: Path) -> dict[str, Any]:
    files = {each.name: each.stat() for each in sorted(path.iterdir()) if each.is_file()}
    return {"files": [(name, at.st_size, at.st_mtime_ns) for name, at in files.items()]}
