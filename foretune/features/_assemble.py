"""Putting the columns of per-store features together from what was measured at each store.

TVM walks from the innermost loop outwards and stops at the first loop that fits: for the stride of
an access, for its reuse, and on the curve of arithmetic intensity. Here every place of a loop takes
part with a weight: how far the search is still open times how far the place fits. Weights are 0 and
1 in exact mode and anything between in smooth mode; the walk is the same.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretune.features._quantities import KINDS, StoreQuantities
from foretune.features.per_store import BUFFERS, CURVE_POINTS

if TYPE_CHECKING:
    import torch

    from foretune.features._tape import Operators
    from foretune.space.symbolic import SymbolicProgram

_LINE_BYTES = 64
_POSITIONS = 8
_NO_REUSE = 0.5
"""What TVM divides by where nothing is reused."""
_TIE = 1e-3
"""By how much the logarithm of a buffer's cache lines counts less than that of the one before."""
_FLAT = 1e-9
_AXES = tuple(f"{kind}Idx.{axis}" for kind in ("block", "thread") for axis in "xyz")


def assemble(
    program: SymbolicProgram,
    stores: Sequence[StoreQuantities],
    values: Sequence[dict[str, torch.Tensor]],
    n: int,
    operators: Operators,
) -> torch.Tensor:
    """Rows of all stores, shape (n, stores, 164).

    Args:
        program: The program.
        stores: Its stores in order.
        values: For each store, the values of ``StoreQuantities.named``, of shape (n,) or ().
        n: Number of points.
        operators: Exact or smooth.
    """
    import torch

    gpu = program.sketch.hardware.kind != "llvm"
    # A buffer that is stored to twice has the features of its last store in the first one's place.
    rows: dict[int, torch.Tensor] = {}
    earlier: list[_StoreValues] = []
    for store, found in zip(stores, values, strict=True):
        here = _StoreValues(store, found, n, operators)
        earlier.append(here)
        row = torch.cat([here.computation(gpu), here.accesses(earlier), here.rest()])
        rows[id(store.store.target)] = row
    return torch.stack(list(rows.values())).permute(2, 0, 1)


def _log2(x: torch.Tensor) -> torch.Tensor:
    return (x.clamp(min=0) + 1).log2()


