"""How each convolution is computed: directly, or by Winograd's minimal filtering.

A convolution with a kernel of 3 x 3 (or of any depth times 3 x 3), stride 1 and constant weights
has three algorithms; see ``foretune.operators.winograd``. Before → after::

    conv(x, W)  →  output_tiles(products(input_tiles(x), U)), with U computed from W here

Which one is taken is a decision per operator: what a plan says, or what ``costs`` expects to be
fastest. ``winograd4`` is only a choice where its rounding error was seen to stay below 5e-6 of the
largest output (``docs/results/earlier.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.graph.passes.rewrites import cleaned, constant, extents, is_constant
from foretune.operators import winograd

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.graph.passes._decisions import Decisions
    from foretune.hardware import Hardware

DIRECT = "direct"
WINOGRAD = {"winograd2": 2, "winograd4": 4}
"""The other algorithms, with the outputs of a tile in one direction."""
LAST_STEP = "winograd_output"
"""Name of the program of the last step, which what follows joins."""

_LAYOUTS = {
    "relax.nn.conv2d": ("NHWC", "HWIO"),
    "relax.nn.conv3d": ("NDHWC", "DHWIO"),
}
_MOST_TERMS = 512
"""Products in one sum of ``winograd4``: with more its rounding error may pass 5e-6."""

_PRODUCT, _MOVED, _STREAMED = 1.25, 17, 10
"""Costs of a multiplication in the product, of a number of an intermediate result, and of one of
the weights, in multiplications of a direct kernel; see ``costs``.

Fitted to eight layers on two cores of a Zen 4 (``docs/results/earlier.md``): in each of them what
costs least was fastest.
"""
_VECTOR = 16

_EWISE_FUSABLE, _OPAQUE = 4, 8  # TVM's OpPatternKind


def choose_algorithms(module: IRModule, hardware: Hardware, decisions: Decisions) -> IRModule:
    """Decides for every convolution of ``main`` that has a choice, and rewrites it."""
    mutator = _mutator(hardware.simd_bits, decisions)
    main = mutator.visit_expr(module["main"])
    return cleaned(module, main, mutator)


@dataclass(frozen=True)
class Convolution:
    """The extents of a convolution with a kernel of depth x 3 x 3 and stride 1.

    Attributes:
        planes: Of the result: batch times depth.
        read: Planes of the input, padding included.
        depth: Of the kernel.
        plane: Height and width of the result.
        inputs, outputs: Channels.
    """

    planes: int
    read: int
    depth: int
    plane: tuple[int, int]
    inputs: int
    outputs: int


def costs(shape: Convolution) -> dict[str, float]:
    """What each algorithm costs, in multiplications with addition of a good direct kernel.

    The product, which reads what was just written, is slower by ``_PRODUCT``; a number that is
    written by one step and read by the next costs ``_MOVED``. One of the weights costs
    ``_STREAMED``, while sums are computed: what takes longer of the two counts.
    """
    taps = winograd.TAPS**2
    weights = shape.depth * shape.inputs * shape.outputs
    places = shape.planes * math.prod(shape.plane)
    costs_of = {DIRECT: float(max(places * taps * weights, _STREAMED * taps * weights))}
    for name, outputs in WINOGRAD.items():
        if outputs > 2 and shape.depth * shape.inputs > _MOST_TERMS:
            continue
        tiles = math.prod(-(-extent // outputs) for extent in shape.plane)
        size = (outputs + winograd.TAPS - 1) ** 2
        work = size * weights * max(_PRODUCT * shape.planes * tiles, _STREAMED)
        moved = shape.read * _padded(shape.inputs) + shape.planes * _padded(shape.outputs)
        costs_of[name] = float(work + _MOVED * size * tiles * moved)
    return costs_of


def _padded(channels: int) -> int:
    """Channels, as if each vector of one that does not fill it were full."""
    return channels * _VECTOR // math.gcd(channels, _VECTOR)


def _mutator(bits: int, decisions: Decisions) -> Any:
    from foretune import _tvm

    relax = _tvm.tvm.relax
    lanes = max(bits // 32, 1)

    @relax.expr_functor.mutator
    class Chooser(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        """Visits bindings in order; operands are already rewritten."""

        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if not _has_choice(call):
                return call
            priced = costs(_shape(call))
            choice = decisions.take(call, list(priced), min(priced, key=lambda each: priced[each]))
            return call if choice == DIRECT else self._filtered(call, WINOGRAD[choice])

        def _filtered(self, call: Any, outputs: int) -> Any:
            data, weight = call.args
            padding = [int(p) for p in call.attrs.padding]
            channels = extents(weight)[-1]
            width = math.gcd(channels, lanes)
            turned = decisions.made(
                weight,
                ("winograd", outputs, width),
                lambda: constant(winograd.transformed(weight.value.numpy(), outputs, width)),
            )
            tiled = self._step(
                _OPAQUE, "winograd_input", winograd.input_tiles, data, padding, outputs
            )
            multiplied = self._step(
                _EWISE_FUSABLE, "winograd_products", winograd.products, tiled, turned
            )
            plane = extents(call)[-3:-1]
            result = self._step(_EWISE_FUSABLE, LAST_STEP, winograd.output_tiles, multiplied, plane)
            return relax.op.reshape(result, call.ty.shape)

        def _step(self, pattern: int, name: str, make: Any, *args: Any) -> Any:
            """The call of a tensor expression, which fuses with what its pattern allows."""
            call = self.builder_.call_te(make, *args, primfunc_name_hint=name)
            function = self.builder_.get()[call.args[0]].with_attr("op_pattern", pattern)
            # The builder finds the function again where layers are equal.
            variable = self.builder_.add_func(function, name)
            operands = [variable, *call.args[1:]]
            return self.builder_.emit(relax.Call(call.op, operands, call.attrs, call.ty_args))

    return Chooser()


def _has_choice(call: Any) -> bool:
    """Whether a call is a convolution that Winograd's filtering can compute."""
    layouts = _LAYOUTS.get(str(getattr(call.op, "name", "")))
    if layouts is None or not is_constant(call.args[1]) or 0 in extents(call):
        return False
    attrs = call.attrs
    return (
        {str(part.ty.dtype) for part in (*call.args, call)} == {"float32"}
        and (str(attrs.data_layout), str(attrs.kernel_layout)) == layouts
        and str(attrs.out_layout or layouts[0]) == layouts[0]
        and int(attrs.groups) == 1
        and all(int(n) == 1 for n in (*attrs.strides, *attrs.dilation))
        and extents(call.args[1])[-4:-2] == [winograd.TAPS] * 2
    )


def _shape(call: Any) -> Convolution:
    weight, result = extents(call.args[1]), extents(call)
    depth = weight[0] if len(weight) == 5 else 1
    planes = math.prod(result[:-3])
    read = result[0] * (result[1] + depth - 1) if len(weight) == 5 else planes
    return Convolution(planes, read, depth, (result[-3], result[-2]), *weight[-2:])
