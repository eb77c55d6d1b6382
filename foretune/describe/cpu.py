"""Behaviour of programs on a CPU, computed from their loops and the CPU's data sheet.

Each stage of a program (a loop nest at its top) has its instructions, its additions that wait for
each other, and its bytes between the levels of memory; each of these divided by what the CPU does
per second is a limit. A stage takes a soft maximum of its limits, a program the sum of its stages
and what starting threads costs. Nothing is measured or learned; what no data sheet says
are the few constants of ``_cpu_machine``.

Reading order: ``_cpu_machine`` (rates), ``_cpu_loops`` (a thread's loops), ``_cpu_body`` (what
compilers do), ``_cpu_code`` (instructions), ``_cpu_touched`` (footprints), ``_cpu_caches`` (bytes),
then this file (limits and scores).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.describe._behaviour import METRICS, Behaviours
from foretune.describe._cpu_caches import Traffic, parts, traffic_of
from foretune.describe._cpu_code import Code, code_of
from foretune.describe._cpu_loops import Loops, loops_of, shared_loops
from foretune.describe._cpu_machine import (
    CONSTANTS,
    LINE_BYTES,
    Constants,
    Machine,
    machine_of,
)
from foretune.describe._cpu_touched import visits_of
from foretune.describe._joining import alike
from foretune.describe._nests import Nests
from foretune.errors import BadInputError
from foretune.hardware import Device

_TINY = 1e-30
_LIMITS = ("arithmetic", "instructions", "latency", "l1", "l2", "l3", "memory")


@dataclass(frozen=True)
class _Stage:
    """A stage's loops, code, traffic and seconds of each limit."""

    loops: list[Loops]
    code: list[Code]
    traffic: Traffic
    limits: dict[str, FloatArray]
    seconds: FloatArray
    starts_s: FloatArray

    @property
    def threads(self) -> FloatArray:
        return np.asarray(np.maximum.reduce([each.threads.used for each in self.loops]))

    @property
    def jobs(self) -> FloatArray:
        return np.asarray(np.maximum.reduce([each.threads.jobs for each in self.loops]))


def behaviours(nests: Nests, device: Device, constants: Constants = CONSTANTS) -> Behaviours:
    """Scores, limits and numbers of n programs on a CPU.

    Args:
        nests: The programs.
        device: The CPU.
        constants: What no data sheet says.

    Raises:
        BadInputError: The device is no CPU, or the programs are those of a GPU.
    """
    if not device.has_cores or nests.gpu:
        raise BadInputError(
            f"programs of a {'gpu' if nests.gpu else 'cpu'} are judged on a device of kind "
            f"'cpu', but {device.key!r} is a {device.kind!r}: take a device of the programs' kind"
        )
    apart = alike(nests)
    if len(apart) == 1:
        return _of_alike(nests, device, constants)
    parts = [_of_alike(nests.take(rows), device, constants) for rows in apart]
    return _whole(parts, np.argsort(np.concatenate(apart)))


def _whole(parts: Sequence[Behaviours], order: IndexArray) -> Behaviours:
    """Programs one after the other, then in an order."""

    def joined(columns: Iterable[FloatArray]) -> FloatArray:
        return np.concatenate(list(columns))[order]

    return Behaviours(
        parts[0].device,
        joined(each.scores for each in parts),
        {name: joined(each.limits_s[name] for each in parts) for name in parts[0].limits_s},
        joined(each.seconds for each in parts),
        {name: joined(each.numbers[name] for each in parts) for name in parts[0].numbers},
    )


