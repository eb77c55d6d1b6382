"""Devices, behaviours and times that follow a formula, so that what is right is known.

A program does ``work`` operations with some share of the lanes and moves bytes ``traffic`` times
as often as it must. Its arithmetic and its memory time follow from the device; it takes the longer
of the two, and twice that where it spills registers, which predictions know nothing of.
"""

from __future__ import annotations

import numpy as np

from foretune.cost.behaviour.columns import SCORE_NAMES, columns
from foretune.cost.behaviour.regressor import Lesson
from foretune.describe import (
    METRICS,
    PARALLEL,
    SERIAL,
    VECTORIZED,
    Access,
    Behaviours,
    Buffer,
    Nests,
    Statement,
    Term,
)
from foretune.hardware import Device

ROOF = SCORE_NAMES.index("roofline_score")
LANES = SCORE_NAMES.index("lane_efficiency_score")
TRAFFIC = SCORE_NAMES.index("memory_traffic_score")
REGISTERS = SCORE_NAMES.index("register_score")
NEST_LOOPS = ("i0", "j0", "i1", "j1", "k0", "i2", "j2", "k1", "i3", "j3")
"""Those of ``foretune.testing.rankers``."""


def cpu(key, cores=4, mhz=3000.0, memory=25.0, **more):
    """A processor with 8 lanes of multiply-adds."""
    return Device(
        key,
        key,
        "cpu",
        {
            "cores": cores,
            "simd_fp32_lanes": 8,
            "fp32_flop_per_cycle_per_core": 16,
            "l1d_kib_per_core": 32,
            "boost_mhz": mhz,
            "memory_gb_per_s": memory,
            **more,
        },
    )


DEVICES = tuple(
    cpu(f"cpu{i}", cores, mhz, memory)
    for i, (cores, mhz, memory) in enumerate(
        [(4, 3000.0, 25.0), (8, 3600.0, 50.0), (16, 2500.0, 200.0), (4, 1000.0, 6.0)]
    )
)
UNSEEN = cpu("unseen", 12, 3300.0, 40.0)


def programs(workload, n=64):
    """Share of lanes, traffic and spills of n programs of a workload, each of shape (n,)."""
    rng = np.random.default_rng([7, workload])
    return 2.0 ** -rng.uniform(0, 3, n), 2.0 ** rng.uniform(0, 5, n), rng.random(n) < 0.3


def behaviours(workload, device, n=64):
    """What is predicted of them on a device."""
    lanes, traffic, spills = programs(workload, n)
    work, moved = 1e9 * (1 + workload % 3), 2e7 * (1 + workload % 5)
    arithmetic = work / (device.value("peak_fp32_gflops") * 1e9) / lanes
    memory = moved * traffic / (device.value("memory_gb_per_s") * 1e9)
    seconds = np.maximum(arithmetic, memory)
    roof = max(
        work / (device.value("peak_fp32_gflops") * 1e9),
        moved / (device.value("memory_gb_per_s") * 1e9),
    )
    scores = np.full((n, len(METRICS)), np.nan)
    scores[:, LANES], scores[:, TRAFFIC] = lanes, 1 / traffic
    scores[:, REGISTERS] = np.where(spills, 0.4, 1.0)
    scores[:, ROOF] = roof / seconds
    return Behaviours(
        device, scores, {"arithmetic": arithmetic, "memory": memory}, seconds, {"flops": seconds}
    )


def seconds(workload, device, n=64):
    """What they take."""
    spills = programs(workload, n)[2]
    return behaviours(workload, device, n).seconds * np.where(spills, 2.0, 1.0)


def nests(workload, n=64):
    """Of the programs only that they read and write the same."""
    return tiny_nests(np.tile([64.0 * (1 + workload % 5), 8.0], (n, 1)))


def lesson(workload, device, n=64, memory=None):
    table = columns(behaviours(workload, device, n), nests(workload, n), memory, device)
    return Lesson(f"w{workload}", device.key, table, seconds(workload, device, n))


