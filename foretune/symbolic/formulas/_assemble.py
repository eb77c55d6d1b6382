"""Putting the columns of per-store features together from what was measured at each store.

TVM walks from the innermost loop outwards and stops at the first loop that fits: for the stride of
an access, for its reuse, and on the curve of arithmetic intensity. Here every place of a loop takes
part with a weight: how far the search is still open times how far the place fits. Weights are 0 and
1 in exact mode and anything between in smooth mode; the walk is the same.

All stores go together (``_arranged``). Symbols of shapes: P places of loops, counted from the
innermost, S stores, B buffers, n points; points are the last dimension.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from foretune._per_store import (
    BUFFERS,
    CACHE_LINE_BYTES,
    CURVE_POINTS,
    NUMBER_OPERATIONS,
    OPERATIONS,
)
from foretune.symbolic.formulas._arranged import AXES, STORE, Arranged

if TYPE_CHECKING:
    import torch

    from foretune.symbolic.formulas._operators import Operators

_NO_REUSE = 0.5
"""What TVM divides by where nothing is reused."""
_TIE = 1e-3
"""By how much the logarithm of a buffer's cache lines counts less than that of the one before."""
_FLAT = 1e-9
_FLOAT_KINDS = len(NUMBER_OPERATIONS)
"""The counted operations that make up arithmetic intensity are the first."""
_COUNTS = STORE.index(OPERATIONS[0])
_LENGTHS = STORE.index("vector.length")
_REST = ("allocated", "alloc.product", "outside", "inside", "product", "loops", "unroll")
_ACCESSES = 18
"""Columns of a buffer."""


def assemble(arranged: Arranged, values: torch.Tensor, operators: Operators) -> torch.Tensor:
    """Rows of all stores, shape (n, rows, 164).

    Args:
        arranged: The tables.
        values: Of ``Arranged.outputs``, shape (outputs, n).
        operators: Exact or smooth.
    """
    import torch

    stores = _Stores(arranged, values, operators)
    table = torch.cat([*stores.computation(), stores.accesses()])
    slots = min(len(arranged.there), BUFFERS)
    columns, rows = _order(arranged.gpu, slots), arranged.chosen
    places = (columns.unsqueeze(1) * table.shape[1] + rows).flatten()
    gathered = table.flatten(0, 1).index_select(0, places).view(len(columns), len(rows), -1)
    return gathered.permute(2, 1, 0)


_LOGARITHMS = (*OPERATIONS, "vector.length", "parallel.length", *AXES, *_REST,
               *(f"intensity{at}" for at in range(CURVE_POINTS)))  # fmt: skip
_FLAGS = ("zero", "one", "vector", "parallel", "not vector", "not parallel", "vector.extent",
          "parallel.extent")  # fmt: skip


@functools.cache
def _order(gpu: bool, slots: int) -> torch.Tensor:
    """Where each column of TVM's is in what ``computation`` and ``accesses`` give."""
    import torch

    def loops(kind: str) -> list[str]:
        extent = f"{kind}.extent"
        return [kind, extent, extent, f"not {kind}", *["zero"] * 6, kind]

    accesses = [f"{column} of {slot}" for column in range(_ACCESSES) for slot in range(slots)]
    sorted_ = [f"{column} of {slot}" if slot < slots else "zero"
               for slot in range(BUFFERS) for column in range(_ACCESSES)]  # fmt: skip
    names = [*OPERATIONS, *loops("vector"), *["zero"] * 3, "one", *["zero"] * 7, *loops("parallel"),
             "one" if gpu else "zero", *AXES, *sorted_, *_LOGARITHMS[-CURVE_POINTS:],
             *_REST]  # fmt: skip
    places = {name: at for at, name in enumerate((*_LOGARITHMS, *_FLAGS, *accesses))}
    return torch.tensor([places[name] for name in names])


def _log2(x: torch.Tensor) -> torch.Tensor:
    return (x.clamp(min=0) + 1).log2()


def _until(x: torch.Tensor) -> torch.Tensor:
    """Products of what comes before each place, shape (P + 1, ...): the last is that of all."""
    reached: torch.Tensor = _walks()[0].apply(x)
    return reached


