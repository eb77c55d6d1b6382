"""Programs, devices and decisions in words."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import typing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.describe import Nests, nests_of_program
from foretune.describe.text import (
    MOST_TOKENS,
    criteria_text,
    device_text,
    program_text,
    token_bound,
)
from foretune.describe.words import decision_words, machine_words
from foretune.hardware import Device, Hardware
from foretune.space import Candidate
from foretune.testing import rankers as suite
from tests.describe.nest_builder import Line, program
from tests.space.programs import space

GOLDEN = Path(__file__).parent / "golden"
CASES = ["matmul", "conv2d_nhwc", "softmax"]
DEVICE = Device(
    "small",
    "A small processor",
    "cpu",
    {
        "cores": 4,
        "simd_fp32_lanes": 8,
        "fp32_flop_per_cycle_per_core": 32,
        "l1d_kib_per_core": 32,
        "boost_mhz": 3600,
    },
)


def candidates(name: str) -> list[Candidate]:
    """One of each of the first sketches."""
    rng, here = np.random.default_rng(0), space(name)
    drawn = here.sample(rng, 100)
    return [next(c for c in drawn if c.sketch == sketch) for sketch in here.sketches[:3]]


def listing(name: str) -> str:
    texts = []
    for candidate in candidates(name):
        nests = nests_of_program(candidate.apply(), candidate.hardware.target)
        texts.append(program_text(nests, 0, decision_words(candidate)))
    return "\n".join(texts)


@pytest.mark.parametrize("name", CASES)
def test_programs_read_as_recorded(name):
    """After a deliberate change: ``python -m tests.describe.test_text`` writes the files anew."""
    assert listing(name) == (GOLDEN / f"{name}.txt").read_text()


def test_a_reduction_is_told_by_what_it_does():
    """Selections beside additions are padding, not an extreme."""
    loops = {"i": (4, "parallel"), "k": (8, "serial")}

    def told(operations, selects):
        line = Line("i k", "C[i]", ["A[i,k]"], operations, selects=selects, reduces=True)
        return program_text(program(loops, {"A": [4, 8], "C": [4]}, [line]), 0).splitlines()[-1]

    assert told(0, 1).strip() == "B[a] max= A[a,b] | 1 selects"
    assert told(1, 0).strip() == "B[a] += A[a,b] | 1 flops"
    assert told(1, 1).strip() == "B[a] += A[a,b] | 1 flops 1 selects"


@functools.cache
def nests() -> tuple[list[Candidate], Nests]:
    """Products of the suite's second sketch, which has two statements."""
    own = [p.candidate for p in suite.nest_group((128, 96, 64), 40).programs]
    rows, found = suite.nest_batches(own)[1]
    return [own[row] for row in rows], found


def test_a_loop_a_line_and_a_statement_a_line():
    _, batch = nests()
    text = program_text(batch, 0)
    live = (batch.extents[0] > 1).sum()
    assert len(text.splitlines()) == 1 + live + 2
    assert text.splitlines()[0].startswith("arrays A global own 128x96, B global 128x64, ")
    assert "+=" in text and "2 flops" in text


@pytest.mark.parametrize("row", range(4))
def test_names_and_loops_of_one_iteration_have_no_part(row):
    _, batch = nests()
    buffers = tuple(replace(b, name=f"T_{n}") for n, b in enumerate(batch.buffers))
    statements = []
    for statement in batch.statements:
        accesses = tuple(
            replace(a, terms=tuple(replace(t, place=t.place + 1) for t in a.terms))
            for a in statement.accesses
        )
        path = (batch.extents.shape[1], *statement.path)
        statements.append(replace(statement, path=path, accesses=accesses))
    n = len(batch)
    other = replace(
        batch,
        buffers=buffers,
        statements=tuple(statements),
        kinds=np.concatenate([batch.kinds, np.ones((n, 1), np.int8)], axis=1),
        extents=np.concatenate([batch.extents, np.ones((n, 1))], axis=1),
        axes=(*batch.axes, ""),
        reduction=(*batch.reduction, False),
    )
    assert program_text(other, row) == program_text(batch, row)


def test_programs_that_differ_have_texts_that_differ():
    own, batch = nests()
    texts = {program_text(batch, row) for row in range(len(batch))}
    described = {
        (tuple(batch.extents[r]), tuple(batch.kinds[r]), batch.statements[0].unroll[r])
        for r in range(len(own))
    }
    assert len(texts) >= 0.9 * len(described)


