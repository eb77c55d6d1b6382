"""Frames and candidates as they cross the pipe."""

from __future__ import annotations

import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune._files import write_all
from foretune.hardware import Hardware
from foretune.measure._protocol import (
    FrameReader,
    GarbageError,
    dump_candidate,
    frame,
    load_candidate,
    read_frame,
    sketch_name,
)
from foretune.space import Space
from tests.measure.misbehaviour import Trick, TrickSketch
from tests.measure.programs import conv2d, matmul


@given(st.lists(st.binary(max_size=200), max_size=6), st.integers(1, 50))
def test_messages_survive_however_the_stream_is_cut(messages: list[bytes], step: int) -> None:
    stream = b"".join(map(frame, messages))
    reader = FrameReader()
    found = []
    for at in range(0, len(stream), step):
        found += reader.feed(stream[at : at + step])
    assert found == messages


@given(st.binary(min_size=8, max_size=64).filter(lambda data: not data.startswith(b"FtM1")))
def test_garbage_is_recognised(data: bytes) -> None:
    with pytest.raises(GarbageError):
        FrameReader().feed(data)


def test_an_absurd_length_is_garbage() -> None:
    with pytest.raises(GarbageError):
        FrameReader().feed(b"FtM1" + b"\xff" * 4)


def test_blocking_ends_of_a_pipe() -> None:
    read_fd, write_fd = os.pipe()
    write_all(write_fd, frame(b"one") + frame(b""))
    assert read_frame(read_fd) == b"one"
    assert read_frame(read_fd) == b""
    os.close(write_fd)
    assert read_frame(read_fd) is None
    os.close(read_fd)


def test_a_candidate_crosses_without_its_sketch(hardware: Hardware) -> None:
    space = Space.generate(matmul(48), hardware)
    for candidate in (space.untuned, space.sketches[0].candidate(_first(space))):
        data = dump_candidate(candidate)
        assert len(data) < 1000
        again = load_candidate(data, {sketch_name(candidate): candidate.sketch})
        assert again == candidate
        assert again.sketch is candidate.sketch
        whole = pickle.loads(pickle.dumps(candidate.sketch))
        assert load_candidate(data, {sketch_name(candidate): whole}).key == candidate.key


def _first(space: Space) -> tuple[object, ...]:
    import numpy as np

    rng = np.random.default_rng(0)
    return next(
        candidate.decisions
        for candidate in space.sample(rng, 50)
        if candidate.sketch == space.sketches[0]
    )


def test_sketches_of_two_workloads_have_two_names(hardware: Hardware) -> None:
    names = {sketch_name(Trick(TrickSketch(w, hardware), "good")) for w in (matmul(32), conv2d())}
    assert len(names) == 2
