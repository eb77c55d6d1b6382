"""Candidates that do in a child process what candidates must not do, and the builder for them."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune.hardware import Hardware
from foretune.workload import Workload

BUILDER = "tests.measure.misbehaviour:build"
# Of a program that turns wrong: it is checked once and timed once before that.
_RIGHT_CALLS = 2
_CALLS = itertools.count(1)
_FIRST_BUILDS = itertools.count()


@dataclass(frozen=True)
class TrickSketch:
    """Stands for a sketch: what children know by name."""

    workload: Workload
    hardware: Hardware
    key: str = "tricks"
    is_untuned: bool = False


@dataclass(frozen=True)
class Trick:
    """Stands for a candidate; ``number`` tells those of one ``mode`` of misbehaviour apart."""

    sketch: TrickSketch
    mode: str
    number: int = 0

    @property
    def workload(self) -> Workload:
        return self.sketch.workload

    @property
    def hardware(self) -> Hardware:
        return self.sketch.hardware

    @property
    def key(self) -> str:
        return f"{self.mode}{self.number}"


def build(trick: Trick) -> Any:
    """A callable that does what ``trick.mode`` says; the good program for ``"good"``."""
    at_build = _AT_BUILD.get(trick.mode)
    if at_build is not None:
        at_build()
    good = _good(trick.workload, trick.hardware)
    if trick.mode == "good":
        return good
    if trick.mode == "wrong_at_first" and next(_FIRST_BUILDS) > 0:
        return good
    return functools.partial(_WHEN_RUN.get(trick.mode, _just_run), good["main"])


@functools.cache
def _good(workload: Workload, hardware: Hardware) -> Any:
    from foretune import _tvm

    return _tvm.tvm.compile(workload.module, hardware.tvm_target()).jit()


def _array(tensor: Any) -> Any:
    return np.from_dlpack(tensor)


def _just_run(good: Callable[..., None], *tensors: Any) -> None:
    good(*tensors)


def _segfault() -> None:
    ctypes.string_at(0)


def _die_of_real_time_signal() -> None:
    os.kill(os.getpid(), signal.SIGRTMIN + 3)
    time.sleep(60)


def _say_sigkill_and_exit() -> None:
    os.write(2, b"the last words name SIGKILL\n")
    os._exit(3)


def _loop() -> None:
    while True:
        pass


def _hold_interpreter() -> None:
    # PyDLL, unlike CDLL, keeps the interpreter's lock during the call.
    ctypes.PyDLL(None).sleep(1000)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _allocate() -> None:
    kept = []
    while True:
        kept.append(np.ones(1 << 20))


def _allocate_at_once() -> None:
    np.ones(1 << 40)


def _exit() -> None:
    os._exit(3)


def _sleep_a_little() -> None:
    time.sleep(1.5)


def _garbage() -> None:
    for fd in range(3, 64):
        try:
            if "pipe" in os.readlink(f"/proc/self/fd/{fd}"):
                os.write(fd, b"neither header nor JSON")
        except OSError:
            continue
    time.sleep(1000)


def _raise() -> None:
    raise RuntimeError("cannot\nwill not")


def _chatter() -> None:
    for _ in range(2000):
        os.write(1, b"x" * 1024)
        os.write(2, b"y" * 1024)
    print("done", file=sys.stderr)


def _complain() -> None:
    os.write(2, b"bad_alloc, it seemed\n")


def _fork() -> None:
    if os.fork() == 0:
        time.sleep(1000)
        os._exit(0)


def _then_run(before: Callable[[], None], good: Callable[..., None], *tensors: Any) -> None:
    before()
    good(*tensors)


def _spoil(index: int, value: float, good: Callable[..., None], *tensors: Any) -> None:
    good(*tensors)
    _array(tensors[index]).flat[7] = value


def _off_by_one(good: Callable[..., None], *tensors: Any) -> None:
    good(*tensors)
    _array(tensors[-1]).flat[7] += 1


def _turn_wrong(good: Callable[..., None], *tensors: Any) -> None:
    good(*tensors)
    time.sleep(0.01)
    if next(_CALLS) > _RIGHT_CALLS:
        _array(tensors[-1]).flat[7] += 1


def _write_nothing(good: Callable[..., None], *tensors: Any) -> None:
    pass


def _sluggish(good: Callable[..., None], *tensors: Any) -> None:
    good(*tensors)
    time.sleep(0.05)


_AT_BUILD: dict[str, Callable[[], None]] = {
    "build_raises": _raise,
    "build_loops": _loop,
    "build_sleeps": _sleep_a_little,
    "build_segfaults": _segfault,
    "build_allocates": _allocate,
    "build_chatters": _chatter,
}

_WHEN_RUN: dict[str, Callable[..., None]] = {
    "segfaults": functools.partial(_then_run, _segfault),
    "loops": functools.partial(_then_run, _loop),
    "holds_interpreter": functools.partial(_then_run, _hold_interpreter),
    "is_stopped": functools.partial(_then_run, _stop),
    "allocates": functools.partial(_then_run, _allocate),
    "allocates_at_once": functools.partial(_then_run, _allocate_at_once),
    "exits": functools.partial(_then_run, _exit),
    "dies_of_real_time_signal": functools.partial(_then_run, _die_of_real_time_signal),
    "names_sigkill": functools.partial(_then_run, _say_sigkill_and_exit),
    "writes_garbage": functools.partial(_then_run, _garbage),
    "raises": functools.partial(_then_run, _raise),
    "chatters": functools.partial(_then_run, _chatter),
    "complains": functools.partial(_then_run, _complain),
    "forks": functools.partial(_then_run, _fork),
    "returns_nan": functools.partial(_spoil, -1, float("nan")),
    "is_off_by_one": _off_by_one,
    "wrong_at_first": _off_by_one,
    "turns_wrong": _turn_wrong,
    "overwrites_input": functools.partial(_spoil, 0, 100.0),
    "writes_nothing": _write_nothing,
    "sluggish": _sluggish,
}
