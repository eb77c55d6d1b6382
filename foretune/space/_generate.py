"""Making the sketches of a workload: TVM's schedule rules, and parsing what they give."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foretune.errors import BadInputError, last_line
from foretune.hardware import Hardware
from foretune.space import _probe, _products, _replay
from foretune.space.actions import loop_names
from foretune.space.decision import Choice, ComputeLocation, PerfectTile, Variable
from foretune.space.location import LocationModel
from foretune.space.sketch import Sketch
from foretune.space.trace import PARALLEL, Instruction, Trace
from foretune.workload import Workload

if TYPE_CHECKING:
    from foretune._tvm import Schedule, Target
    from foretune.hardware import IntegerProduct

_log = logging.getLogger(__name__)

_OWN_WEIGHT = 0.8
"""How often sampling keeps TVM's own parallel or vectorise limit."""
_OFF_WEIGHT = 0.01
"""How often it switches either off: rarely any use, and a serial program takes long to measure."""


def generate(workload: Workload, hardware: Hardware) -> list[Sketch]:
    """All distinct sketches of a workload, in TVM's order.

    Raises:
        BadInputError: TVM's rules fail on it even when any one of them is switched off, or blocks
            are called as the root.
    """
    base = _replay.program(workload.module_json, hardware.target)
    axes = _axes(base, workload.name)
    sketches: dict[str, Sketch] = {}
    for schedule in _design_spaces(workload, hardware):
        sketch = _parse(workload, hardware, schedule, axes)
        if sketch.key not in sketches:
            sketches[sketch.key] = sketch
            sketch.__dict__["template"] = _replay.Template(
                base, schedule, sketch.variables, sketch.positions
            )
    return _located(list(sketches.values()))


def _design_spaces(workload: Workload, hardware: Hardware) -> Sequence[Schedule]:
    from foretune import _tvm

    target, name = hardware.tvm_target(), workload.name
    product = _products.product_of(workload.module, target)

    def run(space_generator: Any) -> tuple[Any, Sequence[Schedule]]:
        # A fixed state: the decisions a trace comes with are replaced, but must not vary.
        context = _tvm.make_context(
            workload.module, target, space_generator=space_generator, rand_state=1
        )
        return context, context.generate_design_space()

    try:
        if product is not None:
            return run(_around(workload, target, product))[1]
        return run("post-order-apply")[1]
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        failure = error
    rules = _rules(workload, target)
    for change, remaining in _fallbacks(rules, hardware):
        generator = _tvm.meta_schedule.space_generator.PostOrderApply(
            sch_rules=remaining, postprocs=[], mutator_probs={}
        )
        try:
            spaces = run(generator)[1]
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue
        _log.warning("TVM's rules fail on workload %s: %s, its space is smaller", name, change)
        return spaces
    raise BadInputError(
        f"TVM's schedule rules must apply, but they fail on workload {workload.name!r} even with "
        f"any one of them switched off ({last_line(failure)}): exclude it from tuning"
    ) from failure


def _rules(workload: Workload, target: Target) -> list[Any]:
    """TVM's schedule rules for a target."""
    from foretune import _tvm

    context = _tvm.make_context(workload.module, target, space_generator="post-order-apply")
    return list(context.space_generator.sch_rules)


def _around(workload: Workload, target: Target, product: IntegerProduct) -> Any:
    """The generator of tiles around one instruction."""
    from foretune._tvm import meta_schedule

    return meta_schedule.space_generator.PostOrderApply(
        sch_rules=_products.rules(_rules(workload, target), product),
        postprocs=[],
        mutator_probs={},
    )


def _fallbacks(rules: Sequence[Any], hardware: Hardware) -> Iterator[tuple[str, list[Any]]]:
    """What changed, and the rules that remain: the least loss first."""
    from foretune._tvm import meta_schedule

    kinds = [type(rule).__name__ for rule in rules]
    if hardware.has_cores and "MultiLevelTiling" in kinds:
        # What fails is moving the consumers of a block into its tiles; tiling alone still works.
        at = kinds.index("MultiLevelTiling")
        tiling = meta_schedule.schedule_rule.MultiLevelTiling("SSRSRS", max_innermost_factor=64)
        yield "tiles are not fused with consumers", [*rules[:at], tiling, *rules[at + 1 :]]
    for at, kind in enumerate(kinds):
        yield f"rule {kind} is switched off", [*rules[:at], *rules[at + 1 :]]


