"""Feature formulas against TVM's extractor, and how fast they are.

For each workload, random legal candidates of its CPU and CUDA spaces (the latter need no GPU):
TVM's per-store features of the post-processed program beside the formulas in exact mode. *Certain*
candidates are those for which the formulas claim to be exact; *unsure* ones have a split that does
not divide the loops fused before, or indices with divisions; *unknown* ones belong to sketches with
an instruction that is not interpreted. Both others are read from their programs where features have
to be exact. A candidate agrees when no column of any store is off by more than a thousandth. How
close formulas are where they are unsure, which is what gradient search climbs there, is the share
that agrees all the same, the columns that are off, and the mean difference of a column beside that
of two random candidates.

Where too few of a space's uniform draws are legal, as on GPUs, the rest are mutants of legal ones.

Then the rate of the formulas in both modes on the structure with most candidates, gradients against
finite differences, and how the smooth columns tend to the exact ones.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch

from benchmarks._at_once import at_once
from benchmarks.results import conditions, publish, say, table
from foretune.errors import IllegalCandidateError
from foretune.features import columns, extract_per_store
from foretune.features.formulas import Formulas, formulas
from foretune.hardware import Hardware, preset, probe
from foretune.space import Candidate, Sketch, Space
from foretune.space.symbolic import Structure, UnsupportedTraceError, structure_of
from foretune.workload import Workload, load_input, training

WORKLOADS = (
    "matmul_512", "dense", "attention_qk", "ffn", "conv2d_relu", "conv2d_pad_relu",
    "conv2d_stride_relu", "conv2d_add_relu", "depthwise", "depthwise_relu", "conv3d_bn_relu",
    "softmax", "layernorm_variance", "maxpool2d", "avgpool2d",
    "train_conv2d_transpose_1x160x7x7_4x4s2p1_80",
)  # fmt: skip
"""Of the catalog, and of what the committed data were collected from."""
GPU = "a100"
TOLERANCE = 1e-3
TEMPERATURES = (1.0, 0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-6)
_RATED = ("matmul_512", "conv2d_pad_relu", "softmax")
_BATCH = 8192
GOAL_PER_S = 100_000
"""Points a second of all cores."""
_DRAWS, _MUTANTS = 4_000, 40_000
"""Candidates tried at most. Of a GPU's space one uniform draw in two thousand may be legal, and
about one mutant of a legal candidate in ten."""
_STEP = 1e-6
_OTHERS = 8
"""Candidates of a structure that an unsure one is compared with."""
_TITLE = "Feature formulas"


def legal(space: Space, n: int) -> tuple[list[Candidate], int]:
    """Up to ``n`` random candidates that the post-processors accept, and how many are mutants."""
    rng = np.random.default_rng(0)
    found: dict[str, Candidate] = {}
    drawn = (c for _ in range(0, _DRAWS, n) for c in space.sample(rng, n))
    _add_legal(found, drawn, n)
    uniform = len(found)
    if found:
        # From any legal one, so that they wander away from those drawn.
        near = (
            space.mutate(list(found.values())[int(rng.integers(len(found)))], rng)
            for _ in range(_MUTANTS)
        )
        _add_legal(found, near, n)
    return list(found.values()), len(found) - uniform


def _add_legal(found: dict[str, Candidate], tried: Iterable[Candidate], n: int) -> None:
    """Adds what is legal and new until there are ``n``; nothing is tried twice."""
    known = set(found)
    for candidate in tried:
        if len(found) == n:
            return
        if candidate.key in known:
            continue
        known.add(candidate.key)
        try:
            candidate.apply()
        except IllegalCandidateError:
            continue
        found[candidate.key] = candidate


def workload_of(name: str) -> Workload:
    """A workload of the catalog, or one that models learn from."""
    if name in training.training_names():
        return next(w.workload for w in training.training_workloads() if w.name == name)
    workload = load_input(name)
    assert isinstance(workload, Workload)
    return workload


def grouped(candidates: Sequence[Candidate]) -> dict[tuple[Sketch, Structure], list[int]]:
    """Places of candidates by sketch and structure."""
    groups: dict[tuple[Sketch, Structure], list[int]] = {}
    for at, c in enumerate(candidates):
        groups.setdefault((c.sketch, structure_of(c.sketch, c.decisions)), []).append(at)
    return groups


def compare(name: str, hardware: Hardware, n: int) -> dict[str, Any]:
    """Formulas beside TVM's extractor on one workload."""
    candidates, mutants = legal(Space.generate(workload_of(name), hardware), n)
    expected = extract_per_store(candidates, threads=1)
    counts: Counter[str] = Counter(legal=len(candidates), mutants=mutants)
    off_unsure: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    errors = np.zeros(len(columns()))
    close: list[float] = []
    apart: list[float] = []
    began = time.perf_counter()
    for key, members in grouped(candidates).items():
        try:
            made = formulas(*key)
        except UnsupportedTraceError as error:
            counts["unknown"] += len(members)
            unknown[error.what] += len(members)
            continue
        points = made.points([candidates[at].decisions for at in members])
        found = zip(members, made.certain(points).tolist(), made(points).numpy(), strict=True)
        for at, certain, got in found:
            rows = expected[at]
            counts["certain" if certain else "unsure"] += 1
            if rows is None:
                continue
            if rows.shape != got.shape:
                counts["other_stores"] += 1
                continue
            off = (np.abs(got - rows) / np.maximum(np.abs(rows), 1e-3)).max(0)
            agrees = int(off.max() <= TOLERANCE)
            if certain:
                errors = np.maximum(errors, off)
                counts["agree"] += agrees
                continue
            counts["agree_unsure"] += agrees
            off_unsure.update(c.name for c, e in zip(columns(), off, strict=True) if e > TOLERANCE)
            close.append(float(np.abs(got - rows).mean()))
            others = [expected[i] for i in members if i != at]
            same = [o for o in others if o is not None and o.shape == rows.shape]
            apart += [float(np.abs(o - rows).mean()) for o in same[:_OTHERS]]
    return {
        "workload": name,
        "hardware": hardware.name,
        **counts,
        "unknown_instructions": dict(unknown),
        "off_where_unsure": dict(off_unsure.most_common()),
        "unsure_difference": float(np.mean(close)) if close else None,
        "random_difference": float(np.mean(apart)) if apart else None,
        "largest_relative_error": {
            c.name: float(e) for c, e in zip(columns(), errors, strict=True)
        },
        "seconds": time.perf_counter() - began,
    }


