"""Servers that behave and servers that do not."""

from __future__ import annotations

import gzip
import json
import time

import pytest

from foretune.errors import BadInputError
from foretune.llm import Endpoint, EndpointConfig, LlmError
from tests.llm.server import KEY, Reply, Server, always, completion, refusal

MESSAGES = [{"role": "user", "content": "hello"}]


def ask(server, seconds=10.0, **options):
    endpoint = Endpoint(EndpointConfig("tiny", server.url, KEY, **options))
    try:
        return endpoint.complete(MESSAGES, seconds)
    finally:
        endpoint.close()


def failure(reply, seconds=10.0):
    with Server(always(reply)) as server, pytest.raises(LlmError) as caught:
        ask(server, seconds)
    return caught.value


def test_what_is_asked_and_what_comes_back():
    with Server(always(completion("well", 11, 5))) as server:
        answer = ask(server, temperature=0.2, max_tokens=9, extra={"seed": 4})
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens) == ("well", 11, 5)
    assert server.requests == [
        {"model": "tiny", "messages": MESSAGES, "temperature": 0.2, "max_tokens": 9, "seed": 4,
         "stream": False}
    ]  # fmt: skip
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_what_is_none_is_not_sent():
    with Server(always(completion("well"))) as server:
        ask(server, temperature=None, max_tokens=None)
    assert set(server.requests[0]) == {"model", "messages", "stream"}