def _latest(x: torch.Tensor, weight: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """What was met last before each place, shape (P + 1, ...): as far as a weight goes.

    Args:
        x: What is met at each place, shape (P, ...).
        weight: How far there is a place, of a shape that can be expanded to that of ``x``.
        start: What is there before the first place.
    """
    latest: torch.Tensor = _walks()[1].apply(x, weight, start)
    return latest


@functools.cache
def _walks() -> tuple[Any, Any]:
    """``_until`` and ``_latest`` as single steps of automatic differentiation."""
    import torch

    class Until(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            reached = x.new_ones(len(x) + 1, *x.shape[1:])
            places = reached.unbind(0)
            for factor, before, after in zip(x.unbind(0), places[:-1], places[1:], strict=True):
                torch.mul(before, factor, out=after)
            ctx.save_for_backward(x, reached)
            return reached

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            (g,), (x, reached) = gradients, ctx.saved_tensors
            further = g[1:].clone()
            places, factors = further.unbind(0), x.unbind(0)
            for at in range(len(x) - 2, -1, -1):
                places[at].addcmul_(places[at + 1], factors[at + 1])
            return further.mul_(reached[:-1])

    class Latest(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, start: torch.Tensor) -> Any:
            reached = x.new_empty(len(x) + 1, *x.shape[1:])
            reached[0] = start
            places = reached.unbind(0)
            each = zip(x.unbind(0), weight.unbind(0), places[:-1], places[1:], strict=True)
            for here, share, before, after in each:
                torch.lerp(before, here, share, out=after)
            ctx.save_for_backward(x, weight, reached)
            return reached

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            (g,), (x, weight, reached) = gradients, ctx.saved_tensors
            further = g[1:].clone()
            places, stay = further.unbind(0), (1 - weight).unbind(0)
            for at in range(len(x) - 2, -1, -1):
                places[at].addcmul_(places[at + 1], stay[at + 1])
            share = (further * (x - reached[:-1])).sum_to_size(weight.shape)
            return further * weight, share, None

    return Until, Latest


class _Stores:
    """The numbers of all stores for a batch of points.

    What is *entered* is the logarithm-like number of ``Operators.enter``, of which means are taken.
    """

    def __init__(self, arranged: Arranged, values: torch.Tensor, operators: Operators) -> None:
        import torch

        self.arranged, self.operators = arranged, operators
        self.store, (self.contiguous, self.whole), loops, accesses = arranged.tables(values)
        self.kept, self.length, touched, shared = loops.unbind(0)
        self.used, self.stride, self.least = accesses.unbind(0)
        until = _until(torch.stack([self.length, 1 - self.kept], 1))
        inside, self.first = until[:-1].unbind(1)
        self.product = until[-1, 0]
        self.counts = self.store[_COUNTS : _COUNTS + len(OPERATIONS)]
        self.operations = self.counts[:_FLOAT_KINDS].sum(0)
        self.ops = self.operations * inside * self.length
        self.rate = self.ops / touched
        self.entered = operators.enter(
            torch.stack([shared, self.ops, self.rate, inside, self.length, shared / self.length], 1)
        )
        self.walked = self._walked()

    def _walked(self) -> torch.Tensor:
        """Entered bytes, operations and their rate of the last loop before each place.

        Shape (P + 1, 3, S, n).
        """
        import torch

        own = (self.arranged.bytes * self.arranged.there).sum(0)
        nothing = torch.zeros_like(own)
        start = torch.stack([self.operators.enter(own), nothing, nothing])
        return _latest(self.entered[:, :3], self.kept.unsqueeze(1), start)

    def computation(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What ``_LOGARITHMS`` and ``_FLAGS`` name, shapes (names, S, n)."""
        import torch

        kinds, (unroll, elements, outside) = self.store[:2], self.store[2:_COUNTS]
        numbers = [elements * self.arranged.element, elements * outside, outside,
                   self.product / outside, self.product, self.kept.sum(0), unroll]  # fmt: skip
        logs = _log2(
            torch.cat(
                [
                    self.counts * self.product,
                    self.store[_LENGTHS:],
                    torch.stack(numbers),
                    self._intensity(),
                ]
            )
        )
        lengths, product = (
            logs[len(OPERATIONS) : len(OPERATIONS) + 2],
            logs[_LOGARITHMS.index("product")],
        )
        if not self.operators.exact:
            # Below 1 a count says how far there is an operation at all, on the scale of the column.
            several = torch.where(self.counts < 1, self.counts * product, logs[: len(OPERATIONS)])
            logs = torch.cat([several, logs[len(OPERATIONS) :]])
        ends = torch.stack([torch.zeros_like(unroll), torch.ones_like(unroll)])
        return logs, torch.cat([ends, kinds, 1 - kinds, kinds * lengths])

    def accesses(self) -> torch.Tensor:
        """The buffers with the most cache lines, five at most, shape (18 x buffers, S, n)."""
        import torch

        operators, size = self.operators, self.arranged.bytes
        searched, loop, serial = self._searched()
        stride, beyond, innermost, count, iterations, distance = searched
        one = torch.ones_like(stride)
        part, line = operators.extreme(
            torch.stack([one, self.contiguous]),
            torch.stack([stride * size / CACHE_LINE_BYTES, one * CACHE_LINE_BYTES]),
            -1,
        )
        lines, unique_lines = operators.extreme(
            torch.stack([one, one]),
            torch.stack([self.product / beyond * part, self.whole / line]),
            1,
        )
        reused = loop + serial
        divisor = operators.blend(reused, count, one * _NO_REUSE)
        measures = torch.stack([size * self.product, self.whole, lines, unique_lines])
        numbers = torch.stack([iterations, distance, count])
        logs = _log2(torch.cat([measures, numbers, measures / divisor, innermost.unsqueeze(0)]))
        reuse = torch.stack([loop, serial, 1 - reused])
        kinds = self.arranged.kinds.expand(-1, -1, -1, stride.shape[-1])
        return self._sorted(torch.cat([kinds, logs[:4], reuse, logs[4:]]), lines)

    def _searched(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What the walks along the loops of an access find.

        Returns:
            Smallest stride, iterations of the loops inside it, stride of the innermost loop; count
            of reuse, its distance in iterations and in bytes, shape (6, B, S, n). The stride is
            that of the innermost loop that moves the access; reuse is by the innermost loop that
            does not, or that of a buffer that several stores under one loop touch. Then how far
            reuse is by a loop, and by several stores, shape (B, S, n).
        """
        import torch

        enter, kept = self.operators.enter, self.kept.unsqueeze(1)
        _, _, _, inside, length, shared = self.entered.unsqueeze(2).unbind(1)
        moves = kept * self.used
        stays, others = kept - moves, kept * (self.arranged.touches > 1)
        until = _until(torch.stack([1 - moves, (1 - stays) * (1 - others)], 1))
        moved, still = until[:-1].unbind(1)
        moved, loop = moved * moves, still * stays
        serial = (still - loop) * others
        times = enter((self.arranged.touches - 1).clamp(min=0))
        stride, least = enter(torch.stack([self.stride, self.least / self.length.unsqueeze(1)]))
        stride = moved * stride
        inner = self.walked[:-1, :1]
        columns = [
            stride.sum(0),
            (moved * inside).sum(0) + until[-1, 0] * enter(self.product),
            (stride * self.first.unsqueeze(1)).sum(0),
            (loop * length + serial * times).sum(0),
            (loop * inside + serial * least).sum(0),
            (loop * inner + serial * shared).sum(0),
        ]
        return self.operators.leave(torch.stack(columns)), loop.sum(0), serial.sum(0)

    def _sorted(self, table: torch.Tensor, lines: torch.Tensor) -> torch.Tensor:
        """The first buffers by falling cache lines; ties are in order already.

        Args:
            table: Shape (18, B, S, n).
            lines: Shape (B, S, n).
        """
        import torch

        if not self.operators.exact:
            return torch.einsum("kbsn,wbsn->wksn", self._slots(lines), table).flatten(0, 1)
        there = self.arranged.there
        # What is not there comes last: there are no fewer than 1 cache lines.
        order = torch.sort(lines * there, dim=0, descending=True, stable=True).indices[:BUFFERS]
        table = table.gather(1, order.expand(len(table), -1, -1, -1))
        # As many slots have something as there are buffers.
        return (table * there[:BUFFERS]).flatten(0, 1)

    def _slots(self, lines: torch.Tensor) -> torch.Tensor:
        """How far each buffer is in each of the first slots, shape (slots, B, S, n)."""
        import torch

        logs, there = self.operators.log(lines), self.arranged.there
        buffers = len(logs)
        # Ties keep their order: an earlier buffer counts as a little larger.
        ranked = logs - _TIE * torch.arange(buffers, dtype=logs.dtype).view(-1, 1, 1)
        ahead = self.operators.step(ranked.unsqueeze(0) - ranked.unsqueeze(1))
        ahead = ahead * (there * (1 - torch.eye(buffers, dtype=logs.dtype)[..., None, None]))
        # The number of buffers ahead is a sum of independent yes and no.
        slots = logs.new_zeros(min(buffers, BUFFERS), *logs.shape)
        slots[0] = 1
        for p in ahead.unbind(1):
            shifted = torch.cat([torch.zeros_like(slots[:1]), slots[:-1]])
            slots = torch.lerp(slots, shifted, p)
        slots = slots * there
        empty = 1 - there[: len(slots)].unsqueeze(1)
        return slots / (slots.sum(1, keepdim=True) + empty)

    def _intensity(self) -> torch.Tensor:
        """Operations per byte at equal steps of the operations, shape (points, S, n)."""
        import torch

        enter, leave = self.operators.enter, self.operators.leave
        steps = torch.arange(1, CURVE_POINTS + 1, dtype=self.ops.dtype) / CURVE_POINTS
        wanted = self.operations * self.product * steps.view(-1, 1, 1)
        ops_before, rate_before = leave(self.walked[:-1, 1:]).unbind(1)
        # Smooth: a loop of one iteration has no slope.
        rise, flat = self.ops - ops_before, self.operators.temperature * self.ops
        slope = (self.rate - rate_before) * rise / (rise * rise + flat * flat).clamp(min=_FLAT)
        if self.operators.exact:
            return self._where_reached(wanted, ops_before, rate_before, slope)
        further = wanted - ops_before.unsqueeze(1)
        line = (rate_before.unsqueeze(1) + slope.unsqueeze(1) * further).clamp(min=0)
        # Divisors of the whole are never within one percent below its tenths.
        apart = self.operators.log(self.ops).unsqueeze(1) - self.operators.log(wanted * 0.99)
        fits = self.kept.unsqueeze(1) * self.operators.step(apart)
        until = _until(1 - fits)
        here = torch.lerp(enter(line), self.entered[:, 2:3], self.first.unsqueeze(1))
        return leave((until[:-1] * fits * here).sum(0) + until[-1] * self.walked[-1, 2])

    def _where_reached(
        self,
        wanted: torch.Tensor,
        ops_before: torch.Tensor,
        rate_before: torch.Tensor,
        slope: torch.Tensor,
    ) -> torch.Tensor:
        """Exact intensity: for each point of the curve one place counts.

        Args:
            wanted: Operations of each point, shape (points, S, n).
            ops_before, rate_before, slope: Of the line at each place, shape (P, S, n).
        """
        import torch

        fits = (self.ops.unsqueeze(1) >= wanted - 1e-4) & (self.kept > 0).unsqueeze(1)
        # The first of the places that fit, by the largest of falling numbers: bytes are fast.
        numbers = torch.arange(len(fits), 0, -1, dtype=torch.uint8).view(-1, 1, 1, 1)
        place = len(fits) - (fits * numbers).amax(0).to(torch.int64)
        innermost, end = self.first > 0, self.walked[-1, 2:]
        rates = torch.cat([torch.where(innermost, self.rate, rate_before), end])
        slopes = torch.cat([slope.masked_fill(innermost, 0.0), torch.zeros_like(end)])
        further = wanted - torch.cat([ops_before, end]).gather(0, place)
        return (rates.gather(0, place) + slopes.gather(0, place) * further).clamp(min=0)
