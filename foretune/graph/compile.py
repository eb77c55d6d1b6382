"""From the best candidates to a compiled artifact."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.errors import last_line
from foretune.graph._arguments import Arguments, arguments_of
from foretune.graph._assemble import (
    apply_candidates,
    artifact_of,
    build,
    lift_constants,
    named,
)
from foretune.graph._default import default_schedule
from foretune.graph.artifact import Artifact, describe
from foretune.graph.extract import Extraction, extract
from foretune.workload import TensorSpec

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware
    from foretune.space import Candidate
    from foretune.workload import Model, Workload


def compile_model(
    model: Model,
    hardware: Hardware,
    best: Mapping[str, Candidate],
    extraction: Extraction | None = None,
) -> Artifact:
    """Compiles a model with the best candidate of each workload.

    Args:
        model: The network.
        hardware: What it will run on.
        best: Workload key to candidate. A workload without one gets the default schedule and is
            listed in the manifest as untuned.
        extraction: What ``extract`` returned for this model and hardware, to not do it twice.

    Raises:
        IllegalCandidateError: A candidate cannot be applied.
    """
    extraction = extraction or extract(model, hardware)
    module, tuned = apply_candidates(extraction, best)
    module = default_schedule(module, hardware)
    module, parameters = lift_constants(module)
    built = build(module, hardware, extraction.without, len(model.inputs))
    names = {w.key: w.name for w in extraction.workloads}
    untuned = [names[key] for key in names if key not in tuned] + extraction.untunable
    artifact = artifact_of(
        model, hardware, built, parameters, [names[key] for key in tuned], untuned
    )
    manifest = artifact.manifest
    manifest["key"] = model.key
    manifest["passes_off"] = sorted(extraction.without)
    manifest["passes"] = [report.to_json() for report in (*extraction.passes, *built.passes)]
    manifest["plan"] = {name: dict(chosen) for name, chosen in extraction.plan.items()}
    if model.until:
        manifest["until"] = list(model.until)
    return artifact


def compile_workload(
    workload: Workload,
    hardware: Hardware,
    candidate: Candidate | None = None,
    without: Collection[str] = (),
) -> Artifact:
    """Compiles one kernel: its inputs become the artifact's inputs, its outputs are allocated.

    Args:
        workload: The tensor program.
        hardware: What it will run on.
        candidate: How to schedule it; the default schedule when None.
        without: Names of passes that do not run.

    Raises:
        BadInputError: The program changes a parameter in place, which an artifact cannot.
        IllegalCandidateError: The candidate cannot be applied.
    """
    function = workload.module["main"]
    arguments = arguments_of(workload)
    inputs = tuple(_spec(function.params[at]) for at in arguments.inputs)
    outputs = tuple(_spec(function.params[at]) for at in arguments.outputs)
    scheduled = candidate.apply()["main"] if candidate is not None else function
    tuned = candidate is not None and bool(candidate.sketch.variables)
    kernel = named(_inputs_first(scheduled, arguments), "kernel", candidate is not None)
    module = _calling(kernel, inputs, outputs)
    built = build(default_schedule(module, hardware), hardware, without, len(inputs))
    manifest = describe(
        workload.name,
        hardware,
        inputs,
        outputs,
        parameters=[],
        tuned=[workload.name] if tuned else [],
        untuned=[] if tuned else [workload.name],
    )
    manifest["passes"] = [report.to_json() for report in built.passes]
    manifest["workspace"] = built.workspace
    return Artifact(built.executable, {}, manifest)


def _inputs_first(function: Any, arguments: Arguments) -> Any:
    """The same function with its parameters in the order in which ``call_tir`` binds them.

    Before → after: ``main(C, A, B)`` that writes ``C`` → ``main(A, B, C)``.
    """
    order = (*arguments.inputs, *arguments.outputs)
    if order == tuple(sorted(order)):
        return function
    parameters = [function.params[at] for at in order]
    return _tvm.PrimFunc(parameters, function.body, function.ret_type, function.attrs)


def _spec(parameter: Any) -> TensorSpec:
    shape = tuple(int(extent) for extent in parameter.shape)
    return TensorSpec(str(parameter.name), shape, str(parameter.dtype))


def _calling(
    kernel: Any, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]
) -> IRModule:
    """A module whose Relax ``main`` allocates the outputs and calls the kernel."""
    relax = _tvm.tvm.relax
    parameters = [relax.Var(s.name, relax.TensorType(s.shape, s.dtype)) for s in inputs]
    types = [relax.TensorType(s.shape, s.dtype) for s in outputs]
    builder = relax.BlockBuilder()
    callee = builder.add_func(kernel, "kernel")
    with builder.function("main", parameters):
        with builder.dataflow():
            call = relax.call_tir(callee, parameters, types if len(types) > 1 else types[0])
            result = builder.emit_output(builder.emit(call))
        builder.emit_func_output(result)
    module: IRModule = builder.get()
    return module


def failing_kernels(program: IRModule, hardware: Hardware) -> dict[str, str]:
    """Which tensor programs of a fused program cannot be compiled, each on its own, and why.

    Args:
        program: As ``simplify`` returns it.
        hardware: What they are compiled for.

    Returns:
        The name of each such program, with the last line of what TVM says.
    """
    failing: dict[str, str] = {}
    target = hardware.code_target()
    for variable, function in program.functions.items():
        if not isinstance(function, _tvm.PrimFunc):
            continue
        name = str(variable.name_hint)
        alone = _tvm.IRModule({name: named(function, name, scheduled=False)})
        try:
            with target:
                _tvm.tvm.compile(default_schedule(alone, hardware), target)
        except Exception as error:  # TVM raises its own, ValueError, and what C++ throws
            failing[name] = last_line(error, 200)
    return failing
