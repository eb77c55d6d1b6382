"""The kernels of a network as one CUDA graph, which is launched by one call.

TVM's virtual machine launches one kernel after the other, some microseconds each: on a large GPU
that is longer than most kernels of a network of batch 1 take. A graph is captured in the first call
of a machine and replayed in later ones. Captured is what only touches memory that was planned
statically and parameters, whose addresses stay; what reads an input or writes an output does not.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.errors import last_line

if TYPE_CHECKING:
    from foretune._tvm import IRModule

logger = logging.getLogger(__name__)

KIND = "cuda"
"""The kind of target that has them."""

_INPUTS = "num_input"
_WANTED = {"relax.backend.use_cuda_graph": True}


@dataclass(frozen=True)
class Captured:
    """A module of which parts are captured.

    Attributes:
        module: The module.
        reason: Why nothing is; empty if something is.
    """

    module: IRModule
    reason: str = ""


def capture(module: IRModule, inputs: int) -> Captured:
    """Has parts of ``main`` captured.

    Before → after: ``alloc; k1(x, a); k2(a, w, b); k3(b, y)`` → ``k1(x, a); run_or_capture(f);
    k3(b, y)`` with ``f: k2(a, w, b)``, the memory of ``a`` and ``b`` being allocated once.

    Args:
        module: With memory planned; parameters of ``main`` behind the first ``inputs`` are weights.
        inputs: How many of the parameters change from call to call.
    """
    from foretune import _tvm

    transform, main = _tvm.tvm.transform, module.get_global_var("main")
    told = _tvm.IRModule(dict(module.functions.items()), attrs=module.attrs)
    told.update_func(main, module["main"].with_attr(_INPUTS, inputs))
    try:
        with transform.PassContext(config=_WANTED):
            rewritten = _tvm.tvm.relax.transform.RewriteCUDAGraph()(told)
    except Exception as error:  # TVM raises its own, ValueError, and what C++ throws
        logger.warning("kernels are launched one by one: %s", last_line(error))
        return Captured(module, f"failed: {last_line(error, 200)}")
    if len(rewritten.functions) == len(module.functions):
        return Captured(module, "nothing can be captured")
    rewritten.update_func(
        rewritten.get_global_var("main"), _without(rewritten["main"], module["main"])
    )
    return Captured(rewritten)


def _without(function: Any, before: Any) -> Any:
    """The function without the mark, unless it was there before."""
    marked = before.attrs is not None and _INPUTS in before.attrs
    return function if marked else function.without_attr(_INPUTS)
