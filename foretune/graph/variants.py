"""A network with versions of some kernels, to be timed against each other where they are used.

The schedule that is fastest alone need not be so in the network: what it reads is where the kernel
before left it, and what it leaves is read by the next one. ``main`` calls the best version of each
kernel, ``main_1``, ``main_2``, ... another version of one kernel each; what they share is compiled
once. TVM's virtual machine makes the calls, which costs all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.graph._assemble import (
    apply_candidates,
    artifact_of,
    build,
    lift_constants,
    named,
)
from foretune.graph._default import default_schedule
from foretune.graph.passes import JOINING

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.graph.artifact import Artifact
    from foretune.graph.extract import Extraction
    from foretune.hardware import Hardware
    from foretune.space import Candidate
    from foretune.workload import Model


def entry_of(number: int) -> str:
    """The function of a version, for ``Artifact.prepare``; 0 is the network of the best ones."""
    return f"main_{number}" if number else "main"


def compile_variants(
    model: Model,
    hardware: Hardware,
    best: Mapping[str, Candidate],
    others: Sequence[tuple[str, Candidate]],
    extraction: Extraction,
) -> Artifact:
    """Compiles a network once with the best candidates, and once with each of the others.

    Args:
        model: The network.
        hardware: What it runs on.
        best: Workload key to candidate.
        others: Workload key and candidate: what stands in place of the best one in the function
            ``entry_of`` its place, counted from 1.
        extraction: What ``extract`` returned for this model and hardware.

    Returns:
        To be timed, not to be saved.
    """
    module, _ = apply_candidates(extraction, best)
    builder = _tvm.tvm.relax.BlockBuilder(module)
    for number, (key, candidate) in enumerate(others, 1):
        for name in _functions(extraction, key):
            version = _version(name, number)
            builder.add_func(named(candidate.apply()["main"], version, scheduled=True), version)
    module, parameters = lift_constants(default_schedule(builder.get(), hardware))
    for number, (key, _) in enumerate(others, 1):
        replaced = {name: _version(name, number) for name in _functions(extraction, key)}
        module = _with_entry(module, entry_of(number), replaced)
    built = build(module, hardware, {*extraction.without, JOINING}, len(model.inputs))
    return artifact_of(model, hardware, built, parameters, tuned=[], untuned=[])


def _functions(extraction: Extraction, key: str) -> list[str]:
    return [name for name, own in extraction.functions.items() if own == key]


def _version(name: str, number: int) -> str:
    return f"{name}_version_{number}"


def _with_entry(module: IRModule, entry: str, replaced: Mapping[str, str]) -> IRModule:
    """The module with another function like ``main`` that calls other kernels."""
    relax = _tvm.tvm.relax
    callees = {name: module.get_global_var(version) for name, version in replaced.items()}

    @relax.expr_functor.mutator
    class Redirector(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            first = call.args[0] if len(call.args) else None
            name = str(getattr(first, "name_hint", ""))
            if not isinstance(first, _tvm.tvm.ir.GlobalVar) or name not in callees:
                return call
            arguments = [callees[name], *call.args[1:]]
            return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    function = Redirector().visit_expr(module["main"])
    function = relax.utils.copy_with_new_vars(function.with_attr("global_symbol", entry))
    result = _tvm.IRModule(dict(module.functions.items()))
    result.update_func(_tvm.tvm.ir.GlobalVar(entry), function)
    return result
