"""Relax modules of a few operators, and what they compute as they are."""

from __future__ import annotations

import numpy as np

from foretune import _tvm
from foretune.graph._lowering import dispatched, lower

relax = _tvm.tvm.relax


def module_of(make, *arrays):
    """A module whose ``main`` returns ``make`` of inputs like these arrays."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{i}", relax.TensorType(np.shape(a), str(np.asarray(a).dtype)))
        for i, a in enumerate(arrays)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            made = make(*inputs)
            parts = made if isinstance(made, tuple) else (made,)
            result = builder.emit_output(relax.Tuple([builder.emit(part) for part in parts]))
        builder.emit_func_output(result)
    return builder.get()


def constant(values):
    """A Relax constant of the element type that the array has."""
    values = np.asarray(values)
    return relax.const(values, str(values.dtype))


def run(module, *arrays):
    """What ``main`` computes, by TVM's own lowering, without a pass of ours.

    LLVM optimises nothing: that takes longer than the program.
    """
    tvm = _tvm.tvm
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    with target:
        executable = tvm.compile(dispatched(lower(module, "a program")), target)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    outputs = machine["main"](*[tvm.runtime.tensor(np.array(a, order="C")) for a in arrays])
    return [t.numpy() for t in ([outputs] if hasattr(outputs, "numpy") else outputs)]