def _axes(base: _replay.Program, workload: str) -> dict[str, tuple[str, ...]]:
    from foretune import _tvm

    schedule = base.schedule()
    try:
        root = schedule.get_sblock("root", func_name="main")
    except _tvm.tvm.s_tir.schedule.ScheduleError as error:
        if "root" not in _block_names(base.schedule().mod["main"].body):
            raise BadInputError(
                "a schedule moves loops around blocks, below one that holds the whole program, "
                f"but workload {workload!r} has no blocks, or one around all its loops: write "
                "each statement as a block, with T.sblock and T.axis"
            ) from error
        raise BadInputError(
            "only the block around all others may be called 'root', but workload "
            f"{workload!r} has several of that name: rename its blocks"
        ) from error
    axes: dict[str, tuple[str, ...]] = {}
    for block in schedule.get_child_blocks(root):
        name = str(schedule.get(block).name_hint)
        loops = [schedule.get(loop).loop_var.name for loop in schedule.get_loops(block)]
        axes[name] = tuple(str(loop) for loop in loops)
    return axes


def _block_names(node: Any) -> list[str]:
    """Names of all blocks of a program, outer ones first."""
    from foretune import _tvm

    name = getattr(node, "name_hint", None) if type(node).__name__ == "SBlock" else None
    below = [inner for child in _tvm.children(node) for inner in _block_names(child)]
    return below if name is None else [str(name), *below]


def _parse(
    workload: Workload, hardware: Hardware, schedule: Schedule, axes: Mapping[str, tuple[str, ...]]
) -> Sketch:
    trace = Trace.of(schedule)
    names = loop_names(trace, axes)
    variables: list[Variable] = []
    positions: list[int] = []
    for at, instruction in enumerate(trace.instructions):
        if at in trace.decisions:
            variable = _sampled(instruction, names.get(at, ""), trace.decisions[at], trace)
        elif instruction.samples:
            raise BadInputError(
                f"every sampling instruction has a decision, but {instruction.kind} of workload "
                f"{workload.name!r} has none: exclude it from tuning"
            )
        else:
            variable = _annotation(instruction)
        if variable is not None and (variable.size > 1 or isinstance(variable, ComputeLocation)):
            variables.append(variable)
            positions.append(at)
    return Sketch(workload, hardware, trace.text, tuple(variables), tuple(positions), axes=axes)


def _sampled(instruction: Instruction, name: str, decision: Any, trace: Trace) -> Variable | None:
    kind, _, attrs, outputs = instruction
    if kind in ("SamplePerfectTile", "SamplePartitionedTile"):
        if min(decision) < 1:
            _log.warning("the loop %s has no constant extent: it is not tiled", name)
            return None
        extent = 1
        for factor in decision:
            extent *= factor
        if kind == "SamplePerfectTile":
            return PerfectTile(name, extent, attrs[0], max(attrs[1], 0))
        return PerfectTile(name, extent, attrs[0], 0, attrs[1], attrs[2])
    if kind == "SampleCategorical":
        return Choice(_use_of(outputs[0], trace), tuple(attrs[0]), tuple(attrs[1]))
    if kind == "SampleComputeLocation":
        return ComputeLocation(name)
    _log.warning("sampling instruction %s is not known: it stays at %r", kind, decision)
    return None


def _use_of(value: str, trace: Trace) -> str:
    for each in trace.instructions:
        if value in each.inputs and not each.samples:
            annotates = each.kind == "Annotate"
            return str(each.attrs[0]).rsplit(".", 1)[-1] if annotates else each.kind.lower()
    return "choice"


def _annotation(instruction: Instruction) -> Choice | None:
    limit = instruction.limit
    if limit is None or instruction.inputs[1] < 1:
        return None
    own: int = instruction.inputs[1]
    if limit == PARALLEL:
        cores = max(1, own // 16)  # TVM's own limit is 16 jobs per core
        values = sorted({0, cores, 4 * cores, own, 64 * cores})
    else:
        values = sorted({0, max(1, own // 4), max(1, own // 2), own, 2 * own})
    rest = (1 - _OWN_WEIGHT - _OFF_WEIGHT) / (len(values) - 2)
    weights = tuple({0: _OFF_WEIGHT, own: _OWN_WEIGHT}.get(v, rest) for v in values)
    return Choice(limit.rsplit(".", 1)[-1], tuple(values), weights)


def _located(sketches: list[Sketch]) -> list[Sketch]:
    movable = [sketch for sketch in sketches if sketch.location_order]
    if not movable:
        return sketches
    models = iter(_probe.learn(movable))
    return [_with(sketch, next(models)) if sketch.location_order else sketch for sketch in sketches]


def _with(sketch: Sketch, model: LocationModel) -> Sketch:
    variables = tuple(
        replace(v, bound=model.bound(i)) if isinstance(v, ComputeLocation) else v
        for i, v in enumerate(sketch.variables)
    )
    located = replace(sketch, variables=variables, locations=model)
    located.__dict__["template"] = sketch.template
    return located
