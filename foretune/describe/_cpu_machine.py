"""What a CPU does per cycle, derived from the factors of its data sheet and a few constants.

Data sheets say little of what happens within a core. What they do not say follows from what they
do: a core that issues many multiply-adds per cycle also issues, loads and keeps in flight more
than one that issues few, because nobody builds one without the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray
from foretune.hardware import Device

FP32_BYTES = 4
LINE_BYTES = 64
PAGE_BYTES = 4096
PAGES = (64.0, 1536.0)
"""Pages that the first and second table of address translations hold: usual, on no data sheet."""
WAYS = 8.0
"""Places that a cache has for a line: usual."""


@dataclass(frozen=True)
class Constants:
    """What no data sheet says, the same for every CPU.

    Values are those that manuals of common CPUs give, and round. Fitted to one CPU by least squares
    they order programs of that CPU a little better, and those of others no better.

    Attributes:
        latency: Cycles from a multiply-add to its result.
        add_latency: Cycles from an addition to its result.
        forward: Cycles that a result takes through memory to the load that needs it.
        issue: Instructions per cycle of a wide core; one of more than two multiply-adds issues
            twice as many as these, so that there is room for what they work on.
        window: Instructions that a wide core looks ahead.
        l2_share, l3_share: Bandwidth of the second and third cache beside the first's.
        memory_bytes_per_cycle: What one core draws from memory at most.
        least_memory_bytes_per_cycle: What all cores together draw where nothing is known of it.
        call: Vector instructions of an exponential, a root, a division.
        branch: Instructions of a loop per iteration.
        uneven: Instructions per element of sums in vectors whose elements are no power of two.
        page_miss, page_walk: Cycles of an address whose page the first table of translations has
            not, and the second has not.
        start_s: Seconds to hand a parallel loop to the threads and wait for the last.
        thread_s: Seconds more for each of them.
        run_s: Seconds of a call that does nothing.
        filled: Share of a cache's bytes that a program's data may take before it suffers.
        sharpness: How suddenly it suffers: the power of working set to cache.
        soft: Power of the soft maximum over limits; infinite where the longest one hides others.
    """

    latency: float = 4.0
    add_latency: float = 3.0
    forward: float = 5.0
    issue: float = 4.0
    window: float = 300.0
    l2_share: float = 0.4
    l3_share: float = 0.2
    memory_bytes_per_cycle: float = 5.0
    least_memory_bytes_per_cycle: float = 1.5
    call: float = 16.0
    branch: float = 2.0
    uneven: float = 3.0
    page_miss: float = 4.0
    page_walk: float = 25.0
    start_s: float = 4e-6
    thread_s: float = 2e-7
    run_s: float = 1e-6
    filled: float = 0.8
    sharpness: float = 4.0
    soft: float = 3.0


CONSTANTS = Constants()


@dataclass(frozen=True)
class Machine:
    """Rates of a CPU. Cycles are those of its highest clock.

    Attributes:
        cores: That compute beside each other.
        hertz: Cycles per second.
        lanes: fp32 lanes of an instruction of the compiled code.
        fused: Whether a multiply-add is one instruction.
        arithmetic: Whole vector instructions of arithmetic per cycle; narrow ones see ``rate``.
        issue: Instructions per cycle.
        load_ports: Loads per cycle; stores are half as many.
        in_order: Whether it waits for every result in the order of the program.
        registers: Vector registers.
        caches: Bytes of the first cache, second cache and third cache that a core has to itself,
            in the case of the third all cores together. Not falling.
        l1_bytes: Bytes loaded from the first cache per cycle.
        l2_bytes, l3_bytes: Bytes per cycle and core of the second and third cache.
        core_memory: Bytes per second of memory that one core draws at most.
        memory: Bytes per second of all cores.
        peak: fp32 operations per second of one core by its data sheet, whatever the code.
        has_l3: Whether there is a third cache.
        latency: Cycles from a sum to the next.
        soft: Power of the soft maximum over limits: in order, one is waited for after another.
        most_arithmetic: Instructions of arithmetic per cycle, however narrow.
    """

    cores: float
    hertz: float
    lanes: float
    fused: bool
    arithmetic: float
    issue: float
    load_ports: float
    in_order: bool
    registers: float
    caches: tuple[float, float, float]
    l1_bytes: float
    l2_bytes: float
    l3_bytes: float
    core_memory: float
    memory: float
    peak: float
    has_l3: bool
    latency: float
    most_arithmetic: float
    soft: float

    def lanes_of(self, size: int) -> float:
        """Lanes of an instruction on elements of so many bytes.

        A core that takes vectors apart computes one element at a time, however narrow.
        """
        return self.lanes if self.lanes <= 1 else max(1.0, self.lanes * FP32_BYTES / size)

    def rate(self, lanes: FloatArray) -> FloatArray:
        """Instructions of arithmetic per cycle on so many fp32 lanes.

        Where whole vectors take the units of two halves, halves go side by side.
        """
        return np.minimum(self.most_arithmetic, self.arithmetic * self.lanes / lanes)


_FUSED_LANES = 8
"""Of fp32: the least that x86 code with multiply-adds has, which came with AVX2."""


def machine_of(device: Device, constants: Constants = CONSTANTS) -> Machine:
    """Rates of a CPU.

    x86 code of four lanes on a CPU that has more is code for an older one, without multiply-adds: a
    multiplication and an addition per cycle are left. Code of eight lanes has them, and two pipes
    where one of sixteen lanes is two that join. Arm code for fewer lanes is NEON on a core
    with SVE, which has multiply-adds, and mostly as many pipes as fill the wider vectors.

    A core of less than one whole vector multiply-add per cycle is a small one: it issues two
    instructions in order, and takes vectors apart, so that they are as good as scalars. Which of
    the others issue in order, the data sheet has to say.
    """
    value = device.value
    cores, per_cycle = value("cores"), value("fp32_flop_per_cycle_per_core")
    lanes = value("simd_fp32_lanes_of_the_compiled_code")
    own_lanes = value("simd_fp32_lanes")
    rate = per_cycle / own_lanes
    arm = device.instruction_set in ("aarch64", "armv7")
    in_order = device.in_order or rate < 2
    if in_order:
        lanes = min(lanes, max(1.0, per_cycle / 2))
    fused = in_order or arm or lanes >= min(own_lanes, _FUSED_LANES)
    if in_order:
        arithmetic = per_cycle / 2 / lanes
    elif arm and lanes < own_lanes:
        arithmetic = float(device.neon_pipes) or per_cycle / 2 / lanes
    elif fused:
        arithmetic = min(rate / 2 * own_lanes / lanes, max(rate / 2, 2.0))
    else:
        arithmetic = min(rate, 2.0)
    l1 = value("l1d_kib_per_core") * 1024
    l2 = max(l1, value("l2_kib") * 1024 / cores)
    l3 = value("l3_kib") * 1024
    hertz = value("boost_mhz") * 1e6
    l1_bytes = max(2 * per_cycle, 8.0)
    latency = constants.latency if fused else constants.add_latency
    memory = value("memory_gb_per_s") * 1e9
    if "memory_gb_per_s" not in device.factors:
        memory = max(memory, constants.least_memory_bytes_per_cycle * hertz)
    return Machine(
        cores=cores,
        hertz=hertz,
        lanes=lanes,
        fused=fused,
        arithmetic=arithmetic,
        issue=2.0 if in_order else max(constants.issue, 2 * arithmetic),
        load_ports=1.0 if in_order else 2.0,
        in_order=in_order,
        registers=_registers(device, lanes, fused and own_lanes == 4 and not in_order),
        caches=(l1, l2, max(l2 * cores, l3)),
        l1_bytes=l1_bytes,
        l2_bytes=l1_bytes * constants.l2_share,
        l3_bytes=l1_bytes * constants.l3_share,
        core_memory=constants.memory_bytes_per_cycle * hertz,
        memory=memory,
        peak=per_cycle * hertz,
        has_l3=l3 > 0,
        latency=latency,
        soft=1.0 if in_order else constants.soft,
        most_arithmetic=max(arithmetic, 1.0 if in_order else 2.0),
    )


def _registers(device: Device, lanes: float, four_fused: bool) -> float:
    """Vector registers; where the instruction set is not stated, multiply-adds of four lanes are
    taken for those of a 64-bit Arm."""
    by_name = {"aarch64": 32.0, "armv7": 16.0, "x86_64": 32.0 if lanes >= 16 else 16.0}
    unstated = 32.0 if lanes >= 16 or four_fused else 16.0
    return by_name.get(device.instruction_set, unstated)
