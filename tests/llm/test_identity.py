"""What tells one language model from another."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from foretune.llm import _identity, identity
from tests.llm.server import KEY


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Writes settings and returns their identity."""

    def write(**given: Any) -> str:
        file = tmp_path / "settings.json"
        file.write_text(json.dumps({"model": "m", "base_url": "http://h/v1", **given}), "utf-8")
        return identity(str(file))

    return write


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other"},
        {"base_url": "http://other/v1"},
        {"temperature": 0.1},
        {"max_tokens": 64},
        {"extra": {"seed": 1}},
        {"calls": 20},
        {"timeout_s": 5},
    ],
)
def test_settings_that_change_answers_change_it(settings: Any, change: dict[str, Any]) -> None:
    assert settings(**change) != settings() == settings()


@pytest.mark.parametrize(
    "change",
    [
        {"key_file": "key.txt"},
        {"key_env": "THEIRS"},
        {"key": KEY},
        {"usd_per_million_prompt": 0.15},
        {"unknown": 1},
    ],
)
def test_keys_and_prices_do_not(settings: Any, change: dict[str, Any]) -> None:
    assert settings(**change) == settings()


def test_no_key_is_hashed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []

    def listening(data: bytes, **options: Any) -> Any:
        hashed.append(data)
        return hashlib.blake2b(data, **options)

    class Listening:
        blake2b = staticmethod(listening)

    monkeypatch.setattr(_identity, "hashlib", Listening)
    settings(key=KEY, key_file=KEY, key_env=KEY)
    assert hashed and not any(KEY.encode() in data for data in hashed)


def test_where_settings_lie_and_how_they_are_written_makes_no_difference(tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    files[0].write_text('{"model": "m", "temperature": 1}', encoding="utf-8")
    files[1].write_text('{"temperature":   1,\n "model": "m"}', encoding="utf-8")
    assert identity(str(files[0])) == identity(str(files[1]))


def test_a_model_at_an_address_is_taken_by_its_words() -> None:
    texts = ["a@http://h/v1", "b@http://h/v1", "a@http://other/v1", "a"]
    assert len({identity(text) for text in texts}) == len(texts)
    assert identity(texts[0]) == identity(texts[0])


def test_the_address_of_the_environment_counts_where_there_is_no_other(tmp_path: Path) -> None:
    files = {"without": {"model": "m"}, "with": {"model": "m", "base_url": "http://h/v1"}}
    for name, data in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")
    without, given = (str(tmp_path / f"{name}.json") for name in files)

    def changes(text: str) -> bool:
        here, there = ({"OPENAI_BASE_URL": url} for url in ("http://h/v1", "http://other/v1"))
        assert identity(text, environment={"OPENAI_API_KEY": KEY}) == identity(text)
        return identity(text, environment=here) != identity(text, environment=there)

    assert changes("m") and changes(without)
    assert not changes("m@http://h/v1") and not changes(given) and not changes(str(tmp_path))


def test_a_transcript_is_taken_by_its_answers(tmp_path: Path) -> None:
    file, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    file.write_text("one\n", encoding="utf-8")
    other.write_text("one\n", encoding="utf-8")
    first = identity(str(file))
    assert first == identity(str(other))
    file.write_text("two\n", encoding="utf-8")
    assert identity(str(file)) != first


def test_a_folder_is_taken_by_its_files_also_where_settings_name_it(tmp_path: Path) -> None:
    folder, settings = tmp_path / "model", tmp_path / "settings.json"
    folder.mkdir()
    settings.write_text('{"model": "model"}', encoding="utf-8")
    (folder / "config.json").write_text("{}", encoding="utf-8")
    texts = [str(folder), str(settings)]
    first = [identity(text) for text in texts]
    assert first == [identity(text) for text in texts]
    (folder / "config.json").write_text('{"layers": 2}', encoding="utf-8")
    assert all(new != old for new, old in zip(map(identity, texts), first, strict=True))


@pytest.mark.parametrize("content", [None, "no JSON", "[1]", '{"model": null}'])
def test_settings_that_cannot_be_read_are_the_business_of_who_opens_them(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "settings.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert len(identity(str(file))) == 8
