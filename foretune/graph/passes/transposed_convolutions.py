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

Where the stride does not divide the kernel, some phases have a tap less than others: with a kernel
of 3 and stride 2 one and two, in two dimensions 9 products in place of 16 for four outputs. Phases
of equal taps are a program each then, and one more puts their results together, where that costs
less than the taps that are zeros.

What has one place only, as the first layer of a generator, is a product: every output has one tap::

    conv_transpose(x[n, i], w[i, o, h, w])  →  x[n, i] @ w[i, (h, w, o)], viewed as [n, h, w, o]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
_MOVED = 6
"""What it costs to put one number together with others, in products.

With a kernel of 3 and stride 2 parts take 0.83 of the time with 4 channels, and 0.6 to 0.75 with 32
or more (two cores of a Zen 4).
"""


@dataclass(frozen=True)
class Phases:
    """Some phases of one spatial axis of a transposed convolution, one behind the other.

    Attributes:
        stride: Phases there are, and outputs from one input to the next.
        kernel: Elements of the kernel.
        front: What is cut from the front of the full result.
        inputs: Extent of the input.
        outputs: Extent of the result.
        first: Of these phases.
        number: Of these phases; all from the first one if 0.
    """

    stride: int
    kernel: int
    front: int
    inputs: int
    outputs: int
    first: int = 0
    number: int = 0

    @property
    def count(self) -> int:
        """How many phases these are."""
        return self.number or self.stride - self.first

    @property
    def places(self) -> int:
        """Results of each phase; the last of some phases may lie behind the end."""
        return -(-self.outputs // self.stride)

    @property
    def taps(self) -> int:
        """Elements of the kernel that a phase reads, of the phase that reads most."""
        return max(self.taps_of(self.first + at) for at in range(self.count))

    def taps_of(self, phase: int) -> int:
        """Elements of the kernel that a phase reads."""
        return max(0, -(-(self.kernel - (phase + self.front) % self.stride) // self.stride))

    def runs(self) -> list[Phases]:
        """The same in runs of phases that read equally many."""
        phases = range(self.first, self.first + self.count)
        runs = (list(run) for _, run in itertools.groupby(phases, self.taps_of))
        return [replace(self, first=run[0], number=len(run)) for run in runs]

    def element(self, at: Any, tap: Any) -> Any:
        """Which element of the kernel a tap of the phase at a place in these is; beyond the kernel
        for none."""
        return (self.first + at + self.front) % self.stride + self.stride * tap

    def source(self, place: Any, at: Any, tap: Any) -> Any:
        """Which input it is multiplied with; beyond either end for zeros."""
        return place + (self.first + at + self.front) // self.stride - tap

    @property
    def before(self) -> int:
        """Zeros that are read in front of the input."""
        return max(0, -int(self.source(0, 0, self.taps - 1)))

    @property
    def after(self) -> int:
        """Zeros that are read behind it."""
        return max(0, int(self.source(self.places - 1, self.count - 1, 0)) - self.inputs + 1)


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
            if _has_one_place(call, rank):
                return self._product(call, rank)
            if not any(int(s) > 1 for s in call.attrs.strides):
                return call
            return self._split(call, rank, _phases(call, rank))

        def _split(self, call: Any, rank: int, phases: Sequence[Phases]) -> Any:
            emit, op = self.builder_.emit, relax.op
            channels = extents(call)[1]
            moved = emit(op.permute_dims(call.args[0], [0, *range(2, rank + 2), 1]))
            parts = parts_of(phases, math.prod(extents(call.args[1])[:2]) / channels)
            results = [self._part(call, moved, part) for part in parts]
            result = results[0]
            if len(parts) > 1:
                result = self.builder_.emit_te(
                    lambda *tensors: _together(tensors, parts),
                    *results,
                    primfunc_name_hint="interleave",
                )
            whole = [p.places * p.stride for p in phases]
            result = emit(op.reshape(result, [extents(call)[0], *whole, channels]))
            wanted = [p.outputs for p in phases]
            if whole != wanted:
                axes = list(range(1, rank + 1))
                result = emit(op.strided_slice(result, axes, [0] * rank, wanted))
            return op.permute_dims(result, [0, rank + 1, *range(1, rank + 1)])

        def _product(self, call: Any, rank: int) -> Any:
            emit, op = self.builder_.emit, relax.op
            (batch, inputs), (data, weight) = extents(call.args[0])[:2], call.args
            outputs = extents(call)
            front = [int(p) for p in call.attrs.padding][:rank]
            axes = list(range(2, rank + 2))
            ends = [a + b for a, b in zip(front, outputs[2:], strict=True)]
            order, flat = [0, *axes, 1], [inputs, math.prod(outputs[1:])]
            if is_constant(weight):
                kept = (slice(None), slice(None), *map(slice, front, ends))
                columns = constant(weight.value.numpy()[kept].transpose(order).reshape(flat))
            else:
                cut = emit(op.strided_slice(weight, axes, front, ends))
                columns = emit(op.reshape(emit(op.permute_dims(cut, order)), flat))
            rows = emit(op.reshape(data, [batch, inputs]))
            result = op.matmul(rows, columns, out_dtype=str(call.ty.dtype))
            shape = [batch, *outputs[2:], outputs[1]]
            viewed = emit(op.reshape(emit(result), shape))
            return op.permute_dims(viewed, [0, rank + 1, *range(1, rank + 1)])

        def _part(self, call: Any, data: Any, phases: Sequence[Phases]) -> Any:
            """Some phases: ``batch, place, phase, ..., channels``."""
            batch, channels, dtype = extents(call)[0], extents(call)[1], str(call.ty.dtype)
            sizes = [size for p in phases for size in (p.places, p.count)]
            shape = [batch, *sizes, channels]
            if not all(p.taps for p in phases):
                return constant(np.zeros(shape, dtype))
            rank, groups = len(phases), int(call.attrs.groups)
            packed = self._packed(call.args[1], phases, groups)
            result = self.builder_.emit_te(
                lambda x, w: _convolution(x, w, channels, groups, phases, dtype),
                data,
                packed,
                primfunc_name_hint=f"conv{rank}d_transpose",
            )
            return self.builder_.emit(relax.op.reshape(result, shape))

        def _packed(self, weight: Any, phases: Sequence[Phases], groups: int) -> Any:
            if is_constant(weight):
                values = pack(weight.value.numpy(), phases, groups)
                columns = int(values.shape[-1])
                lanes = lanes_of(weight, hardware, columns) if groups == 1 else 0
                return constant(panels(values, lanes) if lanes else values)
            return self.builder_.emit_te(
                lambda w: _pack(w, phases, groups), weight, primfunc_name_hint="pack_kernel"
            )

    return Splitter()


def parts_of(phases: Sequence[Phases], inputs: float) -> list[tuple[Phases, ...]]:
    """What is computed by a program each: all phases, or those of equal taps.

    Args:
        phases: Of each spatial axis, all of them.
        inputs: Products of one tap of an output: input channels of its group.
    """
    runs = list(itertools.product(*(p.runs() for p in phases)))
    products = sum(math.prod(p.count * p.taps for p in run) for run in runs)
    filled = math.prod(p.stride * p.taps for p in phases)
    moved = _MOVED * math.prod(p.stride for p in phases)
    return runs if inputs * (filled - products) > moved else [tuple(phases)]


def _fits(call: Any, rank: int) -> bool:
    """Whether it is one that this pass knows, in the layout that importers give."""
    attrs = call.attrs
    layouts = f"NC{_AXES[rank]}", f"IO{_AXES[rank]}"
    return (
        (str(attrs.data_layout), str(attrs.kernel_layout)) == layouts
        and str(attrs.out_layout or layouts[0]) == layouts[0]
        and all(int(d) == 1 for d in attrs.dilation)
        and all(isinstance(e, int) for part in (*call.args, call) for e in extents(part))
        and min(extents(call)) > 0
    )


def _has_one_place(call: Any, rank: int) -> bool:
    """Whether the input has one place, and no output lies beyond the kernel."""
    kernel, outputs = extents(call.args[1])[2:], extents(call)[2:]
    front = [int(p) for p in call.attrs.padding][:rank]
    return (
        int(call.attrs.groups) == 1
        and all(extent == 1 for extent in extents(call.args[0])[2:])
        and all(f + o <= k for f, o, k in zip(front, outputs, kernel, strict=True))
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


def pack(kernel: Any, phases: Sequence[Phases], groups: int = 1) -> Any:
    """A kernel as its phases read it, in NumPy.

    Args:
        kernel: Input channels, output channels of a group, and the spatial axes.
        phases: Of the spatial axes.
        groups: Of channels.

    Returns:
        The phases of the spatial axes, then their taps, input channels of a group and output
        channels; zeros where a phase has fewer taps than others.
    """
    kernel = kernel.reshape(groups, -1, *kernel.shape[1:]).swapaxes(0, 1)
    kernel = kernel.reshape(kernel.shape[0], -1, *kernel.shape[3:])
    places = [
        np.array([[p.element(at, tap) for tap in range(p.taps)] for at in range(p.count)])
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


def _pack(kernel: Any, phases: Sequence[Phases], groups: int) -> Any:
    """``pack`` in TE, for a kernel that is known at run time only."""
    from foretune import _tvm

    tirx, te = _tvm.tvm.tirx, _tvm.tvm.te
    rank = len(phases)
    inputs, outputs = int(kernel.shape[0]) // groups, int(kernel.shape[1])
    shape = [p.count for p in phases] + [p.taps for p in phases]

    def element(*at: Any) -> Any:
        pairs = zip(phases, at[:rank], at[rank : 2 * rank], strict=True)
        places = [p.element(phase, tap) for p, phase, tap in pairs]
        inside = tirx.all(*(at < p.kernel for p, at in zip(phases, places, strict=True)))
        zero = tirx.const(0, kernel.dtype)
        channel, output = at[2 * rank :]
        own = (output // outputs * inputs + channel, output % outputs)
        return tirx.if_then_else(inside, kernel(*own, *places), zero)

    return te.compute([*shape, inputs, groups * outputs], element, name="pack_kernel")


def _together(tensors: Sequence[Any], parts: Sequence[Sequence[Phases]]) -> Any:
    """Results of all parts as that of all phases: ``batch, place, phase, ..., channels``."""
    from foretune import _tvm

    tirx, te = _tvm.tvm.tirx, _tvm.tvm.te
    batch, *_, channels = tensors[0].shape
    shape = [size for p in parts[0] for size in (p.places, p.stride)]

    def element(n: Any, *at: Any) -> Any:
        (*spatial, channel), value = at, None
        for tensor, part in zip(tensors, parts, strict=True):
            own, inside = list(spatial), []
            for axis, p in enumerate(part):
                own[2 * axis + 1] = spatial[2 * axis + 1] - p.first
                inside += [own[2 * axis + 1] >= 0, own[2 * axis + 1] < p.count]
            mine = tensor(n, *own, channel)
            value = mine if value is None else tirx.if_then_else(tirx.all(*inside), mine, value)
        return value

    return te.compute([batch, *shape, channels], element, name="interleave")


def _convolution(
    data: Any, kernel: Any, channels: int, groups: int, phases: Sequence[Phases], dtype: str
) -> Any:
    """These phases at once: ``batch, place, phase, ..., channels``.

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
    inputs = te.reduce_axis((0, kernel.shape[-2]), name="ic")

    def element(batch: Any, *at: Any) -> Any:
        (*panel, channel), spatial = at[2 * rank :], at[: 2 * rank]
        places = list(zip(spatial[::2], spatial[1::2], strict=True))
        sources = [
            p.source(place, phase, tap) + p.before
            for p, (place, phase), tap in zip(phases, places, taps, strict=True)
        ]
        weight = kernel(*panel, *(phase for _, phase in places), *taps, inputs, channel)
        group = channel // (channels // groups) * kernel.shape[-2] if groups > 1 else 0
        value = data(batch, *sources, group + inputs)
        product = value.astype(dtype) * weight.astype(dtype)
        return te.sum(product, axis=[*taps, inputs])

    shape = [data.shape[0]]
    for p in phases:
        shape += [p.places, p.count]
    count = list(kernel.shape[: len(kernel.shape) - 2 * rank - 2])
    sums = te.compute([*shape, *count, kernel.shape[-1]], element, name=f"conv{rank}d_transpose")
    return cut(sums, channels) if count else sums
