"""From an imported network to fused tensor programs.

The idea: everything that inference does not need, or that can be computed at compile time, goes
before tasks are cut, because a task that does not exist needs no trials. In order:

0. *Integers* (``_quantized``): convolutions and products of quantised tensors, on the processor's
   instructions for bytes.
1. *Rewrites on operators* (``_rewrite``): batch norms behind a convolution into its weights, zero
   padding into the convolution, minimum of maximum into ``clip``, no-op pads away. Constants are
   folded in NumPy here, because TVM's folding compiles a kernel for each of them.
   Sums of half-precision values are accumulated in float32 (``_element_types``).
2. *Layouts* (``_layout``): on a CPU, convolutions to NHWC with HWIO weights, where the innermost
   axis of output and weights is then the output channel: one contiguous vector load per
   multiply-add, for depthwise convolutions too, and no packing of the input. A GPU keeps layouts.
3. *Transpose sinking* (``_transpose``): the transposes around them move down and cancel.
4. *Reshape sinking* (``_reshape``): likewise below element-wise operators, so that those fuse.
5. *Lowering and fusion*: TVM's legalisation, pattern annotation and fusion into one PrimFunc per
   kernel.

Each step runs under a guard (``_passes``): one that fails on a network is left out for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.graph._element_types import legal_types
from foretune.graph._layout import assign_layouts
from foretune.graph._lowering import lower
from foretune.graph._passes import Passes
from foretune.graph._quantized import integer_products
from foretune.graph._reshape import sink_reshapes
from foretune.graph._rewrite import rewrite_operators
from foretune.graph._transpose import sink_transposes

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware
    from foretune.workload import Model


@dataclass(frozen=True)
class Simplified:
    """A fused program and how it came about.

    Attributes:
        program: Its ``main`` calls one PrimFunc per kernel.
        passes: Names of the passes that ran, in order.
        left_out: Names of those that failed on this network and were left out.
    """

    program: IRModule
    passes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def simplify(model: Model, hardware: Hardware, without: Collection[str] = ()) -> Simplified:
    """The fused program of a model.

    Args:
        model: Its module is left as it is.
        hardware: Fixes the layout and the target that operators are legalised for.
        without: Names of passes that do not run: to find the one that is wrong.

    Raises:
        UnsupportedOperatorsError: Nothing can lower some of its operators.
    """
    from foretune import _tvm

    transform, passes = _tvm.tvm.relax.transform, Passes(model.name, without)
    with hardware.tvm_target():
        module = passes.run(
            "normal form",
            model.module,
            transform.Normalize(),
            transform.CanonicalizeBindings(),
        )
        module = passes.run("integers", module, lambda m: integer_products(m, hardware))
        module = passes.run("rewrites", module, rewrite_operators)
        module = passes.run("element types", module, legal_types)
        module = passes.run(
            "operators of inference", module, transform.DecomposeOpsForInference("main")
        )
        module = passes.run("constants", module, transform.FoldConstant())
        module = passes.run("dead code", module, transform.DeadCodeElimination(["main"]))
        module = passes.run("rewrites", module, rewrite_operators)
        if hardware.kind == "llvm":
            module = passes.run("layouts", module, assign_layouts, sink_transposes)
        else:
            module = passes.run("transposes", module, sink_transposes)
        module = passes.run("equal operators", module, transform.EliminateCommonSubexpr())
        module = passes.run("rewrites", module, rewrite_operators)
        module = passes.run("reshapes", module, sink_reshapes)
        module = passes.run("rewrites", module, rewrite_operators)
        module = lower(module, model.name)
        module = passes.run("patterns", module, transform.AnnotateTIROpPattern())
        module = passes.run("constants", module, transform.FoldConstant())
        module = passes.run("fusion", module, transform.FuseOps(), transform.FuseTIR())
        module = passes.run("dead code", module, transform.DeadCodeElimination(["main"]))
    return Simplified(module, tuple(passes.ran), tuple(passes.left_out))
