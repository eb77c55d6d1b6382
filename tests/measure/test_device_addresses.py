"""Addresses of devices, and what a tracker may answer."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from foretune.errors import BadInputError
from foretune.measure import DeviceAddress, parse_devices, place_of
from foretune.measure._session import _checked, _possible
from foretune.measure.transport.tracker import Tracker, TrackerError


def test_addresses_are_read_in_order_each_once() -> None:
    texts = ["rpc://farm:9190/pi4,rpc://farm:9190/pi5", "rpc://[::1]:9090", "rpc://farm:9190/pi4"]
    addresses = parse_devices(texts)
    assert addresses == (
        DeviceAddress("farm", 9190, "pi4"),
        DeviceAddress("farm", 9190, "pi5"),
        DeviceAddress("::1", 9090),
    )
    assert [str(address) for address in addresses] == [
        "rpc://farm:9190/pi4",
        "rpc://farm:9190/pi5",
        "rpc://[::1]:9090",
    ]
    assert parse_devices([]) == ()


def test_the_place_is_the_keys_whatever_the_tracker_and_the_order() -> None:
    one = place_of(parse_devices(["rpc://a:9190/pi5", "rpc://a:9190/pi4"]))
    assert one == place_of(parse_devices(["rpc://b:1/pi4,rpc://b:1/pi5"])) == "pi4,pi5"
    assert place_of(parse_devices(["rpc://pi:9090"])) == "pi:9090"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pi:9090", "a device reads rpc://"),
        ("http://pi:9090", "a device reads rpc://"),
        ("rpc://pi", "the port is missing"),
        ("rpc://pi:0/key", "the port is missing"),
        ("rpc://pi:99999", "out of range"),
        ("rpc://:9190/key", "a device reads rpc://"),
        ("rpc://pi:9190/a b", "the key of a device has letters"),
        ("rpc://pi:9190/a/b", "the key of a device has letters"),
        ("rpc://pi:9190/key?x=1", "a device reads rpc://"),
        ("", "empty --device"),
        (",".join(f"rpc://pi{number}:1" for number in range(65)), "<= 64"),
    ],
)
def test_other_texts_are_refused_with_what_is_right(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        parse_devices([text])


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInputError, match="no user and no password") as caught:
        parse_devices(["rpc://me:secret@farm:9190/pi5"])
    assert "secret" not in str(caught.value) and "me" not in str(caught.value).split()


_MAGIC = struct.pack("<i", 0x2F271)


def _frame(answer: object) -> bytes:
    data = json.dumps(answer).encode()
    return struct.pack("<i", len(data)) + data


@contextmanager
def answering(*answers: bytes) -> Iterator[Callable[[], Tracker]]:
    """A peer that says one thing after the other, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def talk() -> None:
            connection, _ = server.accept()
            with connection:
                for answer in answers:
                    if not connection.recv(4096):
                        return
                    connection.sendall(answer)
                connection.settimeout(5)
                with contextlib.suppress(OSError):
                    while connection.recv(4096):
                        pass

        thread = threading.Thread(target=talk)
        thread.start()
        trackers: list[Tracker] = []

        def connect() -> Tracker:
            trackers.append(Tracker("127.0.0.1", port, timeout_s=0.5))
            return trackers[-1]

        try:
            yield connect
        finally:
            for tracker in trackers:
                tracker.close()
            thread.join(10)


def test_a_tracker_counts_devices_and_gives_one() -> None:
    info = [{"key": "server:pi5", "addr": ["h", 1]}, {"key": "server:pi5", "addr": ["h", 2]}]
    summary = [0, {"server_info": info, "queue_info": {"pi5": {"free": 1, "pending": 0}}}]
    with answering(_MAGIC, _frame(summary), _frame([0, ["h", 9090, "pi5:0.1"]])) as connect:
        tracker = connect()
        assert tracker.devices() == {"pi5": (2, 1)}
        assert tracker.request("pi5", 5.0) == ("h", 9090, "pi5:0.1")


@pytest.mark.parametrize(
    "answer",
    [
        _frame([0, ["h", 0, "k"]]),
        _frame([0, ["h", 1, "k" * 1000]]),
        _frame({"a": 1}),
        _frame([1, ["h", 1, "k"]]),
        struct.pack("<i", 3) + b"no!",
        struct.pack("<i", -1),
        struct.pack("<i", 1 << 30),
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(answer: bytes) -> None:
    with answering(_MAGIC, answer) as connect:
        tracker = connect()
        with pytest.raises(TrackerError, match="makes no sense"):
            tracker.request("pi5", 5.0)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400", b"", b"ab"])
def test_something_else_than_a_tracker_is_told_as_that(answer: bytes) -> None:
    with answering(answer) as connect, pytest.raises(TrackerError, match="is no tracker"):
        connect()


def test_a_tracker_without_a_free_device_is_not_waited_for_without_end() -> None:
    with answering(_MAGIC, b"") as connect:
        tracker = connect()
        with pytest.raises(TrackerError, match="does not answer in time"):
            tracker.request("pi5", 0.1)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0, 1e30])
def test_times_that_cannot_be_are_errors(seconds: float) -> None:
    with pytest.raises(ValueError, match="tells a time of"):
        _possible(seconds)
    assert _possible(1e-3) == 1e-3


def test_of_what_a_server_says_only_what_can_be_is_kept() -> None:
    told = {"machine": "aarch64", "cpu": "x" * 1000, "tvm": "a\nb", "cores": -1, "threads": 4}
    assert _checked({**told, "more": {}}) == {"machine": "aarch64", "threads": 4}