def _of_alike(nests: Nests, device: Device, constants: Constants) -> Behaviours:
    """Of programs whose statements share the same, so that no other changes what one does."""
    machine = machine_of(device, constants)
    every = loops_of(nests, machine.cores)
    code = [code_of(each, machine, constants) for each in every]
    visits = [
        visits_of(loops, each.vector_place, shared, machine)
        for loops, each, shared in zip(every, code, shared_loops(every), strict=True)
    ]
    groups = parts(visits, 0)
    traffic = traffic_of(nests, groups, machine, constants)
    rest = iter(code)
    stages = [
        _stage([v.loops for v in group], [next(rest) for _ in group], each, machine, constants)
        for group, each in zip(groups, traffic, strict=True)
    ]
    limits = {name: _sum(stage.limits[name] for stage in stages) for name in _limits_of(machine)}
    limits["overhead"] = _sum(stage.starts_s for stage in stages) + constants.run_s
    seconds = _sum(stage.seconds for stage in stages) + limits["overhead"]
    work = _Work(nests, machine, stages, limits, seconds)
    scores = np.full((len(nests), len(METRICS)), np.nan)
    found = work.scores()
    for column, metric in enumerate(METRICS):
        if metric.name in found:
            scores[:, column] = np.clip(found[metric.name], 0.0, 1.0)
    return Behaviours(device, scores, limits, seconds, work.numbers())


def _limits_of(machine: Machine) -> list[str]:
    return [name for name in _LIMITS if name != "l3" or machine.has_l3]


def _sum(several: object) -> FloatArray:
    return np.asarray(sum(several), dtype=np.float64)  # type: ignore[call-overload]


def _stage(
    group: list[Loops],
    code: list[Code],
    traffic: Traffic,
    machine: Machine,
    constants: Constants,
) -> _Stage:
    loads, stores = _sum(c.loads for c in code), _sum(c.stores for c in code)
    ports = machine.load_ports
    moved = _sum(c.bytes for c in code)
    cycles = {
        "arithmetic": _sum(c.arithmetic_cycles for c in code),
        "instructions": _sum(c.issued_cycles for c in code),
        "latency": _sum(c.chain_cycles for c in code),
        "l1": np.maximum.reduce([loads / ports, stores / (ports / 2), moved / machine.l1_bytes]),
        "l2": traffic.beyond[0] / machine.l2_bytes + traffic.page_misses * constants.page_miss,
        "l3": traffic.beyond[1] / machine.l3_bytes if machine.has_l3 else np.zeros_like(loads),
    }
    walks = traffic.page_walks * constants.page_walk
    cycles["l3" if machine.has_l3 else "l2"] += walks
    limits = {name: each / machine.hertz for name, each in cycles.items()}
    last = traffic.beyond[2 if machine.has_l3 else 1]
    limits["memory"] = np.maximum(last / machine.core_memory, traffic.all_memory / machine.memory)
    table = np.stack(list(limits.values()))
    top = table.max(axis=0) + _TINY
    seconds = top * ((table / top) ** machine.soft).sum(axis=0) ** (1 / machine.soft)
    starts = _starts(group, constants)
    return _Stage(group, code, traffic, limits, seconds, starts)


def _starts(group: Sequence[Loops], constants: Constants) -> FloatArray:
    """Seconds to start threads and wait for them; loops that statements share count once."""
    total = np.zeros(len(group[0].executions))
    seen: set[tuple[int, ...]] = set()
    for each in group:
        path = each.path
        again = any(path[:1] == other[:1] for other in seen)
        seen.add(path)
        # A thread that is alone is not woken up.
        used = each.threads.used
        one = np.where(used > 1, constants.start_s, 0.0) + constants.thread_s * used
        cost = np.where(each.threads.starts > 0, each.threads.starts * one, 0.0)
        total = np.maximum(total, cost) if again else total + cost
    return total


