"""Transposed convolutions by phases: no multiplication by an inserted zero.

TVM inserts ``stride - 1`` zeros between the elements of the input and convolves what results:
``stride`` times the work for each axis. But outputs whose places have the same remainder, a phase,
read the same part of the kernel, and each phase is an ordinary convolution. Before → after, along
one axis with stride 2, a kernel of 4 and 1 cut off either end::

    y[2 m]      =  x[m] w[1] + x[m - 1] w[3]
    y[2 m + 1]  =  x[m + 1] w[0] + x[m] w[2]

All phases are one tensor program: channels innermost, the phase beside the place of its axis
(``batch, H, phase of H, W, phase of W, channels``), which in memory is the result. Constant
kernels lie in panels (``packed_weights``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.graph.passes.packed_weights import lanes_of
from foretune.graph.passes.rewrites import cleaned, constant, extents, is_constant
from foretune.operators.panels import cut, panels

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

_RANKS = {f"relax.nn.conv{rank}d_transpose": rank for rank in (1, 2, 3)}
_AXES = {1: "W", 2: "HW", 3: "DHW"}


@dataclass(frozen=True)
class Phases:
    """One spatial axis of a transposed convolution.

    Attributes:
        stride: Phases, and outputs from one input to the next.
        kernel: Elements of the kernel.
        front: What is cut from the front of the full result.
        inputs: Extent of the input.
        outputs: Extent of the result.
    """

    stride: int
    kernel: int
    front: int
    inputs: int
    outputs: int

    @property
    def places(self) -> int:
        """Results of each phase; the last of some phases may lie behind the end."""
        return -(-self.outputs // self.stride)

    @property
    def taps(self) -> int:
        """Elements of the kernel that a phase reads, of the phase that reads most."""
        return -(-self.kernel // self.stride)

    def element(self, phase: Any, tap: Any) -> Any:
        """Which element of the kernel a tap of a phase is; beyond the kernel for none."""
        return (phase + self.front) % self.stride + self.stride * tap

    def source(self, place: Any, phase: Any, tap: Any) -> Any:
        """Which input it is multiplied with; beyond either end for zeros."""
        return place + (phase + self.front) // self.stride - tap

    @property
    def before(self) -> int:
        """Zeros that are read in front of the input."""
        return max(0, -int(self.source(0, 0, self.taps - 1)))

    @property
    def after(self) -> int:
        """Zeros that are read behind it."""
        return max(0, int(self.source(self.places - 1, self.stride - 1, 0)) - self.inputs + 1)


def split_phases(module: IRModule, hardware: Hardware) -> IRModule:
    """Every transposed convolution of ``main`` by phases, where it has any to gain from."""
    mutator = _mutator(hardware)
    main = mutator.visit_expr(module["main"])
    return cleaned(module, main, mutator)


def _mutator(hardware: Hardware) -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Splitter(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            rank = _RANKS.get(getattr(call.op, "name", ""))
            if rank is None or not _fits(call, rank):
                return call
            return self._split(call, rank, _phases(call, rank))

        def _split(self, call: Any, rank: int, phases: Sequence[Phases]) -> Any:
            emit, op = self.builder_.emit, relax.op
            data, weight = call.args
            batch, channels = extents(data)[0], extents(call)[1]
            last = [0, *range(2, rank + 2), 1]
            moved = emit(op.permute_dims(data, last))
            packed = self._packed(weight, phases)
            dtype = str(call.ty.dtype)
            result = self.builder_.emit_te(
                lambda x, w: _convolution(x, w, channels, phases, dtype),
                moved,
                packed,
                primfunc_name_hint=f"conv{rank}d_transpose",
            )
            whole = [p.places * p.stride for p in phases]
            result = emit(op.reshape(result, [batch, *whole, channels]))
            wanted = [p.outputs for p in phases]
            if whole != wanted:
                axes = list(range(1, rank + 1))
                result = emit(op.strided_slice(result, axes, [0] * rank, wanted))
            return op.permute_dims(result, [0, rank + 1, *range(1, rank + 1)])

        def _packed(self, weight: Any, phases: Sequence[Phases]) -> Any:
            if is_constant(weight):
                values, lanes = pack(weight.value.numpy(), phases), lanes_of(weight, hardware)
                return constant(panels(values, lanes) if lanes else values)
            return self.builder_.emit_te(
                lambda w: _pack(w, phases), weight, primfunc_name_hint="pack_kernel"
            )

    return Splitter()


def _fits(call: Any, rank: int) -> bool:
    """Whether it is one that has phases, in the layout that importers give."""
    attrs = call.attrs
    layouts = f"NC{_AXES[rank]}", f"IO{_AXES[rank]}"
    return (
        (str(attrs.data_layout), str(attrs.kernel_layout)) == layouts
        and str(attrs.out_layout or layouts[0]) == layouts[0]
        and int(attrs.groups) == 1
        and all(int(d) == 1 for d in attrs.dilation)
        and any(int(s) > 1 for s in attrs.strides)
        and all(isinstance(e, int) for part in (*call.args, call) for e in extents(part))
        and min(extents(call)) > 0
    )


def _phases(call: Any, rank: int) -> list[Phases]:
    attrs = call.attrs
    of_axis = zip(
        attrs.strides,
        extents(call.args[1])[2:],
        list(attrs.padding)[:rank],
        extents(call.args[0])[2:],
        extents(call)[2:],
        strict=True,
    )
    return [Phases(*(int(number) for number in axis)) for axis in of_axis]


def pack(kernel: Any, phases: Sequence[Phases]) -> Any:
    """A kernel as its phases read it, in NumPy.

    Args:
        kernel: Input channels, output channels, and the spatial axes.
        phases: Of the spatial axes.

    Returns:
        The phases of the spatial axes, then their taps, input and output channels; zeros where a
        phase has fewer taps than others.
    """
    places = [
        np.array([[p.element(phase, tap) for tap in range(p.taps)] for phase in range(p.stride)])
        for p in phases
    ]
    widths = [(0, int(at.max()) + 1 - p.kernel) for at, p in zip(places, phases, strict=True)]
    padded = np.pad(kernel, [(0, 0), (0, 0), *((0, max(0, end)) for _, end in widths)])
    rank = len(phases)
    for axis, at in enumerate(places):
        # Each axis becomes two: phase and tap.
        padded = np.take(padded, at, axis=2 + 2 * axis)
    order = [2 + 2 * axis for axis in range(rank)] + [3 + 2 * axis for axis in range(rank)]
    return np.ascontiguousarray(padded.transpose([*order, 0, 1]))


def _pack(kernel: Any, phases: Sequence[Phases]) -> Any:
    """``pack`` in TE, for a kernel that is known at run time only."""
    from foretune import _tvm

    tirx, te = _tvm.tvm.tirx, _tvm.tvm.te
    rank = len(phases)
    shape = [p.stride for p in phases] + [p.taps for p in phases]

    def element(*at: Any) -> Any:
        pairs = zip(phases, at[:rank], at[rank : 2 * rank], strict=True)
        places = [p.element(phase, tap) for p, phase, tap in pairs]
        inside = tirx.all(*(at < p.kernel for p, at in zip(phases, places, strict=True)))
        zero = tirx.const(0, kernel.dtype)
        return tirx.if_then_else(inside, kernel(*at[2 * rank :], *places), zero)

    return te.compute([*shape, *kernel.shape[:2]], element, name="pack_kernel")


def _convolution(
    data: Any, kernel: Any, channels: int, phases: Sequence[Phases], dtype: str
) -> Any:
    """All phases at once: ``batch, place, phase, ..., channels``.

    A kernel in panels has them in front, and their lanes in place of its output channels, which
    are also the last two axes of the result then (``panels.cut``).
    """
    from foretune import _tvm

    te, topi = _tvm.tvm.te, _tvm.tvm.topi
    rank = len(phases)
    before, after = ([getattr(p, end) for p in phases] for end in ("before", "after"))
    if any([*before, *after]):
        data = topi.nn.pad(data, [0, *before, 0], [0, *after, 0], name="pad_temp")
    taps = [te.reduce_axis((0, p.taps), name=f"k{axis}") for axis, p in enumerate(phases)]
    inputs = te.reduce_axis((0, data.shape[-1]), name="ic")

    def element(batch: Any, *at: Any) -> Any:
        (*panel, channel), spatial = at[2 * rank :], at[: 2 * rank]
        places = list(zip(spatial[::2], spatial[1::2], strict=True))
        sources = [
            p.source(place, phase, tap) + p.before
            for p, (place, phase), tap in zip(phases, places, taps, strict=True)
        ]
        weight = kernel(*panel, *(phase for _, phase in places), *taps, inputs, channel)
        value = data(batch, *sources, inputs)
        product = value.astype(dtype) * weight.astype(dtype)
        return te.sum(product, axis=[*taps, inputs])

    shape = [data.shape[0]]
    for p in phases:
        shape += [p.places, p.stride]
    count = list(kernel.shape[: len(kernel.shape) - 2 * rank - 2])
    sums = te.compute([*shape, *count, kernel.shape[-1]], element, name=f"conv{rank}d_transpose")
    return cut(sums, channels) if count else sums
