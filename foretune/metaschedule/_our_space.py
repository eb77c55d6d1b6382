"""foretune's space and code generation for TVM's own tuner, which tells space and search apart.

TVM gets the sketches of a workload as its design spaces. A limit on vector lengths is a variable of
ours but a fixed annotation to TVM: it becomes one design space for each value, as often as our
sampling takes it. The limit on parallel jobs is TVM's own to begin with, and TVM's mutator varies
it. Programs are built with the passes that ours are built with (``foretune.codegen``).

Not for programs laid out for an instruction on small integers, which have post-processors of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune import _tvm, codegen
from foretune.hardware import Hardware
from foretune.space import Choice, Space
from foretune.space.draw import draw
from foretune.workload import Workload

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule, Target
    from foretune.space import Decision, Sketch

BUILD = "foretune.metaschedule.build"
"""By this name a worker of TVM's builder finds our way of building."""
_PARALLEL, _VECTORIZE = "parallel", "vectorize"


def space_generator(hardware: Hardware) -> Any:
    """TVM's space generator whose design spaces are our sketches.

    Args:
        hardware: What is tuned for.
    """

    def spaces(schedule: Schedule) -> list[Schedule]:
        workload = Workload.from_module(schedule.mod, name="main")
        return list(design_spaces(Space.generate(workload, hardware)))

    return _tvm.meta_schedule.space_generator.ScheduleFn(
        spaces, sch_rules="from-target", postprocs="from-target", mutator_probs="from-target"
    )


def design_spaces(space: Space) -> Iterator[Schedule]:
    """The sketches of a space as TVM's design spaces, some several times: TVM draws them evenly."""
    for sketch in space.sketches:
        for decisions in _fixed(sketch):
            yield sketch.template.replay(decisions)


def _fixed(sketch: Sketch) -> Iterator[list[Decision]]:
    """Decisions of a sketch for each design space; TVM draws anew what it has a sampling for."""
    (drawn,) = draw(sketch, np.random.default_rng(0), 1)
    decisions: list[Decision] = list(drawn.decisions)
    limits: dict[int, Choice] = {}
    for at, variable in enumerate(sketch.variables):
        if isinstance(variable, Choice) and variable.name == _PARALLEL:
            decisions[at] = int(np.argmax(variable.weights))
        elif isinstance(variable, Choice) and variable.name == _VECTORIZE:
            limits[at] = variable
    if not limits:
        yield decisions
        return
    # A sketch has at most one limit on vector lengths: TVM annotates its root.
    ((at, limit),) = limits.items()
    allowed = [index for index, value in enumerate(limit.values) if value != 0]
    rarest = min(limit.weights[index] for index in allowed)
    for index in allowed:
        for _ in range(round(limit.weights[index] / rarest)):
            yield [*decisions[:at], index, *decisions[at + 1 :]]


def register_build(hardware: Hardware) -> None:
    """Lets TVM's builder find our way of building in this process, under ``BUILD``.

    Args:
        hardware: What programs are built for.
    """

    def build(module: IRModule, _target: Target, _params: Any) -> Any:
        finished = codegen.finish(module, hardware).module
        return _tvm.tvm.tirx.build(finished, target=hardware.code_target())

    _tvm.tvm.register_global_func(BUILD, build, override=True)