def test_usage_is_optional_and_may_be_nonsense():
    for usage in (None, {}, [3], "many", {"prompt_tokens": -4, "completion_tokens": "many"}):
        body = {"choices": [{"message": {"content": "x"}}], "usage": usage}
        with Server(always(Reply(json.dumps(body).encode()))) as server:
            answer = ask(server)
        assert (answer.prompt_tokens, answer.completion_tokens) == (0, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage \xff\x00",
        b'{"choices": [{"message": {"content": "half',
        b"[]",
        b"null",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": null}}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_chat_completion(body):
    error = failure(Reply(body))
    assert error.again and not error.final


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
def test_a_thought_that_leaves_no_room_for_the_answer_is_an_answer_that_is_cut_off(content):
    message = {"role": "assistant", "reasoning_content": "first of all", **content}
    used = {"prompt_tokens": 100, "completion_tokens": 50}
    data = {"choices": [{"message": message, "finish_reason": "length"}], "usage": used}
    with Server(always(Reply(json.dumps(data).encode()))) as server:
        answer = ask(server)
    assert (answer.text, answer.cut_off, answer.completion_tokens) == ("", True, 50)


def test_what_is_no_chat_completion_may_have_cost_tokens():
    used = {"prompt_tokens": 100, "completion_tokens": 50}
    error = failure(Reply(json.dumps({"choices": [], "usage": used}).encode()))
    assert (error.prompt_tokens, error.completion_tokens) == (100, 50)
    error = failure(Reply(json.dumps({"choices": [], "usage": [1]}).encode()))
    assert (error.prompt_tokens, error.completion_tokens) == (0, 0)


def test_an_answer_of_a_megabyte_is_cut_off():
    error = failure(completion("x" * (1 << 20)))
    assert "at most" in str(error) and not error.again


def test_compressed_answers_are_refused():
    bomb = gzip.compress(b"0" * (1 << 24))
    error = failure(Reply(bomb, headers={"Content-Encoding": "gzip"}))
    assert "compressed" in str(error)


def test_a_server_that_never_answers():
    began = time.monotonic()
    error = failure(Reply(wait_s=60), seconds=0.3)
    assert error.again and "within" in str(error)
    assert time.monotonic() - began < 5


def test_a_server_that_drips():
    error = failure(Reply(completion("x" * 400).body, drip_s=0.02), seconds=0.4)
    assert error.again


@pytest.mark.parametrize(
    "status, again, final",
    [(400, False, False), (401, False, True), (403, False, True), (404, False, True),
     (429, True, False), (500, True, False), (503, True, False), (307, False, False)],
)  # fmt: skip
def test_statuses(status, again, final):
    error = failure(refusal(status, "because"))
    assert (error.again, error.final) == (again, final)
    assert str(status) in str(error) and "because" in str(error)


def test_retry_after_in_seconds_and_as_a_date():
    assert failure(refusal(429, Retry_After="7")).wait_s == 7
    assert failure(refusal(429, Retry_After="soon")).wait_s == 0
    at = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
    assert 50 < failure(refusal(429, Retry_After=at)).wait_s <= 60


def test_nobody_listens():
    with Server(always(Reply())) as server:
        url = server.url
    with pytest.raises(LlmError, match="cannot be reached") as caught:
        Endpoint(EndpointConfig("tiny", url)).complete(MESSAGES, 5)
    assert caught.value.again


def test_the_key_is_shown_nowhere():
    error = failure(refusal(401, f"wrong key {KEY}\nnext\x1b[31m line {'x' * 4000}"))
    assert KEY not in str(error) and "\n" not in str(error) and "\x1b" not in str(error)
    assert len(str(error)) < 400
    # Cut to its first characters only once the key is out.
    for lead in range(150, 210, 3):
        assert KEY[:8] not in str(failure(Reply(f"{'x' * lead}{KEY}".encode(), status=500)))
    config = EndpointConfig("tiny", "http://127.0.0.1:1/v1", KEY)
    assert KEY not in repr(config)
    assert KEY not in json.dumps(Endpoint(config).settings)


def test_a_key_that_the_server_repeats_is_taken_out_of_its_answer():
    with Server(always(completion(f"r {KEY} s"))) as server:
        assert ask(server).text == "r *** s"


@pytest.mark.parametrize("key", ["1", "x", "none", "EMPTY"])
def test_a_key_that_is_none_destroys_no_answer(key):
    text = 'none of these: {"proposals": [{"v1": [1, 1, 1, 64]}]} x EMPTY'
    with Server(always(completion(text))) as server:
        config = EndpointConfig("tiny", server.url, key)
        assert Endpoint(config).complete(MESSAGES, 10).text == text
    assert f"{key!r}" not in repr(config) and "key" not in Endpoint(config).settings


@pytest.mark.parametrize(
    "host, here",
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("ollama.localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("0.0.0.0", True),
        ("[::1]", True),
        ("[::ffff:127.0.0.1]", True),
        ("gpu-box", False),
        ("localhost.example.org", False),
        ("notlocalhost", False),
        ("192.168.1.7", False),
        ("[2001:db8::1]", False),
    ],
)
def test_a_server_on_this_machine_disturbs_unless_told_otherwise(host, here, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "This-Machine")
    for kind in ("llvm", "cuda"):
        for told, disturbs in ((None, here), (True, True), (False, False)):
            config = EndpointConfig("m", f"http://{host}:8000/v1", disturbs=told)
            assert Endpoint(config).disturbs(kind) is disturbs


def test_the_name_of_this_machine_is_this_machine(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "This-Machine")
    assert Endpoint(EndpointConfig("m", "http://this-machine/v1")).disturbs("llvm")


def test_redirects_do_not_carry_the_key_elsewhere():
    with Server(always(completion("stolen"))) as other:
        error = failure(refusal(307, Location=f"{other.url}/chat/completions"))
        assert "307" in str(error) and not other.requests


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "localhost:8000"},
        {"base_url": "file:///etc/passwd"},
        {"base_url": "http://user:secret@host/v1"},
        {"base_url": "http://:secret@host/v1"},
        {"base_url": "http://host/v1?api-key=secret"},
        {"base_url": "http://host/v1#secret"},
        {"base_url": "http://host:secret/v1"},
        {"base_url": "http://[secret/v1"},
        {"extra": "secret"},
        {"max_tokens": "lines"},
        {"disturbs": "secret"},
        {"disturbs": 1},
        {"model": ""},
        {"key": "two\nlines"},
        {"key": "schlüssel"},
    ],
)
def test_bad_settings_are_refused_without_showing_secrets(options):
    with pytest.raises(BadInputError) as caught:
        EndpointConfig(**{"model": "m", "base_url": "http://h/v1", **options})
    assert "secret" not in str(caught.value) and "lines" not in str(caught.value)
