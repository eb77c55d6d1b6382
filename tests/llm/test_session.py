"""Calls of a run: concurrent, counted, retried, remembered, given up."""

from __future__ import annotations

import json
import logging
import re
import threading
import time

import pytest

from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.llm import (
    Answer,
    Endpoint,
    EndpointConfig,
    LanguageModel,
    LlmError,
    LocalModel,
    Session,
    SessionConfig,
    Transcript,
    _session,
    open_session,
)
from foretune.llm._transcript import key_of
from tests.llm.server import KEY, Reply, Server, always, completion, in_turn, refusal, wait_for


class Scripted(LanguageModel):
    """Answers from a function of the last message."""

    name = "scripted"

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def complete(self, messages, seconds):
        self.asked.append(messages[-1]["content"])
        found = self.answer(messages[-1]["content"])
        if isinstance(found, Exception):
            raise found
        return Answer(found, 10, 5, 0.1)


def say(text):
    return [{"role": "user", "content": text}]


def results(session, *texts):
    return [session.wait(asked) for asked in [session.submit(say(text)) for text in texts]]


def test_answers_are_counted_and_priced():
    config = SessionConfig(usd_per_million_prompt=1.0, usd_per_million_completion=10.0)
    with Session(Scripted(str.upper), config) as session:
        assert [a.text for a in results(session, "a", "b")] == ["A", "B"]
        data = session.to_json()
    assert (data["calls"], data["answers"], data["prompt_tokens"]) == (2, 2, 20)
    assert data["usd"] == pytest.approx((20 * 1 + 10 * 10) / 1e6)
    assert session.status.startswith("language model: 2 calls, 20 + 10 tokens, 0 s, $0.0001, 0 inv")
    json.dumps(data)


def test_the_same_question_is_asked_once():
    gate = threading.Event()
    model = Scripted(lambda text: gate.wait(10) and text)
    with Session(model) as session:
        first, second = session.submit(say("a")), session.submit(say("a"))
        gate.set()
        assert first.result(10) is second.result(10)
        assert session.submit(say("a")).result(10).text == "a"
    assert model.asked == ["a"] and session.usage.cached == 1


def test_calls_overlap_with_the_caller_and_each_other():
    gate, model = threading.Event(), Scripted(lambda text: gate.wait(10) and text)
    with Session(model, SessionConfig(concurrency=2)) as session:
        futures = [session.submit(say(str(i))) for i in range(4)]
        assert wait_for(lambda: len(model.asked) == 2)
        assert not any(future.done() for future in futures)
        gate.set()
        assert [future.result(10).text for future in futures] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("error", [OverflowError("x"), RuntimeError("secret"), MemoryError()])
def test_whatever_a_model_raises_is_no_answer_and_no_more(error, caplog):
    with Session(Scripted(lambda text: error), SessionConfig(patience=2)) as session:
        assert [results(session, text) for text in "abc"] == [[None]] * 3
        assert session.given_up and type(error).__name__ in session.reason
    assert "secret" not in caplog.text


def test_an_answer_that_is_not_ready_in_time_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(_session, "_GRACE_S", 0.0)
    gate, model = threading.Event(), Scripted(lambda text: gate.wait(30) and text)
    with Session(model, SessionConfig(timeout_s=0.05, patience=2)) as session:
        assert [session.wait(session.submit(say(text))) for text in "abc"] == [None] * 3
        assert session.given_up and "in time" in session.reason
        gate.set()


def test_questions_that_fail_together_count_once(monkeypatch):
    monkeypatch.setattr(_session, "_GRACE_S", 0.0)
    replies = [*[refusal(503)] * 8, *[completion("up")] * 4]
    with Server(lambda _, number: replies[number]) as server:
        config = SessionConfig(retries=0, patience=3)
        with Session(Endpoint(EndpointConfig("m", server.url)), config) as session:
            for batch in ("abcd", "efgh"):
                assert results(session, *batch) == [None] * 4
                assert not session.given_up
            assert [answer.text for answer in results(session, *"abcd")] == ["up"] * 4
    slow = Scripted(lambda text: time.sleep(0.4) or text)
    with Session(slow, SessionConfig(timeout_s=0.05, patience=2)) as session:
        asked = [session.submit(say(text)) for text in "abc"]
        assert [session.wait(future) for future in asked] == [None] * 3
        assert not session.given_up