def pairs(times, truth):
    """Share of pairs in the right order; 0.5 is chance."""
    i, j = np.triu_indices(len(truth), 1)
    return float((np.sign(times[i] - times[j]) == np.sign(truth[i] - truth[j])).mean())


def top(times, truth):
    """Fastest beside the one that is said to be."""
    return float(truth.min() / truth[times.argmin()])


def tiny_nests(extents, gpu=False):
    """Programs ``for i: for j: C[i, j] = A[i, j] + B[i, j]`` with j a vector, shape (n, 2)."""
    extents = np.asarray(extents, dtype=np.float64)
    n = len(extents)
    one, zero = np.ones(n), np.zeros(n)
    terms = tuple(Term(place, place, one, extents[:, place], one) for place in range(2))
    accesses = tuple(Access(number, number == 2, terms) for number in range(3))
    return Nests(
        kinds=np.tile(np.array([SERIAL, VECTORIZED], np.int8), (n, 1)),
        extents=extents,
        axes=("", ""),
        reduction=(False, False),
        buffers=tuple(Buffer(name, "global", 4, extents) for name in "ABC"),
        statements=(Statement((0, 1), accesses, one, zero, zero, zero, False, one),),
        gpu=gpu,
        approximate=np.zeros(n, bool),
    )


def analysis(nests, device):
    """Stands in for ``describe.behaviours``: the fewer lanes of a vector are used, the slower."""
    lanes = device.value("simd_fp32_lanes") if device.kind == "cpu" else 32.0
    used = np.minimum(np.gcd(nests.extents[:, -1].astype(int), int(lanes)), lanes) / lanes
    work = nests.extents.prod(axis=1)
    ideal = work / (device.value("peak_fp32_gflops") * 1e9)
    scores = np.full((len(nests), len(METRICS)), np.nan)
    scores[:, LANES], scores[:, ROOF] = used, used
    return Behaviours(device, scores, {"arithmetic": ideal / used}, ideal / used, {})


def nest_text(nests, row):
    return " ".join(f"{extent:g}" for extent in nests.extents[row])


def device_words(device):
    return f"device with {device.value('peak_fp32_gflops'):g} GFLOP/s"


def nest_analysis(nests, device):
    """Scores of the nests of ``foretune.testing.rankers`` that say what their times depend on.

    Lanes filled, accumulators, threads busy, a tile beside the first cache, steps unrolled; not how
    much each is worth, which is to be learned.
    """
    extents = dict(zip(NEST_LOOPS, nests.extents.T, strict=False))
    lanes = device.value("simd_fp32_lanes")
    threads = device.value("threads")
    filled = np.gcd(extents["j3"].astype(int), int(lanes))
    vectors = nests.kinds[:, NEST_LOOPS.index("j3")] == VECTORIZED
    accumulators = extents["i3"] * extents["j3"] / filled
    parallel = nests.kinds[:, 0] == PARALLEL
    chunks = np.where(parallel, extents["i0"] * extents["j0"], 1)
    rows, across = extents["i2"] * extents["i3"], extents["j2"] * extents["j3"]
    tile = 4.0 * (rows * extents["k1"] + extents["k1"] * across + rows * across)
    body = np.minimum(nests.statements[0].unroll, extents["i3"] * extents["k1"])
    scores = np.full((len(nests), len(METRICS)), np.nan)
    scores[:, LANES] = np.where(vectors, filled / lanes, 1 / lanes)
    scores[:, REGISTERS] = np.minimum(1.0, 14 / accumulators)
    named = {
        "instruction_parallelism_score": np.minimum(1.0, accumulators / 4),
        "load_balance_score": chunks / (np.ceil(chunks / threads) * threads),
        "l1_reuse_score": np.minimum(1.0, device.value("l1d_kib_per_core") * 1024 / tile),
        "instruction_mix_score": (1 + body) / 513,
        "roofline_score": np.full(len(nests), 0.5),
    }
    for name, value in named.items():
        scores[:, SCORE_NAMES.index(name)] = value
    seconds = np.ones(len(nests))
    return Behaviours(device, scores, {"arithmetic": seconds}, seconds, {})
