"""From an imported network to fused tensor programs: operators, lowering, fusion."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.graph._lowering import lower
from foretune.graph.passes import OPERATORS, PROGRAMS, Pass, Passes, PassReport

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware
    from foretune.workload import Model


@dataclass(frozen=True)
class Simplified:
    """A fused program and how it came about.

    Attributes:
        program: Its ``main`` calls one PrimFunc per kernel.
        passes: What became of each pass.
        without: Names of passes that did not run because nobody wanted them.
    """

    program: IRModule
    passes: tuple[PassReport, ...] = ()
    without: frozenset[str] = frozenset()


def simplify(model: Model, hardware: Hardware, without: Collection[str] = ()) -> Simplified:
    """The fused program of a model.

    Args:
        model: Its module is left as it is.
        hardware: Fixes the layout and the target that operators are legalised for.
        without: Names of passes that do not run.

    Raises:
        UnsupportedOperatorsError: Nothing can lower some of its operators.
    """
    passes = Passes(model.name, without)
    with hardware.tvm_target():
        module = _run(passes, OPERATORS, model.module, hardware)
        module = lower(module, model.name)
        module = _run(passes, PROGRAMS, module, hardware)
    return Simplified(module, passes.reports, frozenset(without))


def _run(passes: Passes, these: Iterable[Pass], module: IRModule, hardware: Hardware) -> IRModule:
    for each in these:
        if each.only and each.only != hardware.kind:
            passes.skip(each.name, f"for targets of the kind {each.only}")
        else:
            module = passes.run(each.name, module, *each.changes(hardware))
    return module
