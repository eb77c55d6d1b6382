"""From an imported network to fused tensor programs.

The idea: everything that inference does not need, or that can be computed at compile time, goes
before tasks are cut, because a task that does not exist needs no trials. In order:

1. *Rewrites on operators* (``_rewrite``): batch norms behind a convolution into its weights, zero
   padding into the convolution, minimum of maximum into ``clip``, no-op pads away. Constants are
   folded in NumPy here, because TVM's folding compiles a kernel for each of them.
2. *Layouts*: convolutions to NHWC with HWIO weights on a CPU, where the innermost axis of output
   and weights is then the output channel: one contiguous vector load per multiply-add, for
   depthwise convolutions too, and no packing of the input.
3. *Transpose sinking* (``_transpose``): operators whose layout TVM cannot infer (``clip``, ``pad``,
   ...) leave a transpose on either side; those move down and cancel.
4. *Reshape sinking* (``_reshape``): likewise below element-wise operators, so that those fuse.
5. *Fusion*: TVM's legalisation, pattern annotation and fusion into one PrimFunc per kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretune.graph._reshape import sink_reshapes
from foretune.graph._rewrite import rewrite_operators
from foretune.graph._transpose import sink_transposes

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware
    from foretune.workload import Model

_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"]}


def simplify(model: Model, hardware: Hardware) -> IRModule:
    """The fused program of a model: ``main`` calls one PrimFunc per kernel.

    Args:
        model: Its module is left as it is.
        hardware: Fixes the layout and the target that operators are legalised for.
    """
    from foretune import _tvm

    tvm, transform = _tvm.tvm, _tvm.tvm.relax.transform
    before = [
        transform.Normalize(),
        transform.CanonicalizeBindings(),
        transform.DecomposeOpsForInference("main"),
        transform.FoldConstant(),
        transform.DeadCodeElimination(["main"]),
    ]
    layout = [
        transform.ConvertLayout(_LAYOUTS),
        transform.Normalize(),
        transform.CanonicalizeBindings(),
    ]
    fusion = [
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(["main"]),
    ]
    with hardware.tvm_target():
        module = rewrite_operators(model.module)
        module = tvm.transform.Sequential(before)(module)
        module = rewrite_operators(module)
        module = tvm.transform.Sequential(layout)(module)
        module = rewrite_operators(sink_transposes(module))
        module = rewrite_operators(sink_reshapes(module))
        module = tvm.transform.Sequential(fusion)(module)
    return module
