"""Machine code of a statement: what is kept in registers, issued, and waited for.

In the body of the innermost loop a value that is used again needs no second load as long as
there is a register for it, and a sum that the loop around the body adds to stays in a register for
as long as that loop runs. Sums that find no register are stored and loaded again every time.

Symbols of shapes: n programs, d loops on the path of a statement. Counts are per thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray, IndexArray
from foretune.describe._cpu_body import Body
from foretune.describe._cpu_loops import Loops, Motion
from foretune.describe._cpu_machine import FP32_BYTES, Constants, Machine

SHORT_BODY = 40.0
"""Instructions up to which it makes copies of the body of a long loop."""
GUARD = 1.0
"""Instructions of a condition around a copy."""
UNEVEN_IN_MEMORY = 0.2
"""Share of the instructions for uneven vectors that are loads, and as many stores."""
DECODED_BODY, CACHED_BODY = 2000.0, 6000.0
"""Instructions that a CPU holds decoded, and that its first cache holds: usual sizes."""
NEAR_FETCH, FAR_FETCH = 3.0, 1.6
"""Instructions per cycle from the first cache and from the second."""


@dataclass(frozen=True)
class Code:
    """What one thread executes of a statement. All of shape (n,).

    Attributes:
        vector_place: Of the vectorised loop in the path, -1 for none.
        vector: Iterations of the vectorised loop, 1 for scalar code.
        lanes: Lanes that do useful work in an instruction, on average.
        fp32_lanes: That one lane takes: 2 of an element of eight bytes.
        element: Bytes of what is loaded and stored, mean over these instructions.
        accumulators: Vector registers that hold sums or results at once.
        registers: Vector registers wanted, those of operands to be used again included.
        spilled: Sums without a register.
        independent: Additions that do not wait for each other.
        needed: Additions that have to be in flight so that none is waited for.
        arithmetic: Instructions of arithmetic.
        arithmetic_cycles: Cycles that they take.
        loads, stores: Instructions.
        overhead: Instructions of loops and addresses.
        chain_cycles: Cycles if nothing but results were waited for.
        folded: Loads that are no instruction of their own.
        flops: Operations asked for.
        body: Instructions of the body.
        issued_cycles: Cycles to issue all instructions.
    """

    vector_place: IndexArray
    vector: FloatArray
    lanes: FloatArray
    fp32_lanes: FloatArray
    element: FloatArray
    accumulators: FloatArray
    registers: FloatArray
    spilled: FloatArray
    independent: FloatArray
    needed: FloatArray
    arithmetic: FloatArray
    arithmetic_cycles: FloatArray
    loads: FloatArray
    stores: FloatArray
    overhead: FloatArray
    chain_cycles: FloatArray
    folded: FloatArray
    flops: FloatArray
    body: FloatArray
    issued_cycles: FloatArray

    @property
    def bytes(self) -> FloatArray:
        """Loaded and stored."""
        return (self.loads + self.stores) * self.lanes * self.element

    @property
    def filled(self) -> FloatArray:
        """fp32 lanes that do useful work in an instruction, whatever the type."""
        return self.lanes * self.fp32_lanes

    @property
    def fp32_flops(self) -> FloatArray:
        """Operations in fp32 that the same instructions would do, to compare with the peak."""
        return self.flops * self.fp32_lanes


def code_of(loops: Loops, machine: Machine, constants: Constants) -> Code:
    """The code of a statement."""
    return _Counting(loops, machine, constants).code()


class _Counting(Body):
    """Counts instructions."""

    def _calls(self) -> FloatArray:
        """How often calls are executed, in vectors: as often as what they are of changes.

        What is computed from a value that a loop does not change is moved out of the loop. A call
        is taken to be one of an intermediate value where there is one (a norm's root, a softmax's
        sum), else of all.
        """
        statement = self.loops.statement
        if not (statement.calls > 0).any():
            return np.zeros(self.n)
        of = [m for m in self.loads if not m.buffer.parameter] or self.loads
        moved = np.zeros((self.n, self.depth), dtype=bool)
        for motion in of:
            moved |= motion.moved
        counted = np.where(moved & ~self.is_vector, self.extents, 1.0).prod(axis=1)
        vector = (moved & self.is_vector).any(axis=1)
        return np.asarray(counted * np.where(vector, self.passes, 1.0) * statement.calls)

    def _width(self, motion: Motion) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Registers, loads and other instructions of an access by one vector statement."""
        if self.depth == 0:
            one = np.ones(self.n)
            return one, one, np.zeros(self.n)
        moved = self._at(motion.moved, self.vector_place).astype(bool) & (self.vector_place >= 0)
        step = np.abs(self._at(motion.step, self.vector_place))
        beside = step == motion.buffer.bytes
        passes = self._passes_of(motion)
        runs = self._at(motion.runs, self.vector_place)
        # A vector that goes over the end of a row is put together of pieces.
        pieces = np.where(beside, np.maximum(np.ceil(self.vector / runs), passes), self.vector)
        whole = moved & beside & (runs >= self.vector)
        scalar = self.vector <= 1
        together = np.where(whole | ~moved | scalar, 0.0, pieces)
        if not self.machine.fused:
            # Older instructions repeat a value over lanes by a second one.
            together = np.where(~moved & ~scalar & ~np.asarray(motion.access.store), 1.0, together)
        registers = np.where(moved, passes, 1.0)
        accesses = np.where(moved, np.where(whole, passes, pieces), 1.0)
        return registers, accesses, together

    def _passes_of(self, motion: Motion) -> FloatArray:
        """Vectors of an access: more than of the arithmetic where its elements are wider."""
        lanes = self.machine.lanes_of(motion.buffer.bytes)
        return np.maximum(self.passes, np.ceil(self.vector / lanes))

    def code(self) -> Code:
        machine, statement = self.machine, self.loops.statement
        copies = self._product(self.unrolled)
        entries = self.executions / copies / self.vector * statement.executed
        touches = copies * self.passes
        operations = statement.operations
        multiply_add = machine.fused & np.asarray(self._sums)
        steps = np.where(multiply_add, np.ceil(operations / 2), operations) + statement.selects
        by_load, extra, folded, held = self._loads(touches * steps)
        loads = _sum(self.n, by_load)
        results, live = self._results()
        spills, spilled = self._spills(held)
        run = self._run_of_sums()
        if self.store is None:
            stores, put = np.zeros(self.n), np.zeros(self.n)
        else:
            registers, accesses, together = self._width(self.store)
            stores = results * accesses / registers / run
            put = results * together / registers / run
        own = stores if self._sums else np.zeros(self.n)
        body = touches * steps + loads - folded + stores + own + 2 * spills + extra + put
        uneven = self._uneven(live) / self._body_copies(body)
        spills = spills + UNEVEN_IN_MEMORY * uneven
        guards = np.where((statement.executed < 1) & (copies > 1), GUARD * copies, 0.0)
        extra = extra + (1 - 2 * UNEVEN_IN_MEMORY) * uneven + guards / statement.executed
        body = body + uneven + guards
        independent, chain = self._chain(entries * touches, steps)
        calls = self._calls() * statement.executed * self.constants.call
        arithmetic = entries * touches * steps + calls
        wide = machine.lanes / self.lanes
        width = np.exp2(np.ceil(np.log2(np.minimum(self.vector, self.lanes)))) * wide
        rate = machine.rate(np.minimum(width, machine.lanes))
        all_loads, all_stores = entries * (loads + own + spills), entries * (stores + spills)
        overhead = entries * (extra + put) + self._loop_overhead(body)
        issued = arithmetic + all_loads + all_stores + overhead - entries * folded
        return Code(
            vector_place=self.vector_place,
            vector=self.vector,
            lanes=self.vector / self.passes,
            fp32_lanes=np.full(self.n, wide),
            element=self._element(by_load, stores + own + 2 * spills),
            accumulators=live,
            registers=live + held + 1,
            spilled=spilled,
            independent=independent,
            arithmetic=arithmetic,
            arithmetic_cycles=arithmetic / rate,
            needed=rate * machine.latency,
            loads=all_loads,
            stores=all_stores,
            overhead=overhead,
            folded=entries * folded,
            chain_cycles=chain,
            flops=self.executions * statement.executed * operations,
            body=body,
            issued_cycles=issued * np.maximum(1 / machine.issue, self._fetch(body)),
        )

    def _fetch(self, body: FloatArray) -> FloatArray:
        """Cycles to bring an instruction of a body that is too long for what holds it decoded, or
        for the first cache."""
        return np.select(
            [body > CACHED_BODY, body > DECODED_BODY], [1 / FAR_FETCH, 1 / NEAR_FETCH], 0.0
        )

    def _uneven(self, live: FloatArray) -> FloatArray:
        """Instructions per run of the body for sums in vectors of no power of two.

        LLVM takes them apart and puts them together again where they go round the loop.
        """
        even = np.exp2(np.round(np.log2(self.vector))) == self.vector
        carried = (self.repeat >= 0) & self._at(self.kept, self.repeat).astype(bool)
        apart = carried & ~even & (self.vector > self.lanes)
        return np.where(apart, self.constants.uneven * live / self.passes * self.vector, 0.0)

    def _body_copies(self, body: FloatArray) -> FloatArray:
        return np.clip(SHORT_BODY / np.maximum(body, 1.0), 1.0, 8.0)

    def _results(self) -> tuple[FloatArray, FloatArray]:
        """Registers of different results of the body, and of sums that live on."""
        one = np.ones(self.n)
        if self.store is None:
            return one, one
        registers = self._width(self.store)[0]
        different = self._different(self.store, self.unrolled) * registers
        if not self._sums:
            return different, one
        carrying = self.kept & (self.unrolled | (np.arange(self.depth) == self.repeat[:, None]))
        outer = self._outermost(carrying)
        inner = self.unrolled & ~self.kept & (np.arange(self.depth) > outer[:, None])
        return different, np.where(carrying.any(axis=1), self._product(inner) * registers, 1.0)

    def _spills(self, held: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Sums stored and loaded again per run of the body, and how many have no register.

        Each time that a loop of the body adds to all of its sums again, those without a register
        come from memory. Register allocation loses two more as soon as there are too few.
        """
        spills, without = np.zeros(self.n), np.zeros(self.n)
        if not self._sums or self.store is None:
            return spills, without
        registers = self._width(self.store)[0]
        places = np.arange(self.depth)
        for place in range(self.depth):
            adds = self.kept[:, place] & (self.unrolled[:, place] | (self.repeat == place))
            if not adds.any():
                continue
            live = self._product(self.unrolled & ~self.kept & (places > place)) * registers
            excess = live + held + 1 - self.machine.registers
            missing = np.where(adds & (excess > 0), np.minimum(excess + 2, live), 0.0)
            times = self._product(self.unrolled & (places <= place))
            spills = np.maximum(spills, times * missing)
            without = np.maximum(without, missing)
        return spills, without

    def _run_of_sums(self) -> FloatArray:
        """Runs of the body during which sums stay in registers."""
        run = np.ones(self.n)
        if not self._sums:
            return run
        still = np.ones(self.n, dtype=bool)
        for place in range(self.depth - 1, -1, -1):
            left = self.left[:, place]
            adds = left & self.kept[:, place] & still
            run = np.where(adds, run * self.extents[:, place], run)
            still &= ~left | adds
        return run

    def _loads(
        self, arithmetic: FloatArray
    ) -> tuple[list[FloatArray], FloatArray, FloatArray, FloatArray]:
        """Per run of the body: loads of each access, further instructions, loads that are part of
        an arithmetic instruction; and registers that hold what is used again."""
        zeros = np.zeros(self.n)
        loads: list[FloatArray] = []
        extra, folded, held = zeros.copy(), zeros.copy(), zeros.copy()
        places = np.arange(self.depth)
        copies = self._product(self.unrolled) * self.passes
        for motion in self.loads:
            registers, accesses, together = self._width(motion)
            different = self._different(motion, self.unrolled)
            innermost = self._innermost(motion.moved & self.inside)
            touches = self._product(self.unrolled & (places <= innermost[:, None]))
            again = self._outermost(self.unrolled & ~motion.moved)
            wanted = self._different(motion, self.unrolled & (places > again[:, None])) * registers
            reused = (touches > different) & (wanted < self.machine.registers)
            stays = self._stays(motion)
            outside = (stays > 1) & (different * registers < self.machine.registers / 2)
            times = np.where(reused, different, touches)
            times = np.where(outside, different / stays, times)
            held += np.where(outside, different * registers, np.where(reused, wanted, 0.0))
            loads.append(times * accesses)
            extra += times * together
            if not self.machine.in_order:
                once = ~outside & (times * accesses >= copies) & (together <= 0)
                folded += np.where(once, times * accesses, 0.0)
        return loads, extra, np.minimum(folded, arithmetic), held

    def _element(self, by_load: list[FloatArray], stored: FloatArray) -> FloatArray:
        """Bytes of an element, mean over loads and over stores with the loads of stored sums."""
        motions, counts = list(self.loads), list(by_load)
        if self.store is not None:
            motions, counts = [*motions, self.store], [*counts, stored]
        sizes = [motion.buffer.bytes for motion in motions]
        if len(set(sizes)) <= 1:
            return np.full(self.n, float(sizes[0] if sizes else FP32_BYTES))
        total = _sum(self.n, counts)
        # Of elements that are wider than those of the arithmetic, an instruction moves fewer.
        moved = [
            motion.buffer.bytes * self.passes / self._passes_of(motion) * count
            for motion, count in zip(motions, counts, strict=True)
        ]
        whole = _sum(self.n, moved)
        return np.where(total > 0, whole / np.maximum(total, 1e-30), float(FP32_BYTES))

    def _stays(self, motion: Motion) -> FloatArray:
        """Runs of the body during which the same values are loaded."""
        run = np.ones(self.n)
        still = np.ones(self.n, dtype=bool)
        for place in range(self.depth - 1, -1, -1):
            left = self.left[:, place]
            same = left & ~motion.moved[:, place] & still
            run = np.where(same, run * self.extents[:, place], run)
            still &= ~left | same
        return run

    def _loop_overhead(self, body: FloatArray) -> FloatArray:
        """Instructions that count, compare, branch and advance addresses.

        The compiler makes a few copies of a short innermost body.
        """
        total = np.zeros(self.n)
        times = np.ones(self.n)
        copies = self._body_copies(body)
        for place in range(self.depth):
            left = self.left[:, place]
            times = np.where(left, times * self.extents[:, place], times)
            moved = sum(m.moved[:, place].astype(float) for m in self.loops.motions)
            each = self.constants.branch + 0.5 * moved
            each = np.where(self.repeat == place, each / copies, each)
            total += np.where(left, times * each, 0.0)
        return total

    def _chain(self, updates: FloatArray, steps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Additions in flight, and cycles of waiting for those before."""
        much = np.full(self.n, 1e6)
        if not self._sums or self.depth == 0 or self.store is None:
            return much, np.zeros(self.n)
        registers = self._width(self.store)[0]
        places = np.arange(self.depth)
        adds = self._innermost(self.kept)
        inside = self.real & ~self.kept & (places > adds[:, None]) & ~self.is_vector
        own = self._product(inside) * registers
        run = np.ones(self.n)
        still = np.ones(self.n, dtype=bool)
        others = np.ones(self.n)
        for place in range(self.depth - 1, -1, -1):
            real = self.real[:, place] & ~self.is_vector[:, place] & (place <= adds)
            adding = real & self.kept[:, place] & still
            run = np.where(adding, run * self.extents[:, place], run)
            still &= ~real | adding
            others = np.where(real & ~still, others * self.extents[:, place], others)
        branch = np.where(self._at(self.left, adds).astype(bool), self.constants.branch, 0.0)
        per_update = steps + 1 + branch
        ahead = 1.0 if self.machine.in_order else self.constants.window
        overlap = np.clip(ahead / (run * own * per_update), 1.0, np.maximum(others, 1.0))
        independent = np.where(adds >= 0, own * overlap, much)
        through_memory = (adds < self.repeat) & (adds >= 0)
        latency = self.machine.latency + np.where(through_memory, self.constants.forward, 0.0)
        return independent, np.where(adds >= 0, updates * latency / independent, 0.0)


def _sum(n: int, several: list[FloatArray]) -> FloatArray:
    return np.asarray(sum(several, np.zeros(n)))
