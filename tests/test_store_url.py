"""What stands in the URL of a store never reaches a user's eyes or a file, whatever it is."""

from __future__ import annotations

import argparse
import io
import json
import logging
import shlex
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretune import cli
from foretune._store_url import HIDDEN, StoreURL, without_credentials, without_password
from foretune.cli import _tune
from foretune.errors import ForetuneError
from foretune.report import write_report
from tests.records.postgres_server import require_server
from tests.report.support import result, task

_CHARACTERS = st.characters(blacklist_categories=["Cs", "Cc"])
# Long enough to stand nowhere by chance.
_SECRETS = st.text(_CHARACTERS, min_size=1, max_size=8).map(lambda text: f"q{text}7Zx{text}w")
_PLACES = st.sampled_from(["front", "parameter", "ssl parameter"])


@pytest.fixture(autouse=True)
def driver() -> None:
    require_server()


def _url(secret: str, place: str, encoded: bool) -> str:
    """The URL of a server that is not there."""
    written = quote(secret, safe="") if encoded else secret
    if place == "front":
        return f"postgresql://me:{written}@127.0.0.1:1/db?sslmode=disable"
    name = "password" if place == "parameter" else "sslpassword"
    return f"postgresql://me@127.0.0.1:1/db?sslmode=disable&{name}={written}"


def _is_told(secret: str, text: str) -> bool:
    """Whether the begin or the end of a secret stands in a text, in whatever writing."""
    forms = (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1])
    return any(part in text for form in forms for part in (form, form[:4], form[-4:]))


_COMMANDS = st.sampled_from(
    [
        "db info URL",
        "db merge URL there-is-no-such-journal",
        "tune URL",
        "dance URL",
        "bench --store URL",
        "db info x --store=URL",
    ]
)


@settings(max_examples=40, deadline=None)
@given(_SECRETS, _PLACES, st.booleans(), _COMMANDS)
def test_no_line_of_the_command_line_has_a_password(
    secret: str, place: str, encoded: bool, command: str
) -> None:
    url, out = _url(secret, place, encoded), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", out)
        patch.setattr("sys.stdout", out)
        try:
            code = cli.main([word.replace("URL", url) for word in command.split()])
        except SystemExit as stop:
            code = int(stop.code or 0)
    assert code == 2
    assert not _is_told(secret, out.getvalue()), out.getvalue()


@settings(max_examples=80, deadline=None)
@given(_SECRETS, _PLACES, st.booleans())
def test_no_error_and_no_name_has_a_password(secret: str, place: str, encoded: bool) -> None:
    from foretune.records import open_store

    with pytest.raises(ForetuneError) as caught:
        open_store(_url(secret, place, encoded))
    chain: list[BaseException] = [caught.value]
    assert not _is_told(secret, str(chain) + repr(caught.value))
    assert caught.value.__suppress_context__ or caught.value.__cause__ is None
    try:
        read = StoreURL.read(_url(secret, place, encoded))
    except ForetuneError:
        return
    assert read.name == "postgresql://me@127.0.0.1:1/db?sslmode=disable"
    assert not _is_told(secret, repr(read))
    assert secret in (read.parameters.get("password"), read.parameters.get("sslpassword"))


@given(_SECRETS, _PLACES, st.booleans(), st.booleans())
def test_the_command_that_a_result_notes_has_no_password(
    secret: str, place: str, encoded: bool, joined: bool
) -> None:
    url = _url(secret, place, encoded)
    given = ["tune", "net.onnx", *([f"--store={url}"] if joined else ["--store", url])]
    command = _tune._reproducing(argparse.Namespace(given=given, fresh=False, store=url, seed=0))
    assert not _is_told(secret, command)
    assert "127.0.0.1:1/db" in command or HIDDEN in command
    assert shlex.split(command)[-1].startswith(("postgresql://", "--store=postgresql://"))


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(_SECRETS, _PLACES)
def test_no_result_and_no_report_has_a_password(tmp_path: Path, secret: str, place: str) -> None:
    url = _url(secret, place, encoded=True)
    words = argparse.Namespace(
        given=["tune", "net.onnx", "--store", url], fresh=True, store=url, seed=0
    )
    reused = {"store": StoreURL.read(url).name, "unwritten": 0, "tasks": []}
    data = result(task(), command=_tune._reproducing(words), reused=reused)
    write_report(data, tmp_path / "report.html")
    for text in (json.dumps(data), (tmp_path / "report.html").read_text()):
        assert "127.0.0.1:1/db" in text
        assert not _is_told(secret, text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_SECRETS, _PLACES, st.booleans())
def test_no_line_of_the_log_has_a_password(
    capsys: pytest.CaptureFixture[str], secret: str, place: str, encoded: bool
) -> None:
    handler = cli._StandardError(verbose=True)
    handler.emit(
        logging.LogRecord(
            "foretune", logging.WARNING, "", 0, "at %s", (_url(secret, place, encoded),), None
        )
    )
    assert not _is_told(secret, capsys.readouterr().err)


@pytest.mark.parametrize(
    "text",
    [
        "an ordinary line with me@example.org and password=1",
        "cannot open store 'postgresql://me@host:5432/db?sslmode=require': refused",
        "qwen@http://localhost:11434/v1",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_credentials(text) == text


@pytest.mark.parametrize("word", ["net.onnx", "--llm=qwen@http://x:1/v1", "me@host", ""])
def test_other_words_of_a_command_stay(word: str) -> None:
    assert without_password(word) == word


def test_a_password_without_a_host_is_taken_for_no_port(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for url in ("postgresql://me:77Zx7", "postgresql://me:q7Zx/db", "postgres://me:q7Zx?a=b"):
        assert cli.main(["db", "info", url]) == 2
        err = capsys.readouterr().err
        assert "the port in the URL of a store is a number" in err and "7Zx" not in err
        assert "7Zx" not in without_credentials(f"unknown command {url!r}")


@pytest.mark.parametrize("host", ["[::1]:5432", "a:1,b:2", "a,b", "", "host", "host:"])
def test_hosts_of_every_form_are_told(host: str) -> None:
    assert StoreURL.read(f"postgresql://me:q7Zx@{host}/db").name == f"postgresql://me@{host}/db"
    text = f"cannot open store 'postgresql://{host}/db'"
    assert without_credentials(text) == text


def test_a_url_of_another_kind_is_refused_without_repeating_it(tmp_path: Path) -> None:
    for url in ("mysql://me:7Zx@host/db", "postgresql+psycopg://me:7Zx@host/db"):
        with pytest.raises(ForetuneError, match="this one begins otherwise") as caught:
            StoreURL.read(url)
        assert "7Zx" not in str(caught.value)
