"""Published logs of Ansor's: what ran on a GPU fits it, and extents are those that TVM recorded."""

from __future__ import annotations

import itertools
import json
import tarfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from foretune.dataset.readers.ansor import describe
from foretune.describe import THREAD, VTHREAD, Nests
from foretune_research.logs import _ansor

from .ansor_programs import program
from .running import executed

LOGS, PROGRAMS = 6, 64
"""Logs of each operator, and programs of each."""


@cache
def logs(archive: Path) -> dict[str, list[list]]:
    """Steps of programs that ran, by workload: the first of some logs of every operator."""
    found: dict[str, list[list]] = {}
    taken: Counter[str] = Counter()
    with tarfile.open(archive) as opened:
        for member in opened:
            operator = Path(member.name).parent.name
            if not member.name.endswith(".log") or taken[operator] == LOGS:
                continue
            taken[operator] += 1
            file = opened.extractfile(member)
            assert file is not None
            for line in itertools.islice(file, PROGRAMS):
                record = json.loads(line)
                (key, *_), (_, steps, *_) = record["i"]
                if record["r"][1] == 0:
                    found.setdefault(describe(key)[0], []).append(steps)
    return found


def work_of(key: str) -> float:
    """Additions and multiplications of an operator, by its sizes."""
    name, *sizes = json.loads(key)
    if name == "matmul_layer":
        return 2.0 * sizes[0] * sizes[1] * sizes[2]
    if name == "reduction_layer":
        return float(np.prod(sizes[0]))
    if name == "relu_layer":
        return 0.0
    kind, *sizes = sizes if name == "pool_layer" else (None, *sizes)
    batch, channels, height, width, *rest = sizes
    outputs = rest.pop(0) if name == "conv2d_layer" else channels
    rows, columns, stride, padding = rest
    total = rows - 1 if padding == "SAME" else 2 * padding
    out = [(size + total - rows) // stride + 1 for size in (height, width)]
    per = rows * columns * (2 * channels if name == "conv2d_layer" else 2)
    return float(batch * outputs * out[0] * out[1] * (rows * columns if kind else per))


def of_one_thread(nests: Nests) -> list[np.ndarray]:
    """Elements of each tile in shared memory that one thread reads between two copies."""
    out = []
    (compute,) = [s for s in nests.statements if s.reduces]
    for access in compute.accesses[:-1]:
        buffer = nests.buffers[access.buffer]
        if buffer.scope == "shared":
            widths = np.ones_like(buffer.shape)
            for term in access.terms:
                if nests.kinds[0, compute.path[term.place]] not in (THREAD, VTHREAD):
                    widths[:, term.dimension] += term.coefficient * (term.values - 1)
            out.append(widths.prod(axis=1))
    return out


def recorded(steps: list) -> list[int]:
    """Extents of the loops of the copies into shared memory as TVM recorded them."""
    stages = {step[1]: step[3] for step in steps if step[0] == "SP" and len(step[4]) == 1}
    return [stages[stage] for stage in sorted(stages)]


@pytest.mark.parametrize(("archive", "shared_kib"), [("k80", 48), ("mi50", 64)])
def test_programs_that_ran(shared_data: Path, archive: str, shared_kib: int) -> None:
    tiled: Counter[str] = Counter()
    for key, steps in logs(shared_data / "ansor" / f"{archive}.tar.gz").items():
        reasons: Counter[str] = Counter()
        batches = _ansor.build([program(each) for each in steps], key, reasons)
        assert sum(len(rows) for rows, _ in batches) == len(steps), reasons
        for rows, nests in batches:
            work = sum(executed(nests, s) * s.operations for s in nests.statements)
            assert np.asarray(work) == pytest.approx(work_of(key)), key
            threads = [
                np.where(nests.kinds == THREAD, nests.extents, 1)[:, list(s.path)].prod(axis=1)
                for s in nests.statements
            ]
            assert np.max(threads) <= 1024
            tiles = [b.shape.prod(axis=1) * b.bytes for b in nests.buffers if b.scope == "shared"]
            if tiles:
                assert np.sum(tiles, axis=0).max() <= shared_kib * 1024
                # TVM recorded how much a thread needs of a tile before it bound loops to threads;
                # where lengths were mutated later, what was recorded stayed as it was.
                right = np.array([recorded(steps[row]) for row in rows.tolist()])
                alike = (np.stack(of_one_thread(nests), axis=1) == right).all(axis=1)
                tiled["alike"] += int(alike.sum())
                tiled["all"] += len(rows)
                assert len(rows) < 32 or alike.mean() > 0.1, key
    assert tiled["alike"] / tiled["all"] > 0.25


def test_logs_of_a_cpu(shared_data: Path) -> None:
    programs: dict[str, list[list]] = {}
    with tarfile.open(shared_data / "ansor" / "x86-and-microkernels.tar.gz") as archive:
        for member in archive:
            if Path(member.name).name.startswith(("x86_", "cpu_")):
                file = archive.extractfile(member)
                assert file is not None
                for line in itertools.islice(file, PROGRAMS):
                    key, steps = (record := json.loads(line))["i"][0][0], record["i"][1][1]
                    if record["r"][1] == 0:
                        programs.setdefault(describe(key)[0], []).append(steps)
    named = {key: steps for key, steps in programs.items() if _ansor.matches([], key)}
    assert {json.loads(key)[0] for key in named} >= {
        "conv2d_ansor", "conv3d_ansor", "ansor_mm", "ansor_depthwise", "ansor_pool2d", "ansor_relu",
    }  # fmt: skip
    for key, steps in named.items():
        reasons: Counter[str] = Counter()
        batches = _ansor.build([program(each) for each in steps], key, reasons)
        assert sum(len(rows) for rows, _ in batches) == len(steps), reasons
        for _, nests in batches:
            assert not nests.gpu
            work = np.asarray(sum(executed(nests, s) * s.operations for s in nests.statements))
            assert (work == work[0]).all()
            if key.startswith('["conv2d_ansor"'):
                assert work == pytest.approx(2 * 64 * 224 * 224 * 27)
            if key.startswith('["ansor_mm"'):
                assert work == pytest.approx(2 * 1000 * 800 * 700)