def test_indices_are_written_as_digits():
    """C[i, 4 * j + v] where j is a digit that another loop has, too."""
    _, batch = nests()
    (statement, _) = batch.statements
    access = statement.accesses[0]
    one = np.ones(len(batch))
    terms = (
        replace(access.terms[0], dimension=0, place=0, coefficient=one, values=2 * one, every=one),
        replace(access.terms[0], dimension=0, place=1, coefficient=8 * one, values=2 * one),
        replace(access.terms[0], dimension=1, place=2, values=2 * one, every=4 * one),
    )
    extents = batch.extents.copy()
    extents[:, :10] = np.array([2, 2, 16, 1, 1, 1, 1, 1, 1, 1])
    changed = replace(
        batch,
        extents=extents,
        statements=(
            replace(statement, accesses=(replace(access, store=True, terms=terms),), reduces=False),
        ),
    )
    coefficient = terms[2].coefficient[0]
    worth = "" if coefficient == 1 else f"*{coefficient:.0f}"
    assert f"A[b*8.a,c/4%2{worth}] = " in program_text(changed, 0)


def test_decisions_stand_at_the_end_under_numbers_instead_of_names():
    own, batch = nests()
    words = decision_words(own[0])
    assert [what for what, _ in words] == [
        "tile b0.a0", "tile b0.a1", "tile b0.a2", "parallel", "vectorize", "unroll_explicit",
    ]  # fmt: skip
    tile = "x".join(map(str, own[0].decisions[0]))
    assert program_text(batch, 0, words).splitlines()[-6] == f"tile b0.a0 {tile}"


def test_a_long_program_is_cut_down_to_what_weighs_most():
    _, batch = nests()
    heavy, light = batch.statements
    long = replace(batch, statements=(*(light,) * 60, heavy, *(light,) * 60))
    text = program_text(long, 0, [("parameter", str(n)) for n in range(300)])
    assert token_bound(text) <= MOST_TOKENS
    assert "statements of less work" in text and "+=" in text
    assert program_text(long, 0, most=60).count("+=") == 1


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 3), st.integers(100, MOST_TOKENS), st.integers(1, 40))
def test_a_text_has_no_more_tokens_than_asked_for(row, most, copies):
    own, batch = nests()
    long = replace(batch, statements=batch.statements * copies)
    text = program_text(long, row, decision_words(own[row]), most)
    assert token_bound(text) <= max(most, 250)


def test_a_tokenizer_that_knows_code_needs_no_more_tokens_than_the_bound():
    """Byte-level pairs with single digits, as Qwen's, trained on code that holds no such texts."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = split.Sequence([split.Digits(True), split.ByteLevel(False)])
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=4000, show_progress=False)
    code = [inspect.getsource(module) for module in (argparse, dataclasses, inspect, typing)]
    tokenizer.train_from_iterator(code, trainer)
    own, batch = nests()
    texts = [program_text(batch, row, decision_words(own[row])) for row in range(5)]
    texts += [(GOLDEN / f"{name}.txt").read_text() for name in CASES]
    texts += [device_text(DEVICE), criteria_text("cpu")]
    for text in texts:
        assert len(tokenizer.encode(text).ids) <= token_bound(text)


def test_a_device_is_told_by_what_its_data_sheet_says():
    text = device_text(DEVICE)
    assert text.startswith("CPU A small processor, 4 cores, ")
    assert "L1 data cache 32 KiB per core" in text and "boost clock 3600 MHz" in text
    assert "L2" not in text
    assert device_text(DEVICE, name=False) == text.replace(" A small processor", "")


def test_criteria_are_those_of_the_kind():
    assert "occupancy_score" in criteria_text("gpu")
    assert "occupancy_score" not in criteria_text("cpu")


def test_a_machine_in_words():
    machine = Hardware(
        "cpu", '{"kind": "llvm"}', threads=8, simd_bits=256, l1_bytes=32768, peak_gflops=900.0
    )
    told = "CPU, 8 threads, 256 bit vectors, L1 cache 32 KiB, peak about 1024 GFLOP/s"
    assert machine_words(machine) == told
    gpu = Hardware("gpu", '{"kind": "cuda"}', threads=1, gpu={"warp_size": 32, "cores": 80})
    assert machine_words(gpu) == "GPU (cuda), cores 80, warp size 32"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for case in CASES:
        (GOLDEN / f"{case}.txt").write_text(listing(case))