@dataclass(frozen=True)
class _Work:
    """Scores and numbers of all stages together."""

    nests: Nests
    machine: Machine
    stages: list[_Stage]
    limits: dict[str, FloatArray]
    seconds: FloatArray

    def _over(self, name: str) -> FloatArray:
        return _sum(getattr(c, name) for stage in self.stages for c in stage.code)

    def _all_threads(self, name: str) -> FloatArray:
        """Of all threads together: the busiest thread's times how many of it there are."""
        return _sum(
            getattr(c, name) * loops.threads.jobs / loops.threads.busiest
            for stage in self.stages
            for c, loops in zip(stage.code, stage.loops, strict=True)
        )

    def _by_time(self, values: list[FloatArray]) -> FloatArray:
        """Mean over stages, weighted by their time."""
        weights = [stage.seconds + stage.starts_s + _TINY for stage in self.stages]
        return _sum(v * w for v, w in zip(values, weights, strict=True)) / _sum(weights)

    def _by_work(self, name: str) -> FloatArray:
        """Mean over statements, weighted by the instructions that compute, load and store."""
        pairs = [
            (getattr(c, name), c.arithmetic + c.loads + c.stores + _TINY)
            for stage in self.stages
            for c in stage.code
        ]
        return _sum(v * w for v, w in pairs) / _sum(w for _v, w in pairs)

    def scores(self) -> dict[str, FloatArray]:
        machine, stages = self.machine, self.stages
        cores = machine.cores
        used = [stage.threads / cores for stage in stages]
        balance = [_balance(stage, cores) for stage in stages]
        arithmetic, flops = self._over("arithmetic"), self._over("fp32_flops")
        issued = _sum(self._over(name) for name in _ISSUED) - self._over("folded")
        beyond = [_sum(s.traffic.beyond[level] for s in stages) for level in range(3)]
        asked = _sum(c.bytes for s in stages for c in s.code)
        wanted = self._by_work("registers")
        in_flight = [_in_flight(stage) for stage in stages]
        needed = _sum(s.traffic.needed for s in stages)
        memory = _sum(s.traffic.all_memory for s in stages)
        peak = self._all_threads("fp32_flops") / (machine.peak * cores)
        roof = np.maximum(peak, np.minimum(needed, memory) / machine.memory)
        compute = self.limits["arithmetic"]
        carried = [s.traffic.beyond[0] + _TINY for s in stages]
        overhead = self.limits["overhead"]
        scored = {
            "unit_utilization_score": self._by_time(used),
            "load_balance_score": self._by_time(balance),
            "lane_efficiency_score": self._by_work("filled") / machine.lanes,
            "synchronization_score": 1 - overhead / self.seconds,
            "coalescing_score": _sum(
                s.traffic.used * w for s, w in zip(stages, carried, strict=True)
            )
            / _sum(carried),
            "l1_reuse_score": 1 - beyond[0] / np.maximum(asked, _TINY),
            "l2_reuse_score": _kept(beyond[1], beyond[0]),
            "memory_traffic_score": np.where(
                memory > needed, needed / np.maximum(memory, _TINY), 1.0
            ),
            "register_score": np.minimum(1.0, (machine.registers - 1) / np.maximum(wanted, 1.0)),
            "vector_compute_score": np.where(
                flops > 0, flops / np.maximum(compute * machine.peak, _TINY), 1.0
            ),
            "instruction_parallelism_score": self._by_time(in_flight),
            "instruction_mix_score": arithmetic / np.maximum(issued, _TINY),
            "roofline_score": roof / self.seconds,
        }
        if machine.has_l3:
            scored["l3_reuse_score"] = _kept(beyond[2], beyond[1])
        return scored

    def numbers(self) -> dict[str, FloatArray]:
        machine, stages = self.machine, self.stages
        heaviest = np.stack([s.seconds + s.starts_s for s in stages]).argmax(axis=0)

        def of_heaviest(values: list[FloatArray]) -> FloatArray:
            return np.asarray(np.take_along_axis(np.stack(values), heaviest[None], axis=0)[0])

        flops = self._all_threads("flops")
        issued = _sum(self._all_threads(name) for name in _ISSUED) - self._all_threads("folded")
        per_flop = issued / np.maximum(flops, 1.0)
        levels = _levels(machine)
        numbers = {
            "parallel_jobs": of_heaviest([s.jobs for s in stages]),
            "threads_used": of_heaviest([s.threads for s in stages]),
            "units_busy": self._by_time([_busy(s, machine.cores) for s in stages]),
            "jobs_of_busiest_thread": of_heaviest(
                [np.maximum.reduce([each.threads.busiest for each in s.loops]) for s in stages]
            ),
            "parallel_starts": _sum(
                np.maximum.reduce([each.threads.starts for each in s.loops]) for s in stages
            ),
            "vector_lanes_used": self._by_work("lanes"),
            "vector_lanes_of_code": machine.lanes / self._by_work("fp32_lanes"),
            "accumulators": self._by_work("accumulators"),
            "registers_needed": self._by_work("registers"),
            "registers_available": np.full(len(self.seconds), machine.registers),
            "registers_spilled": self._by_work("spilled"),
            "independent_additions": of_heaviest([_independent(s)[0] for s in stages]),
            "additions_needed_in_flight": of_heaviest([_independent(s)[1] for s in stages]),
            "flops": flops,
            "instructions": issued,
            "instructions_per_flop": per_flop,
            "arithmetic_instructions": self._all_threads("arithmetic"),
            "load_instructions": self._all_threads("loads"),
            "store_instructions": self._all_threads("stores"),
            "loop_instructions": self._all_threads("overhead"),
            "bytes_from_l1": _sum(
                c.bytes * loops.threads.jobs / loops.threads.busiest
                for s in stages
                for c, loops in zip(s.code, s.loops, strict=True)
            ),
            "bytes_from_memory": _sum(s.traffic.all_memory for s in stages),
            "page_misses": _sum(s.traffic.page_misses * s.threads for s in stages),
            "page_walks": _sum(s.traffic.page_walks * s.threads for s in stages),
            "bytes_needed": _sum(s.traffic.needed for s in stages),
            "bytes_touched": _sum(s.traffic.total for s in stages),
            "line_bytes_used": self._by_time([s.traffic.used * LINE_BYTES for s in stages]),
        }
        names = [name for name in levels if name != "l1"]
        for level, name in enumerate(names):
            numbers[f"bytes_from_{name}"] = _sum(
                s.traffic.beyond[level] * s.threads for s in stages
            )
        for level, name in enumerate(levels):
            numbers[f"cache_bytes_{name}"] = np.full(len(self.seconds), machine.caches[level])
            numbers[f"working_set_bytes_{name}"] = of_heaviest(
                [s.traffic.fitting[level] for s in stages]
            )
            numbers[f"working_set_bytes_beyond_{name}"] = of_heaviest(
                [s.traffic.spilling[level] for s in stages]
            )
        return numbers


