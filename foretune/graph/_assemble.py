"""From kernels with their schedules to code: the steps that all ways of compiling share."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune import _tvm, codegen
from foretune.graph.artifact import Artifact, describe
from foretune.graph.passes import PassReport, capture, failure, join, why_off

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.graph.extract import Extraction
    from foretune.hardware import Hardware
    from foretune.space import Candidate
    from foretune.workload import Model

logger = logging.getLogger(__name__)


def apply_candidates(
    extraction: Extraction, best: Mapping[str, Candidate]
) -> tuple[IRModule, set[str]]:
    """A fused program with some of its kernels scheduled, and the keys of those that are tuned."""
    module = _tvm.IRModule(dict(extraction.program.functions.items()))
    tuned: set[str] = set()
    for variable in extraction.program.get_global_vars():
        name = str(variable.name_hint)
        key = extraction.functions.get(name)
        if key is None or key not in best:
            continue
        module.update_func(variable, named(best[key].apply()["main"], name, scheduled=True))
        if best[key].sketch.variables:
            tuned.add(key)
    return module, tuned


def named(function: Any, name: str, scheduled: bool) -> Any:
    """A tensor program under a name, marked where nothing else may schedule it."""
    function = function.with_attr("global_symbol", name)
    return function.with_attr("tirx.is_scheduled", True) if scheduled else function


def lift_constants(module: IRModule) -> tuple[IRModule, dict[str, Any]]:
    """Turns the constants that ``main`` gives to kernels into parameters behind its inputs.

    A shared library with hundreds of megabytes of constants takes minutes to link and cannot be
    mapped lazily; as parameters they are an ordinary file. Equal ones become one: a layer that is
    called several times has weights that passes have packed for each call.
    """
    relax = _tvm.tvm.relax
    parameters: dict[Any, Any] = {}
    variables: dict[Any, Any] = {}
    same: dict[Any, list[Any]] = {}

    @relax.expr_functor.mutator
    class Lifter(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_generic_const_(self, constant: Any) -> Any:
            value = getattr(constant, "value", None)
            if not isinstance(value, _tvm.tvm.runtime.Tensor):
                return constant
            if constant not in variables:
                variables[constant] = self._parameter(constant)
            return variables[constant]

        def _parameter(self, constant: Any) -> Any:
            data = _bytes_of(constant.value)
            key = str(constant.value.dtype), tuple(constant.value.shape), zlib.crc32(data)
            for known in same.setdefault(key, []):
                if np.array_equal(_bytes_of(parameters[known]), data):
                    return known
            variable = relax.Var(f"p{len(parameters)}", constant.ty)
            same[key].append(variable)
            parameters[variable] = constant.value
            return variable

    function = module["main"]
    body = Lifter().visit_expr(function.body)
    lifted = relax.Function(
        [*function.params, *parameters], body, function.ret_ty, attrs=function.attrs
    )
    result = _tvm.IRModule(dict(module.functions.items()))
    result.update_func(module.get_global_var("main"), lifted)
    return result, {f"p{at}": value for at, value in enumerate(parameters.values())}


def _bytes_of(tensor: Any) -> Any:
    return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class Built:
    """What was compiled.

    Attributes:
        executable: TVM's.
        passes: What became of the last passes.
        workspace: Bytes that its ``main_in`` wants; 0 where there is none.
    """

    executable: Any
    passes: list[PassReport]
    workspace: int


def build(module: IRModule, hardware: Hardware, without: Collection[str], inputs: int) -> Built:
    """Generates code for a module of which each tensor program has its schedule.

    Args:
        module: With ``main``.
        hardware: What it will run on.
        without: Names of passes that do not run.
        inputs: Number of the parameters of ``main`` that are no weights.
    """
    reports: list[PassReport] = []
    workspace = 0

    def finishing(module: IRModule, _context: Any) -> IRModule:
        finished = codegen.finish(module, hardware, without)
        for name, fault in finished.failed.items():
            logger.warning("%r is left out for the kernels on which it fails (%s)", name, fault)
        reports.extend(_reports(hardware, without, finished))
        return finished.module

    def joining(module: IRModule, _context: Any) -> IRModule:
        nonlocal workspace
        joined, report = join(module, hardware, without, inputs)
        workspace = joined.workspace
        reports.append(report)
        return joined.module

    def capturing(module: IRModule, _context: Any) -> IRModule:
        captured, report = capture(module, hardware, without, inputs)
        reports.append(report)
        return captured

    tvm, transform, backend = _tvm.tvm, _tvm.tvm.relax.transform, _tvm.tvm.relax.backend
    # TVM's default pipeline would legalise and fuse again, across kernels already scheduled.
    lowering = tvm.transform.Sequential(
        [
            backend.DispatchSampling(),
            backend.DispatchSortScan(),
            transform.LegalizeOps(),
            transform.RewriteDataflowReshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            tvm.transform.module_pass(joining, opt_level=0, name="OneFunction"),
            tvm.transform.module_pass(capturing, opt_level=0, name="CudaGraph"),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
            tvm.transform.module_pass(finishing, opt_level=0, name="Finish"),
        ]
    )
    target = hardware.code_target()
    with target:
        executable = tvm.relax.build(module, target, relax_pipeline=lowering)
    return Built(executable, reports, workspace)


def artifact_of(
    model: Model,
    hardware: Hardware,
    built: Built,
    parameters: Mapping[str, Any],
    tuned: Collection[str],
    untuned: Collection[str],
) -> Artifact:
    """What was compiled of a network, with its weights and its states as they are at first.

    Args:
        model: The network.
        hardware: What it was compiled for.
        built: The code.
        parameters: The constants of the network by name, in the order in which ``main`` has them.
        tuned, untuned: Names of the kernels whose schedule was found, and of the others.
    """
    manifest = describe(
        model.name,
        hardware,
        model.inputs,
        model.outputs,
        parameters=list(parameters),
        tuned=sorted(tuned),
        untuned=sorted(untuned),
        states=model.states,
    )
    manifest["workspace"] = built.workspace
    initial = model.examples[len(model.inputs) - len(model.states) :]
    values = map(_tvm.tvm.runtime.tensor, initial)
    states = dict(zip(model.states, values, strict=True))
    return Artifact(built.executable, {**parameters, **states}, manifest)


def _reports(
    hardware: Hardware, without: Collection[str], finished: codegen.Finished
) -> list[PassReport]:
    off = {name: why_off(name, codegen.KIND, hardware, without) for name in codegen.PASSES}
    off |= {name: failure(fault) for name, fault in finished.failed.items()}
    return [
        PassReport(name, not why or name in finished.changed, why, name in finished.changed)
        for name, why in off.items()
    ]