class _StoreValues:
    """The numbers of one store for a batch of points; points are the last dimension."""

    def __init__(
        self, store: StoreQuantities, values: dict[str, torch.Tensor], n: int, operators: Operators
    ) -> None:
        self.store, self.operators, self.n = store, operators, n
        self._values = values
        self.places = range(len(store.levels))
        self.length = [self.line(f"length{p}") for p in self.places]
        self.kept = [self.line(f"kept{p}") for p in self.places]
        inner = self.line("one")
        self.inside = [inner] * len(self.places)
        for place in reversed(self.places):
            self.inside[place] = inner
            inner = inner * self.length[place]
        self.product = inner
        self.bytes = inner.new_tensor([[float(use.buffer.bytes)] for use in store.uses])
        self.touched = [self.stack("touched", p) for p in self.places]
        self.used = [self.stack("used", p) for p in self.places]
        self.touched_bytes = [(t * self.bytes).sum(0, keepdim=True) for t in self.touched]

    def line(self, name: str) -> torch.Tensor:
        """A value, shape (1, n)."""
        return self._values[name].expand(self.n).unsqueeze(0)

    def stack(self, name: str, place: int) -> torch.Tensor:
        """A value of each buffer, shape (buffers, n)."""
        import torch

        values = [self._values[f"{name}{b}.{place}"] for b in range(len(self.store.uses))]
        return torch.stack([v.expand(self.n) for v in values])

    def computation(self, gpu: bool) -> torch.Tensor:
        """Operations, loop kinds and threads, shape (57, n)."""
        import torch

        one, zero = self.line("one"), self.line("zero")
        columns = [self._operations(kind) for kind in KINDS]
        columns += self._kind("vector")
        columns += [zero, zero, zero, one, *[zero] * (_POSITIONS - 1)]
        columns += self._kind("parallel")
        columns.append(one if gpu else zero)
        columns += [_log2(self.line(axis) if gpu else one) for axis in (*_AXES, "vthread")]
        return torch.cat(columns)

    def _operations(self, kind: str) -> torch.Tensor:
        import torch

        count = self.line(kind)
        if self.operators.exact:
            return _log2(count * self.product)
        # Below 1 a count says how far there is an operation at all, on the scale of the column.
        some, several = count * _log2(self.product), _log2(count * self.product)
        return torch.where(count < 1, some, several)

    def _kind(self, kind: str) -> list[torch.Tensor]:
        on, length = self.line(kind), self.line(f"{kind}.length")
        extent = on * _log2(length)
        between = [self.line("zero")] * (_POSITIONS - 2)
        return [on, extent, extent, 1 - on, *between, on]

    def accesses(self, stores: Sequence[_StoreValues]) -> torch.Tensor:
        """The five buffers with the most cache lines, shape (90, n)."""
        import torch

        strides, beyond, innermost = self._strides()
        loop, serial, count, iterations, distance = self._reuse(stores)
        total = self.bytes * self.product
        unique = self.touched[0] * self.bytes if self.places else torch.ones_like(total)
        operators, one = self.operators, torch.ones_like(strides)
        part = operators.minimum(one, strides * self.bytes / _LINE_BYTES)
        lines = operators.maximum(one, self.product / beyond * part)
        contiguous = torch.cat([self.line(f"contiguous{b}") for b in range(len(self.bytes))])
        line = operators.minimum(contiguous, one * _LINE_BYTES)
        unique_lines = operators.maximum(one, unique / line)
        reused = loop + serial
        divisor = operators.blend(reused, count, one * _NO_REUSE)
        kinds = one.new_tensor([[float(use.kind)] for use in self.store.uses])
        flags = [(kinds == kind).to(one.dtype).expand_as(one) for kind in range(3)]
        measures = torch.stack([total, unique, lines, unique_lines])
        numbers = [*measures, iterations, distance, count, *(measures / divisor), innermost]
        logs = _log2(torch.stack(numbers))
        table = torch.cat(
            [torch.stack(flags), logs[:4], torch.stack([loop, serial, 1 - reused]), logs[4:]]
        )
        return self._sorted(table, lines)

    def _sorted(self, table: torch.Tensor, lines: torch.Tensor) -> torch.Tensor:
        """The first buffers by falling cache lines; ties are in order already.

        Args:
            table: Shape (18, buffers, n).
            lines: Shape (buffers, n).
        """
        import torch

        width, buffers, n = table.shape
        if not self.operators.exact:
            table = torch.einsum("sbn,wbn->wsn", self._slots(lines), table)
        elif buffers > 1:
            order = torch.sort(lines, dim=0, descending=True, stable=True).indices
            table = table.gather(1, order.expand(width, -1, -1))
        table = table[:, :BUFFERS]
        missing = table.new_zeros(width, BUFFERS - table.shape[1], n)
        return torch.cat([table, missing], 1).transpose(0, 1).reshape(-1, n)

    def _slots(self, lines: torch.Tensor) -> torch.Tensor:
        """How far each buffer is in each slot, shape (slots, buffers, n)."""
        import torch

        logs = self.operators.log(lines)
        buffers = len(lines)
        # Ties keep their order: an earlier buffer counts as a little larger.
        ranked = logs - logs.new_tensor([[_TIE * b] for b in range(buffers)])
        ahead = self.operators.step(ranked.unsqueeze(0) - ranked.unsqueeze(1))
        columns = []
        for b in range(buffers):
            # The number of buffers ahead is a sum of independent yes and no.
            chance = [torch.ones_like(logs[0])]
            for other in range(buffers):
                if other != b:
                    p = ahead[b, other]
                    shifted = [torch.zeros_like(p), *(c * p for c in chance)]
                    stay = [*(c * (1 - p) for c in chance), torch.zeros_like(p)]
                    chance = [x + y for x, y in zip(shifted, stay, strict=True)]
            columns.append(torch.stack(chance))
        slots = torch.stack(columns, 1)
        return slots / slots.sum(1, keepdim=True)

    def _strides(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Smallest stride, iterations of the loops inside it, stride of the innermost loop.

        Each of shape (buffers, n). The stride is that of the innermost loop that moves the access.
        """
        import torch

        enter, leave = self.operators.enter, self.operators.leave
        open_ = self.bytes.new_ones(len(self.bytes), self.n)
        first = self.line("one")
        stride, beyond, innermost = (torch.zeros_like(open_) for _ in range(3))
        for place in reversed(self.places):
            hit = open_ * (self.kept[place] * self.used[place])
            here = hit * enter(self.stack("stride", place))
            stride = stride + here
            beyond = beyond + hit * enter(self.inside[place])
            innermost = innermost + first * here
            open_ = open_ - hit
            first = first * (1 - self.kept[place])
        return leave(stride), leave(beyond + open_ * enter(self.product)), leave(innermost)

    def _reuse(self, stores: Sequence[_StoreValues]) -> tuple[torch.Tensor, ...]:
        """Reuse by a loop, serial reuse, count, distance in iterations and in bytes.

        Each of shape (buffers, n); the first two are weights.
        """
        import torch

        enter, leave = self.operators.enter, self.operators.leave
        open_ = self.bytes.new_ones(len(self.bytes), self.n)
        loop, serial, count, iterations, distance = (torch.zeros_like(open_) for _ in range(5))
        inner_bytes = self.line("one") * self.bytes.sum()
        for place in reversed(self.places):
            kept, length = self.kept[place], self.length[place]
            together = self._sharing(stores, place)
            touched = together[0][0].touched_bytes[together[0][1]]
            for other, at in together[1:]:
                touched = touched + other.touched_bytes[at]
            hit = open_ * (kept * (1 - self.used[place]))
            loop, open_ = loop + hit, open_ - hit
            count = count + hit * enter(length)
            iterations = iterations + hit * enter(self.inside[place])
            distance = distance + hit * enter(inner_bytes)
            times, least = self._touches(together)
            if times.max() > 1:
                hit = open_ * (kept * (times > 1))
                serial, open_ = serial + hit, open_ - hit
                count = count + hit * enter(times - 1)
                iterations = iterations + hit * enter(least / length)
                distance = distance + hit * enter(touched / length)
            inner_bytes = self.operators.blend(kept, touched, inner_bytes)
        return loop, serial, leave(count), leave(iterations), leave(distance)

    def _sharing(
        self, stores: Sequence[_StoreValues], place: int
    ) -> list[tuple[_StoreValues, int]]:
        """The stores so far that are under the loop of a place, with its place around them."""
        number = self.store.levels[place].loop
        return [
            (other, at)
            for other in stores
            for at, level in enumerate(other.store.levels)
            if level.loop == number
        ]

    def _touches(
        self, together: Sequence[tuple[_StoreValues, int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """How often stores touch each buffer, shape (buffers, 1), and the least, (buffers, n)."""
        import torch

        times, least = [], []
        for use in self.store.uses:
            values = [
                other.touched[at][b]
                for other, at in together
                for b, theirs in enumerate(other.store.uses)
                if theirs.buffer is use.buffer
            ]
            times.append([float(len(values))])
            least.append(functools.reduce(self.operators.minimum, values))
        return self.bytes.new_tensor(times), torch.stack(least)

    def rest(self) -> torch.Tensor:
        """Arithmetic intensity, allocation and outer loops, shape (17, n)."""
        import torch

        elements, outside = self.line("alloc.elements"), self.line("alloc.outside")
        loops = functools.reduce(torch.add, self.kept, self.line("zero"))
        columns = [
            elements * self.store.store.target.bytes,
            elements * outside,
            outside,
            self.product / outside,
            self.product,
            loops,
            self.line("unroll"),
        ]
        return torch.cat([self._intensity(), _log2(torch.cat(columns))])

    def _intensity(self) -> torch.Tensor:
        """Operations per byte at equal steps of the operations, shape (points, n)."""
        import torch

        enter, leave, blend = self.operators.enter, self.operators.leave, self.operators.blend
        operations = functools.reduce(torch.add, (self.line(kind) for kind in KINDS[:7]))
        steps = torch.arange(1, CURVE_POINTS + 1, dtype=operations.dtype) / CURVE_POINTS
        wanted = operations * self.product * steps.unsqueeze(1)
        open_ = torch.ones_like(wanted)
        result = torch.zeros_like(wanted)
        first = self.line("one")
        ops_before = rate_before = self.line("zero")
        for place in reversed(self.places):
            kept = self.kept[place]
            ops = operations * self.inside[place] * self.length[place]
            rate = ops / self.touched_bytes[place]
            # Smooth: a loop of one iteration has no slope.
            rise, flat = ops - ops_before, self.operators.temperature * ops
            slope = (rate - rate_before) * rise / (rise * rise + flat * flat).clamp(min=_FLAT)
            line = (rate_before + slope * (wanted - ops_before)).clamp(min=0)
            hit = open_ * (kept * self._reached(ops, wanted))
            result = result + hit * enter(blend(first, rate, line))
            open_ = open_ - hit
            first = first * (1 - kept)
            ops_before = blend(kept, ops, ops_before)
            rate_before = blend(kept, rate, rate_before)
        return _log2(leave(result + open_ * enter(rate_before)))

    def _reached(self, ops: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        if self.operators.exact:
            return (ops >= wanted - 1e-4).to(ops.dtype)
        # Divisors of the whole are never within one percent below its tenths.
        return self.operators.step(self.operators.log(ops) - self.operators.log(wanted * 0.99))