_ISSUED = ("arithmetic", "loads", "stores", "overhead")


def _levels(machine: Machine) -> list[str]:
    return ["l1", "l2", "l3"] if machine.has_l3 else ["l1", "l2"]


def _balance(stage: _Stage, cores: float) -> FloatArray:
    """Mean over the threads that could have work, beside the busiest."""
    busiest = np.maximum.reduce([each.threads.busiest for each in stage.loops])
    return np.asarray(stage.jobs / np.minimum(stage.jobs, cores) / busiest)


def _busy(stage: _Stage, cores: float) -> FloatArray:
    """Mean over all cores, beside the busiest: with fewer jobs than cores some have none, and with
    more jobs the others wait for the one that has most."""
    return np.minimum(stage.threads / cores, _balance(stage, cores))


def _kept(beyond: FloatArray, arriving: FloatArray) -> FloatArray:
    return np.asarray(np.where(arriving > 0, 1 - beyond / np.maximum(arriving, _TINY), 1.0))


def _independent(stage: _Stage) -> tuple[FloatArray, FloatArray]:
    """Additions in flight of the statement that waits longest, and how many it should have."""
    cycles = np.stack([c.chain_cycles + c.arithmetic * _TINY for c in stage.code])
    most = cycles.argmax(axis=0)[None]

    def of(values: list[FloatArray]) -> FloatArray:
        return np.asarray(np.take_along_axis(np.stack(values), most, axis=0)[0])

    return of([c.independent for c in stage.code]), of([c.needed for c in stage.code])


def _in_flight(stage: _Stage) -> FloatArray:
    independent, needed = _independent(stage)
    return np.asarray(np.minimum(independent / needed, 1.0))