def typical(name: str, hardware: Hardware) -> tuple[Formulas, torch.Tensor]:
    """Formulas of the structure that most candidates have, and their points."""
    drawn = Space.generate(workload_of(name), hardware).sample(np.random.default_rng(1), 200)
    key, members = max(grouped(drawn).items(), key=lambda item: len(item[1]))
    made = formulas(*key)
    return made, made.points([drawn[at].decisions for at in members])


def rate(made: Formulas, points: torch.Tensor, temperature: float) -> float:
    """Points per second of one core, the best of five batches."""
    # Seconds of the processor: other work on the core does not count.
    return _BATCH / min(_seconds(made, points, temperature, time.process_time))


def _seconds(
    made: Formulas, points: torch.Tensor, temperature: float, clock: Callable[[], float]
) -> list[float]:
    """Of five batches."""
    batch = points.repeat(-(-_BATCH // len(points)), 1)[:_BATCH]
    found = []
    with torch.inference_mode():
        for _ in range(5):
            began = clock()
            made(batch, temperature)
            found.append(clock() - began)
    return found


def rate_of_all_cores(name: str, hardware: Hardware) -> float:
    """Exact points per second with a process on each core at the same time, by the clock."""
    cores = sorted(os.sched_getaffinity(0))
    return sum(at_once(len(cores), _rate_of_core, cores, name, hardware))


def _rate_of_core(
    place: int, together: Any, cores: Sequence[int], name: str, hardware: Hardware
) -> float:
    os.sched_setaffinity(0, {cores[place]})
    torch.set_num_threads(1)
    made, points = typical(name, hardware)
    _seconds(made, points, 0.0, time.perf_counter)
    together.wait()
    return _BATCH / float(np.median(_seconds(made, points, 0.0, time.perf_counter)))


def gradient_error(made: Formulas, points: torch.Tensor) -> float:
    """Largest difference to central differences, relative to the largest gradient."""
    generator = torch.Generator().manual_seed(0)
    shift = torch.rand(8, points.shape[1], generator=generator, dtype=torch.float64)
    logs = (points[:8].clamp(min=1).log() + 0.05 + 0.2 * shift[: len(points)]).requires_grad_()
    weights = torch.randn(made.stores, len(columns()), generator=generator, dtype=torch.float64)

    def score(x: torch.Tensor) -> torch.Tensor:
        return (made(x.exp(), temperature=0.5) * weights).sum((1, 2))

    (gradient,) = torch.autograd.grad(score(logs).sum(), logs)
    slopes = torch.zeros_like(gradient)
    with torch.no_grad():
        for at in range(logs.shape[1]):
            move = torch.zeros_like(logs)
            move[:, at] = _STEP
            slopes[:, at] = (score(logs + move) - score(logs - move)) / (2 * _STEP)
    return float((gradient - slopes).abs().max() / gradient.abs().max())


def behaviour(name: str, hardware: Hardware) -> dict[str, Any]:
    """Rates, gradients and the way from smooth to exact on one workload."""
    made, points = typical(name, hardware)
    exact = made(points)
    return {
        "workload": name,
        "operations": len(made),
        "exact_per_second": rate(made, points, 0.0),
        "exact_per_second_of_all_cores": rate_of_all_cores(name, hardware),
        "cores": len(os.sched_getaffinity(0)),
        "smooth_per_second": rate(made, points, 0.3),
        "gradient_error": gradient_error(made, points),
        "mean_difference": {
            str(t): float((made(points, t) - exact).abs().mean()) for t in TEMPERATURES
        },
    }


def report(compared: Sequence[dict[str, Any]], behaved: Sequence[dict[str, Any]]) -> str:
    """The tables."""
    rows = []
    for each in compared:
        worst = max(each["largest_relative_error"].items(), key=lambda item: item[1])
        off = [c for c, e in each["largest_relative_error"].items() if e > TOLERANCE]
        certain = each.get("certain", 0)
        rows.append(
            [
                each["workload"], each["hardware"],
                f"{each['legal']} ({each['mutants']})", str(certain),
                str(each.get("unsure", 0)), str(each.get("unknown", 0)),
                f"{each.get('agree', 0) / certain:.1%}" if certain else "-",
                _of_all(each),
                str(len(off)), f"{worst[1]:.1e} ({worst[0]})" if worst[1] > 0 else "0",
                *(
                    "-" if each[name] is None else f"{each[name]:.2g}"
                    for name in ("unsure_difference", "random_difference")
                ),
            ]
        )  # fmt: skip
    head = ["workload", "for", "legal (mutants)", "certain", "unsure", "unknown", "agree",
            "agree of all", "columns off", "largest relative error", "unsure off by",
            "random ones by"]  # fmt: skip
    largest = {
        column.name: max(each["largest_relative_error"][column.name] for each in compared)
        for column in columns()
    }
    good = sum(error <= TOLERANCE for error in largest.values())
    lines = [
        table(head, rows),
        "",
        f"Each of the {len(columns())} columns has a formula; within {TOLERANCE} on all certain "
        f"candidates: {good}. Unsure candidates and random ones: mean "
        "absolute difference of a column, the latter to others of the same structure. `agree` is "
        "of certain candidates, `agree of all` of all legal ones, where what is unknown does not.",
        "",
        *_unsure_columns(compared),
        "",
    ]
    rows = [
        [
            each["workload"], str(each["operations"]), f"{each['exact_per_second']:,.0f}",
            f"{each['exact_per_second_of_all_cores']:,.0f} ({each['cores']})",
            "met" if each["exact_per_second_of_all_cores"] >= GOAL_PER_S else "not met",
            f"{each['smooth_per_second']:,.0f}", f"{each['gradient_error']:.1e}",
            *(f"{d:.2g}" for d in each["mean_difference"].values()),
        ]
        for each in behaved
    ]  # fmt: skip
    temperatures = [f"t={t:g}" for t in TEMPERATURES]
    head = [
        "workload",
        "operations",
        "exact/s",
        "exact/s (cores)",
        f"goal of {GOAL_PER_S:,}/s",
        "smooth/s",
        "gradient error",
        *temperatures,
    ]
    note = (
        "Points per processor second, all threads together; then those of all cores at once, by "
        "the clock (the median of five batches, a process pinned to each core). The last columns "
        "are mean differences of smooth and exact columns at temperatures."
    )
    return "\n".join([*lines, table(head, rows), "", note])


def _of_all(each: dict[str, Any]) -> str:
    agreeing = each.get("agree", 0) + each.get("agree_unsure", 0)
    return f"{agreeing / each['legal']:.1%}" if each["legal"] else "-"


def _unsure_columns(compared: Sequence[dict[str, Any]]) -> list[str]:
    """Which columns are off where formulas do not claim to be exact, most often first."""
    off: Counter[str] = Counter()
    for each in compared:
        off.update(each["off_where_unsure"])
    unsure = sum(each.get("unsure", 0) for each in compared)
    if not off:
        return [f"Of {unsure} unsure candidates no column is off by more."]
    named = ", ".join(f"`{name}` {count}" for name, count in off.most_common(12))
    return [
        f"Of {unsure} unsure candidates {len(off)} of {len(columns())} columns are off in some, "
        f"most often: {named}."
    ]


def main(arguments: Sequence[str] = ()) -> None:
    """``python -m benchmarks.formulas [--points N] [--workloads A,B] [--write]``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200, help="candidates per workload")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--write", action="store_true", help="write docs/results/formulas.*")
    options = parser.parse_args(list(arguments))
    hardware = probe()
    where = conditions("formulas", [0, 1], hardware)
    targets = [(n, t) for t in (hardware, preset(GPU)) for n in options.workloads.split(",")]
    compared = []
    cores, context = len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, context) as pool:
        names, kinds = zip(*targets, strict=True)
        for found in pool.map(compare, names, kinds, [options.points] * len(targets)):
            compared.append(found)
            say(f"{found['workload']} for {found['hardware']}: {found.get('agree', 0)} of "
                f"{found.get('certain', 0)} agree, {found['seconds']:.0f} s")  # fmt: skip
    behaved = [behaviour(name, hardware) for name in _RATED if name in options.workloads]
    data = {"compared": compared, "behaviour": behaved, "tolerance": TOLERANCE}
    publish("formulas", _TITLE, report(compared, behaved), data, where.end(), options.write)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