def test_no_answer_is_waited_for_after_the_end_of_a_run(caplog):
    gate, model = threading.Event(), Scripted(lambda text: gate.wait(30) and text)
    with Session(model, SessionConfig(timeout_s=60, patience=1)) as session:
        session.end_after(0.05)
        assert results(session, "a", "b") == [None, None]
        # It is not the model that is to blame: another run may ask it.
        assert not session.given_up and not caplog.messages
        gate.set()
        session.end_after(None)
        assert [answer.text for answer in results(session, "c")] == ["c"]


def judged(session, *texts):
    """Asks one after the other, with the verdict that each answer is usable that says so."""
    answers = []
    for text in texts:
        asked = session.submit(say(text))
        answer = session.wait(asked)
        if answer is not None:
            session.judge(asked, answer, answer.text == "usable")
        answers.append(answer and answer.text)
    return answers


def test_a_model_that_only_talks_is_left_out_in_the_end(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(_session, "_USELESS", 3)
    path = tmp_path / "llm.jsonl"
    given = {"a": "talk", "b": "talk", "c": "usable", "d": "talk", "e": "talk", "f": "talk"}
    with Session(Scripted(given.__getitem__), transcript=path) as session:
        recorded = judged(session, *"abcdefgh")
        assert recorded == ["talk", "talk", "usable", "talk", "talk", "talk", None, None]
        assert session.left_out and "nothing in its answers was usable" in session.reason
    said = [r.getMessage() for r in caplog.records]
    assert len([told for told in said if "is not asked any more" in told]) == 1
    with open_session(str(path)) as replay:
        assert judged(replay, *"abcdefgh") == recorded
        assert replay.reason == session.reason


def test_answers_that_are_cut_off_are_said_once_and_kept(tmp_path, caplog):
    path = tmp_path / "llm.jsonl"
    with Server(always(completion("thinking about", finish_reason="length"))) as server:
        endpoint = Endpoint(EndpointConfig("m", server.url))
        with Session(endpoint, transcript=path) as session:
            assert judged(session, "a", "b") == ["thinking about"] * 2
    said = [r.getMessage() for r in caplog.records if "cut off" in r.getMessage()]
    assert len(said) == 1 and "raise max_tokens" in said[0]
    with open_session(str(path)) as replay:
        assert replay.wait(replay.submit(say("a"))).cut_off


def test_a_busy_server_is_asked_again_when_it_says():
    busy = Server(in_turn(refusal(429, Retry_After="1"), completion("later")))
    with busy as server, Session(Endpoint(EndpointConfig("m", server.url))) as session:
        began = time.monotonic()
        assert session.submit(say("a")).result(10).text == "later"
        assert time.monotonic() - began >= 0.95
    assert session.usage.calls == 2 and session.usage.failed == 0


def test_tokens_of_answers_that_cannot_be_read_are_counted_and_priced():
    empty = {"choices": [{"message": {"content": None}}],
             "usage": {"prompt_tokens": 100, "completion_tokens": 50}}  # fmt: skip
    script = in_turn(Reply(json.dumps(empty).encode()), completion("later", 7, 3))
    with Server(script) as server:
        config = SessionConfig(usd_per_million_prompt=1.0)
        with Session(Endpoint(EndpointConfig("m", server.url)), config) as session:
            assert results(session, "a")[0].text == "later"
    usage = session.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (2, 107, 53)
    assert session.usd == pytest.approx(107e-6)


def test_errors_of_the_server_are_retried_so_often():
    with Server(always(refusal(500))) as server:
        config = SessionConfig(retries=1, patience=9)
        with Session(Endpoint(EndpointConfig("m", server.url)), config) as session:
            assert results(session, "a") == [None]
    assert len(server.requests) == session.usage.calls == 2


@pytest.mark.parametrize("wait_s", [45, 3600])
def test_a_wait_longer_than_the_time_left_is_not_waited_for(wait_s):
    with Server(always(refusal(429, Retry_After=str(wait_s)))) as server:
        config = SessionConfig(timeout_s=40)
        with Session(Endpoint(EndpointConfig("m", server.url)), config) as session:
            assert results(session, "a") == [None]
    assert len(server.requests) == 1


def test_nobody_calls_a_server_before_it_wants_to_be_called():
    model = Scripted(lambda _: LlmError("busy", again=True, wait_s=3600))
    with Session(model, SessionConfig(timeout_s=40, patience=9)) as session:
        assert results(session, "a") == [None]
        assert results(session, "b", "c") == [None, None]
        assert model.asked == ["a"]
        assert session.usage.failed == 3


def test_a_pause_that_a_server_asks_for_is_said_once_and_no_reason_to_give_up(caplog):
    answers = iter([LlmError("busy", again=True, wait_s=3600), "fine"])
    model = Scripted(lambda _: next(answers))
    with Session(model, SessionConfig(timeout_s=40, patience=2)) as session:
        assert [results(session, text) for text in "abcdef"] == [[None]] * 6
        assert model.asked == ["a"] and session.usage.failed == 6 and not session.given_up
        session._not_before = 0.0  # the hour is over
        assert results(session, "g")[0].text == "fine"
    said = [r.getMessage() for r in caplog.records]
    assert len([told for told in said if "asks not to be called for 3600 s" in told]) == 1


def test_a_server_that_asks_for_one_pause_after_the_other_is_left_out():
    model = Scripted(lambda _: LlmError("busy", again=True, wait_s=3600))
    with Session(model, SessionConfig(timeout_s=40, patience=3)) as session:
        for text in "abc":
            assert not session.given_up
            results(session, text)
            session._not_before = 0.0
        assert session.given_up and len(model.asked) == 3


@pytest.mark.parametrize("ends_s, left_out", [(600, True), (7200, False), (None, False)])
def test_a_pause_until_after_the_end_of_a_run_ends_the_asking(ends_s, left_out):
    model = Scripted(lambda _: LlmError("busy", again=True, wait_s=3600))
    with Session(model, SessionConfig(patience=9)) as session:
        session.end_after(ends_s)
        assert results(session, "a", "b") == [None, None]
        assert session.left_out is left_out
        assert ("before the run is over" in session.reason) is left_out


def given_up(session, caplog, *texts):
    """Asks, and returns what was said about it."""
    with caplog.at_level(logging.DEBUG):
        answers = []
        for text in texts:
            answers += results(session, text)
    assert answers == [None] * len(texts)
    return [r.getMessage() for r in caplog.records if "is not asked any more" in r.getMessage()]


def test_a_wrong_key_ends_it_at_once_and_is_said_once(caplog):
    wrong = Server(always(refusal(401, f"bad key {KEY}")))
    with wrong as server, Session(Endpoint(EndpointConfig("m", server.url, KEY))) as session:
        told = given_up(session, caplog, "a", "b", "c")
        assert session.given_up
    assert len(server.requests) == 1
    assert len(told) == 1 and "401" in told[0]
    assert KEY not in caplog.text and KEY not in json.dumps(session.to_json())


def test_a_model_that_never_answers_is_left_out_after_a_while(caplog):
    with Server(always(Reply(wait_s=60))) as server:
        config = SessionConfig(timeout_s=0.2, retries=0, patience=2)
        with Session(Endpoint(EndpointConfig("m", server.url)), config) as session:
            told = given_up(session, caplog, "a", "b", "c", "d")
    assert len(server.requests) == 2 and len(told) == 1


def test_no_endpoint_is_said_once(caplog):
    endpoint = Endpoint(EndpointConfig("m", "http://127.0.0.1:9/v1"))
    with Session(endpoint, SessionConfig(retries=0)) as session:
        assert len(given_up(session, caplog, *"abcde")) == 1
        assert session.status == "language model left out"


def test_an_answer_in_between_restores_patience():
    answers = iter([LlmError("x"), LlmError("x"), "fine", LlmError("x"), LlmError("x"), "fine"])
    with Session(Scripted(lambda _: next(answers)), SessionConfig(patience=3)) as session:
        found = [results(session, text)[0] for text in "abcdef"]
    assert [answer is not None for answer in found] == [False, False, True, False, False, True]


def test_the_budget_counts_failures_and_retries(caplog):
    model = Scripted(lambda _: LlmError("busy", again=True))
    with Session(model, SessionConfig(calls=3, retries=1, patience=99, timeout_s=30)) as session:
        assert results(session, "a", "b", "c") == [None] * 3
        assert session.usage.calls == len(model.asked) == 3
        assert "budget of 3 calls" in session.reason


def test_what_is_paid_for_is_waited_for_where_the_budget_is_spent(tmp_path):
    def answer(text):
        # None of them before the budget is found to be spent.
        return text.upper() if wait_for(lambda: session.given_up) else LlmError("too early")

    def texts(asked):
        return [found and found.text for found in results(asked, *"abcd")]

    path = tmp_path / "llm.jsonl"
    with Session(Scripted(answer), SessionConfig(calls=3, patience=1), path) as session:
        recorded = texts(session)
        assert session.left_out and "budget of 3 calls" in session.reason
    usage = session.usage
    assert (usage.calls, usage.answers, usage.failed, recorded.count(None)) == (3, 3, 1, 1)
    with open_session(str(path)) as replay:
        assert texts(replay) == recorded and replay.reason == session.reason


def test_closing_ends_waiting():
    session = Session(Scripted(lambda _: LlmError("x", again=True, wait_s=25)))
    future = session.submit(say("a"))
    assert wait_for(lambda: session.usage.calls == 1)
    session.close()
    assert future.result(5) is None
    assert session.submit(say("b")).result(1) is None


def trace(session, texts):
    """What a caller learns from one question after the other."""
    told = []
    for text in texts:
        answer = session.wait(session.submit(say(text)))
        told.append((answer and answer.text, session.left_out))
    return told


def test_answers_are_on_disk_and_replayed(tmp_path):
    path = tmp_path / "llm.jsonl"
    model = Scripted(lambda text: LlmError("busy") if text in "xyz" else text.upper())
    with Session(model, SessionConfig(patience=9), path) as session:
        recorded = trace(session, "axybzxc")
    assert [text for text, _ in recorded] == ["A", None, None, "B", None, None, "C"]
    with path.open("ab") as file:
        file.write(b'{"half')  # a run that was killed
    before = path.read_bytes()
    with open_session(str(path)) as replay:
        assert trace(replay, "axybzxc") == recorded
        assert not replay.given_up and (replay.usage.cached, replay.usage.failed) == (3, 4)
    assert path.read_bytes() == before
    with Session(model, transcript=path) as again:
        assert [text for text, _ in trace(again, "axd")] == ["A", None, "D"]
    assert model.asked == [*"axybzxc", "x", "d"], "answers are known, failures are asked again"


def test_a_failure_before_the_answer_is_replayed_before_it(tmp_path):
    path = tmp_path / "llm.jsonl"
    answers = iter([LlmError("busy"), LlmError("busy"), "fine"])
    with Session(Scripted(lambda _: next(answers)), transcript=path) as session:
        recorded = trace(session, "aaaa")
    assert [text for text, _ in recorded] == [None, None, "fine", "fine"]
    with open_session(str(path)) as replay:
        assert trace(replay, "aaaa") == recorded


def late(texts):
    """A model that answers some questions when the event is set, and what it answers with."""
    gate, threads = threading.Event(), []

    def answer(text):
        if text in texts:
            threads.append(threading.current_thread())
            gate.wait(30)
        return LlmError("too busy") if text == "x" else text.upper()

    return Scripted(answer), gate, threads


def go_without(session, model, text):
    """Asks what the model begins to answer, but not in time."""
    asked = session.submit(say(text))
    assert wait_for(lambda: text in model.asked)
    assert session.wait(asked) is None


def test_an_answer_that_comes_too_late_is_kept_and_replayed_as_too_late(tmp_path, monkeypatch):
    monkeypatch.setattr(_session, "_GRACE_S", 0.0)
    path = tmp_path / "llm.jsonl"
    model, gate, _ = late("b")
    with Session(model, SessionConfig(timeout_s=0.5), path) as session:
        recorded = trace(session, "ab")
        gate.set()
        assert wait_for(lambda: session.usage.answers == 2)
        recorded += trace(session, "bc")
    assert [text for text, _ in recorded] == ["A", None, "B", "C"]
    assert (session.usage.failed, session.usage.calls) == (1, 3)
    with open_session(str(path)) as replay:
        assert trace(replay, "abbc") == recorded


def test_a_question_that_fails_too_late_failed_once(monkeypatch):
    monkeypatch.setattr(_session, "_GRACE_S", 0.0)
    model, gate, threads = late("x")
    with Session(model, SessionConfig(timeout_s=0.1, patience=2)) as session:
        go_without(session, model, "x")
        gate.set()
        threads[0].join(10)
        assert session.usage.failed == 1 and not session.given_up


def test_a_model_that_always_answers_too_late_is_left_out(monkeypatch):
    monkeypatch.setattr(_session, "_GRACE_S", 0.0)
    gates = {text: threading.Event() for text in "ab"}
    model = Scripted(lambda text: gates[text].wait(30) and text)
    with Session(model, SessionConfig(timeout_s=0.05, patience=2)) as session:
        for number, text in enumerate("ab", 1):
            go_without(session, model, text)
            gates[text].set()
            assert wait_for(lambda number=number: session.usage.answers == number)
        assert session.given_up and "in time" in session.reason


def test_a_model_that_answered_nothing_in_a_short_run_is_named_at_its_end(caplog):
    with Session(Scripted(lambda text: text if text == "c" else LlmError("no host"))) as session:
        assert trace(session, "a") == [(None, False)]
        assert session.to_json()["left_out"] is None and not caplog.records, "patience is 3"
        session.conclude()
        session.conclude()
        assert session.to_json()["left_out"] == "no host"
        assert caplog.text.count("answered nothing in this run") == 1
        assert trace(session, "c") == [("c", False)], "another run may ask it again"
        assert session.to_json()["left_out"] is None
        session.conclude()
        assert trace(session, "b") == [(None, False)]
        session.conclude()
        assert session.to_json()["left_out"] == "no host", "answers of earlier runs do not count"
    assert caplog.text.count("answered nothing in this run") == 2


def test_a_model_that_is_slow_for_a_short_run_is_named_at_its_end(caplog):
    model, gate, _ = late("a")
    with Session(model) as session:
        session.end_after(0.05)
        go_without(session, model, "a")
        session.conclude()
        assert not session.given_up and "no answer came before the end" in caplog.text
        gate.set()
        assert wait_for(lambda: session.usage.answers == 1)


@pytest.mark.parametrize("texts", ["", "ab"])
def test_nothing_is_said_at_the_end_of_a_model_that_was_not_asked_or_answered(caplog, texts):
    model = Scripted(lambda text: LlmError("gone") if text == "b" else text)
    with Session(model) as session:
        trace(session, texts)
        session.conclude()
        assert session.to_json()["left_out"] is None and not caplog.records


def test_what_nobody_waits_for_is_not_sent(monkeypatch):
    monkeypatch.setattr(_session, "_GRACE_S", 0.0)
    model, gate, _ = late("a")
    config = SessionConfig(timeout_s=0.05, patience=9, concurrency=1)
    with Session(model, config) as session:
        go_without(session, model, "a")
        assert session.wait(session.submit(say("b"))) is None
        gate.set()
        assert wait_for(lambda: session.usage.answers == 1)
        assert session.submit(say("c")).result(10).text == "C"
    assert model.asked == ["a", "c"] and session.usage.failed == 2


@pytest.mark.parametrize("config", [{"patience": 2}, {"calls": 2, "patience": 9}])
def test_a_model_is_left_out_of_a_replay_where_it_was_left_out(tmp_path, caplog, config):
    path = tmp_path / "llm.jsonl"
    model = Scripted(lambda text: LlmError("busy") if text in "xy" else text.upper())
    with Session(model, SessionConfig(**config), path) as session:
        recorded = trace(session, "axycad")
    assert recorded == [("A", False), (None, False), (None, True), (None, True), ("A", True),
                        (None, True)]  # fmt: skip
    caplog.clear()
    with open_session(str(path)) as replay:
        assert trace(replay, "axycad") == recorded
        assert replay.reason == session.reason and replay.usage.calls == 0
    assert len([r for r in caplog.records if "is not asked any more" in r.getMessage()]) == 1


def test_a_run_without_any_answer_is_replayed(tmp_path):
    path = tmp_path / "llm.jsonl"
    with Session(Scripted(lambda _: LlmError("busy")), transcript=path) as session:
        recorded = trace(session, "abcd")
    with open_session(str(path)) as replay:
        assert trace(replay, "abcd") == recorded


def test_the_last_run_of_a_transcript_is_replayed(tmp_path):
    path = tmp_path / "llm.jsonl"
    for broken in ("a", "b"):
        model = Scripted(lambda text, broken=broken: LlmError("no") if text == broken else text)
        with Session(model, transcript=path) as session:
            recorded = trace(session, "abc")
    assert [text for text, _ in recorded] == ["a", "b", "c"], "b was answered to the first run"
    with open_session(str(path)) as replay:
        assert trace(replay, "abc") == recorded


def test_a_replay_says_once_that_it_is_asked_something_else(tmp_path, caplog):
    path = tmp_path / "llm.jsonl"
    with Session(Scripted(str.upper), transcript=path) as session:
        trace(session, "a")
    with open_session(str(path)) as replay:
        replay.record_in(tmp_path / "other.jsonl")
        assert trace(replay, "abcd") == [("A", False), *[(None, False)] * 3]
    told = [r for r in caplog.records if "differ from the recorded one" in r.getMessage()]
    assert len(told) == 1 and not (tmp_path / "other.jsonl").exists()


def test_what_a_file_says_is_shown_in_printable_lines_of_some_length(tmp_path, caplog):
    hostile = "\x1b]0;owned\x07\n" + "x" * 9999
    lines = [
        {"kind": "run", "model": hostile, "settings": {}, "disturbs": []},
        {"kind": "left out", "after": 1, "reason": hostile},
    ]
    path = tmp_path / "llm.jsonl"
    written = [json.dumps({"schema": "foretune.llm/2", "run": "1", **line}) for line in lines]
    path.write_text("\n".join(written), encoding="utf-8")
    with open_session(str(path)) as replay:
        assert trace(replay, "a") == [(None, True)]
        assert replay.model.name == hostile, "which keys of questions depend on"
        shown = [replay.reason, replay.to_json()["model"]]
    shown += [record.getMessage() for record in caplog.records]
    assert any("]0;owned xxx" in text and "is not asked any more" in text for text in shown)
    assert all(text.isprintable() and len(text) < 1000 for text in shown)


def test_a_replay_asks_when_the_recorded_run_asked(tmp_path):
    class Busy(Scripted):
        def disturbs(self, kind):
            return kind == "llvm"

    path = tmp_path / "llm.jsonl"
    with Session(Busy(str.upper), transcript=path) as session:
        assert session.disturbs("llvm") and not session.disturbs("cuda")
        trace(session, "a")
    with open_session(str(path)) as replay:
        assert replay.disturbs("llvm") and not replay.disturbs("cuda")


def written(schema, text):
    """A line of a transcript as its first version had it."""
    return json.dumps(
        {"schema": schema, "key": key_of(say("a"), "scripted", {}), "model": "scripted",
         "settings": {}, "messages": say("a"), "text": text, "prompt_tokens": 1,
         "completion_tokens": 2, "seconds": 0.5}
    )  # fmt: skip


def test_transcripts_of_the_first_version_are_read(tmp_path):
    path = tmp_path / "llm.jsonl"
    path.write_text(f"\n{written('foretune.llm/1', 'old')}\n", encoding="utf-8")
    with open_session(str(path)) as replay:
        assert trace(replay, "a") == [("old", False)] and not replay.disturbs("llvm")
    model = Scripted(str.upper)
    with Session(model, transcript=path) as session:
        assert trace(session, "ab") == [("old", False), ("B", False)]
    with open_session(str(path)) as replay:
        assert trace(replay, "ab") == [("old", False), ("B", False)]


def test_transcripts_of_a_newer_version_are_refused(tmp_path):
    path = tmp_path / "llm.jsonl"
    path.write_text(written("foretune.llm/3", "new"), encoding="utf-8")
    with pytest.raises(VersionMismatchError, match=r"foretune\.llm/2 or earlier"):
        open_session(str(path))


def test_other_settings_are_other_answers(tmp_path):
    class Warm(Scripted):
        settings = {"temperature": 1}  # noqa: RUF012

    path = tmp_path / "llm.jsonl"
    with Session(Scripted(str.upper), transcript=path) as session:
        results(session, "a")
    warm = Warm(str.lower)
    with Session(warm, transcript=path) as session:
        assert results(session, "a")[0].text == "a"


def test_a_file_that_is_no_transcript_is_refused(tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text("hello\n", encoding="utf-8")
    with pytest.raises(RecordError, match="must be a transcript"):
        Transcript(path)
    with pytest.raises(BadInputError, match="there is no transcript"):
        open_session(str(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"patience": 0}, {"retries": -1}, {"timeout_s": 0}, {"calls": -1}],
)
def test_impossible_settings_are_refused(options):
    with pytest.raises(BadInputError, match="must hold"):
        SessionConfig(**options)


class TestOpening:
    def test_a_model_and_its_server(self):
        with open_session("org/name@v2@http://localhost:1/v1") as session:
            config = session.model.config
        assert (config.model, config.base_url) == ("org/name@v2", "http://localhost:1/v1")

    def test_a_name_alone(self):
        with open_session("name", environment={"OPENAI_BASE_URL": "http://h:2/v1"}) as session:
            assert session.model.config.base_url == "http://h:2/v1"
        with open_session("name") as session:
            assert "openai" in session.model.config.base_url

    @pytest.mark.parametrize(
        "text, address, sent",
        [
            ("m", "", True),
            ("m", "https://API.openai.com:443/v1/", True),
            ("m@https://api.openai.com/v1", "http://other/v1", True),
            ("m@http://localhost:1/v1", "", False),
            ("m", "http://localhost:1/v1", False),
            ("m@http://api.openai.com/v1", "", False),
            ("m@https://api.openai.com:8443/v1", "", False),
            ("m@https://api.openai.com.evil.org/v1", "", False),
            ("m@https://evil.org/api.openai.com", "", False),
        ],
    )
    def test_the_key_of_openai_is_for_openai(self, text, address, sent):
        environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": address}
        with open_session(text, environment=environment) as session:
            assert session.model.config.key == (KEY if sent else "")

    @pytest.mark.parametrize("name", ["OPENAI_API_KEY", "MINE"])
    def test_a_variable_that_is_named_is_for_the_server_that_is_named(self, tmp_path, name):
        path = tmp_path / "llm.json"
        with Server(always(completion("hello"))) as server:
            data = {"model": "m", "base_url": server.url, "key_env": name}
            path.write_text(json.dumps(data), encoding="utf-8")
            environment = {"OPENAI_API_KEY": "of openai", name: KEY}
            with open_session(str(path), environment=environment) as session:
                results(session, "a")
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"

    def test_no_key_goes_to_a_server_without_a_name(self, tmp_path):
        path = tmp_path / "llm.json"
        with Server(always(refusal(401))) as server:
            path.write_text(json.dumps({"model": "m", "base_url": server.url}), encoding="utf-8")
            with open_session(str(path), environment={"OPENAI_API_KEY": KEY}) as session:
                assert results(session, "a") == [None]
        assert "Authorization" not in server.headers[0]
        assert "no key was sent" in session.reason and "key_env" in session.reason

    def test_settings_in_a_file(self, tmp_path):
        (tmp_path / "key").write_text(f"{KEY}\n", encoding="utf-8")
        path = tmp_path / "llm.json"
        data = {"model": "m", "base_url": "http://h/v1", "key_file": "key", "temperature": 0,
                "calls": 9, "timeout_s": 3, "extra": {"seed": 1}}  # fmt: skip
        path.write_text(json.dumps(data), encoding="utf-8")
        with open_session(str(path), environment={"OPENAI_API_KEY": "other"}) as session:
            assert session.model.config.key == KEY
            assert session.model.settings == {"temperature": 0, "max_tokens": 2048, "seed": 1}
            assert (session.config.calls, session.config.timeout_s) == (9, 3)

    @pytest.mark.parametrize("told, disturbs", [({}, True), ({"disturbs": False}, False)])
    def test_settings_say_whether_the_server_disturbs(self, tmp_path, told, disturbs):
        path = tmp_path / "llm.json"
        data = {"model": "m", "base_url": "http://localhost:1/v1", **told}
        path.write_text(json.dumps(data), encoding="utf-8")
        with open_session(str(path)) as session:
            assert session.disturbs("llvm") is disturbs

    @pytest.mark.parametrize(
        "data",
        [
            [],
            "x",
            {"key": KEY},
            {"model": "m", "calls": KEY},
            {"model": "m", "key_file": "gone"},
            {"model": "m", "key_file": KEY},
            {"model": "m", "key_file": "llm.json", "key_env": "HOME"},
            {"model": "m", "key_env": KEY},
            {"model": 7},
            {"model": "m", "base_url": ["http://h/v1"]},
            {"model": "m", "device": "cuda"},
            {"model": "m", "disturbs": KEY},
            {"model": "m", "disturbs": 1},
            {"model": "m", "temperature": float("nan")},
            {"model": "m", "usd_per_million_prompt": -1},
            {},
        ],
    )
    def test_bad_files_are_refused(self, tmp_path, data):
        path = tmp_path / "llm.json"
        path.write_text(json.dumps(data), encoding="utf-8")
        with pytest.raises(BadInputError) as caught:
            open_session(str(path), environment={"HOME": "/", "OPENAI_API_KEY": KEY})
        assert KEY not in f"{caught.value} {caught.value.__cause__}"

    @pytest.mark.parametrize("name", ["key_file", "key_env"])
    def test_a_key_that_is_nowhere_is_told_by_the_file_that_names_it(self, tmp_path, name):
        path = tmp_path / "llm.json"
        path.write_text(json.dumps({"model": "m", name: KEY}), encoding="utf-8")
        with pytest.raises(BadInputError, match=rf"{re.escape(str(path))}.* {name} "):
            open_session(str(path))

    def test_a_folder_without_a_model(self, tmp_path):
        with pytest.raises(BadInputError, match="must hold a causal language model"):
            open_session(str(tmp_path))


class TestLocal:
    def test_a_real_model_answers_the_same_again(self, tiny_model):
        warm = LocalModel(tiny_model, temperature=1.0, max_tokens=12)
        first, second = (warm.complete(say("tiles"), 30) for _ in range(2))
        assert first.text == second.text and first.completion_tokens <= 12
        assert first.prompt_tokens > 3
        assert first.text != warm.complete(say("other"), 30).text

    def test_an_answer_without_an_end_is_cut_off(self, tiny_model):
        model = LocalModel(tiny_model, max_tokens=3)
        cut = model.complete(say("tiles"), 30)
        assert cut.completion_tokens == 3 and cut.cut_off
        model._model.generation_config.eos_token_id = list(range(model._model.config.vocab_size))
        ended = model.complete(say("tiles"), 30)
        assert ended.completion_tokens == 1 and not ended.cut_off
        # It runs out of time, and not of tokens.
        model._model.generation_config.eos_token_id = None
        model.max_tokens = 100_000
        assert model.complete(say("tiles"), 0.2).cut_off

    def test_it_shares_no_randomness_with_what_draws_beside_it(self, tiny_model):
        torch = pytest.importorskip("torch")
        warm = LocalModel(tiny_model, temperature=1.0, max_tokens=8)
        alone = warm.complete(say("tiles"), 30).text
        torch.manual_seed(7)
        expected = [float(torch.rand(1)) for _ in range(8)]
        drawn = []
        # As another thread does, while the model thinks.
        warm._model.register_forward_hook(lambda *_: drawn.append(float(torch.rand(1))))
        torch.manual_seed(7)
        assert warm.complete(say("tiles"), 30).text == alone
        assert len(drawn) > 1 and drawn == expected[: len(drawn)]

    def test_it_runs_on_the_processor_unless_told_otherwise(self, tiny_model, tmp_path):
        assert LocalModel(tiny_model).disturbs("llvm") and LocalModel(tiny_model).disturbs("cuda")
        # A device without memory: there is one on every machine.
        there = LocalModel(tiny_model, device="meta")
        assert not there.disturbs("llvm") and there.disturbs("cuda")
        (tmp_path / "model").symlink_to(tiny_model)
        path = tmp_path / "llm.json"
        path.write_text(json.dumps({"model": "model", "device": "meta"}), encoding="utf-8")
        with open_session(str(path)) as session:
            assert not session.model.disturbs("llvm")
            assert session.config.concurrency == 1

    @pytest.mark.gpu
    def test_it_answers_on_a_gpu(self, tiny_model):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("PyTorch sees no CUDA device: needs an NVIDIA GPU and its driver")
        there = LocalModel(tiny_model, temperature=1.0, max_tokens=12, device="cuda")
        first, second = (there.complete(say("tiles"), 30) for _ in range(2))
        assert first.text == second.text and first.completion_tokens <= 12

    @pytest.mark.parametrize(
        "options, message",
        [
            ({"device": "abacus"}, "device 'abacus' cannot be used.*choose 'cpu'"),
            ({"max_tokens": 0}, "max_tokens >= 1"),
            ({"max_tokens": 2.5}, "max_tokens must be int"),
            ({"temperature": -1.0}, "temperature >= 0"),
        ],
    )
    def test_what_it_cannot_do_is_refused(self, tiny_model, options, message):
        with pytest.raises(BadInputError, match=message):
            LocalModel(tiny_model, **options)

    @pytest.mark.parametrize("name, value", [("base_url", "http://h/v1"), ("disturbs", False)])
    def test_settings_of_a_server_are_not_for_a_folder(self, tiny_model, tmp_path, name, value):
        path = tmp_path / "llm.json"
        data = {"model": str(tiny_model), name: value}
        path.write_text(json.dumps(data), encoding="utf-8")
        with pytest.raises(BadInputError, match=f"{name} is for models behind a server"):
            open_session(str(path))

    def test_closing_it_ends_what_it_writes(self, tiny_model, tmp_path):
        path = tmp_path / "llm.jsonl"
        model, steps = LocalModel(tiny_model, max_tokens=400), []
        model._model.generation_config.eos_token_id = None
        session = Session(model, SessionConfig(concurrency=1, timeout_s=600), path)

        def close(*_):
            steps.append(1)
            if len(steps) == 3:
                session.close()

        model._model.register_forward_hook(close)
        assert session.submit(say("tiles")).result(60) is None
        assert len(steps) < 10
        assert '"answer"' not in path.read_text(encoding="utf-8"), "half of one is none"
        with pytest.raises(LlmError, match="closed"):
            model.complete(say("tiles"), 30)

    def test_a_prompt_that_a_template_writes_begins_once(self, tiny_model):
        processors = pytest.importorskip("tokenizers.processors")
        model = LocalModel(tiny_model, max_tokens=1)
        tokenizer, template = model._tokenizer, model._tokenizer.chat_template

        def lengths():
            found = []
            for chosen in (template, None):
                tokenizer.chat_template = chosen
                found.append(model.complete(say("tiles"), 30).prompt_tokens)
            return found

        templated, plain = lengths()
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<end> $A", special_tokens=[("<end>", tokenizer.eos_token_id)]
        )
        assert lengths() == [templated, plain + 1]

    def test_a_prompt_that_is_too_long(self, tiny_model):
        with pytest.raises(LlmError, match="reads 4096 tokens"):
            LocalModel(tiny_model).complete(say("x y z " * 4000), 30)
