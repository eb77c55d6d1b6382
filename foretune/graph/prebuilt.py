"""A network whose kernels are built already: only the calls between them are compiled.

Compiling a network takes tens of seconds, nearly all of it for its kernels. Where many networks
share their kernels, as the plans of one do, each kernel is built once and registered under a name,
and a network calls it by that. Before → after::

    call_tir(fused_conv2d, (x, W))  →  call_dps_packed("a name", (x, W))

TVM's virtual machine makes the calls: what ``one-function`` saves, such a network pays.
Views stay as they are, and become views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.graph._assemble import artifact_of, build, lift_constants
from foretune.graph._default import default_schedule
from foretune.graph.passes import JOINING

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.graph.artifact import Artifact
    from foretune.graph.extract import Extraction
    from foretune.hardware import Hardware
    from foretune.workload import Model


def kernels_of(extraction: Extraction) -> dict[str, Any]:
    """The tensor programs that a network calls, by name; views are none.

    Args:
        extraction: How the network was taken apart.
    """
    views = _tvm.tvm.relax.analysis.has_reshape_pattern
    return {
        str(variable.name_hint): function
        for variable, function in extraction.program.functions.items()
        if isinstance(function, _tvm.PrimFunc) and not views(function)
    }


def compile_prebuilt(
    model: Model, hardware: Hardware, extraction: Extraction, symbols: Mapping[str, str]
) -> Artifact:
    """Compiles a network that calls kernels by the names under which they are registered.

    Args:
        model: The network.
        hardware: What it runs on.
        extraction: What ``cut`` or ``extract`` returned for it.
        symbols: Name of a tensor program of ``extraction.program`` to that of a function that is
            registered in this process, and takes the program's parameters. Others are compiled with
            their default schedule.

    Returns:
        To be run in this process, not to be saved.
    """
    module = _without_views(_redirected(extraction.program, symbols))
    module, parameters = lift_constants(default_schedule(module, hardware))
    built = build(module, hardware, {*extraction.without, JOINING}, len(model.inputs))
    return artifact_of(model, hardware, built, parameters, tuned=[], untuned=[])


def _without_views(module: IRModule) -> IRModule:
    """The module in which views are no programs, which would be compiled for nobody."""
    transform = _tvm.tvm.relax.transform
    passes = [transform.RewriteDataflowReshape(), transform.DeadCodeElimination(["main"])]
    rewritten: IRModule = _tvm.tvm.transform.Sequential(passes)(module)
    return rewritten


def _redirected(program: IRModule, symbols: Mapping[str, str]) -> IRModule:
    relax = _tvm.tvm.relax
    by_name = _tvm.tvm.ir.Op.get("relax.call_dps_packed")

    @relax.expr_functor.mutator
    class Redirector(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            name = str(getattr(call.args[0], "name_hint", "")) if len(call.args) else ""
            if name not in symbols or str(getattr(call.op, "name", "")) != "relax.call_tir":
                return call
            arguments = [relax.ExternFunc(symbols[name]), *call.args[1:]]
            return relax.Call(by_name, arguments, None, call.ty_args)

    main = Redirector().visit_expr(program["main"])
    kept = {v: f for v, f in program.functions.items() if str(v.name_hint) not in symbols}
    result = _tvm.IRModule(kept)
    result.update_func(program.get_global_var("main"), main)
    return result
