"""From an imported network to fused tensor programs: operators, lowering, fusion."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foretune.errors import BadInputError
from foretune.graph._lowering import lower
from foretune.graph.passes import (
    OPERATORS,
    PROGRAMS,
    Decisions,
    Pass,
    Passes,
    PassReport,
    added,
    require_deciding,
    why_off,
)

Plan = Mapping[str, Mapping[str, str]]
"""Pass, then operator, to what was chosen for it."""

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
        plan: What the passes that have a choice chose.
    """

    program: IRModule
    passes: tuple[PassReport, ...] = ()
    without: frozenset[str] = frozenset()
    plan: Plan = field(default_factory=dict)


def simplify(
    model: Model, hardware: Hardware, without: Collection[str] = (), plan: Plan | None = None
) -> Simplified:
    """The fused program of a model.

    Args:
        model: Its module is left as it is.
        hardware: Fixes the layout and the target that operators are legalised for.
        without: Names of passes that do not run.
        plan: What is chosen for some operators; the passes choose for the others.

    Raises:
        BadInputError: The plan is for another network, or for a pass that is off.
        UnsupportedOperatorsError: Nothing can lower some of its operators.
    """
    require_deciding(plan or {})
    return finish(begin(model, hardware, without), hardware, plan)


@dataclass(frozen=True)
class Begun:
    """A network as it is before the first pass that has a choice: all plans begin with it.

    Attributes:
        module: The network.
        passes: What became of the passes so far.
    """

    module: IRModule
    passes: Passes

    def without(self, names: Collection[str]) -> Begun:
        """The same, where further passes will not run."""
        return Begun(self.module, self.passes.again(without=names))


def begin(model: Model, hardware: Hardware, without: Collection[str] = ()) -> Begun:
    """The passes that no plan says anything about; arguments and errors as of ``simplify``."""
    passes = Passes(model.name, without)
    with hardware.tvm_target():
        module = model.module
        for each in OPERATORS[:_FIRST]:
            off = why_off(each.name, each.only, hardware, passes.without)
            module = _run(passes, each, module, hardware, Decisions(), off)
    return Begun(module, passes)


def finish(
    begun: Begun,
    hardware: Hardware,
    plan: Plan | None = None,
    choose: Callable[[str], Decisions] | None = None,
    checked: bool = True,
) -> Simplified:
    """The passes from the first one that has a choice on.

    Args:
        begun: As ``begin`` returned it for this hardware; it is left as it is.
        hardware: As for ``simplify``.
        plan: As for ``simplify``.
        choose: Says what decides in a pass, by the name of that, in place of a plan.
        checked: Whether the result of each pass is looked at. Where plan after plan is tried, it
            need not be: the outputs of each network are compared in the end.

    Raises:
        BadInputError: The plan is for another network, or for a pass that is off.
        UnsupportedOperatorsError: Nothing can lower some of its operators.
    """
    passes = begun.passes.again(checked)
    taken: dict[str, dict[str, str]] = {}

    def run(module: IRModule, each: Pass) -> IRModule:
        given = (plan or {}).get(each.name)
        decisions = Decisions(given) if choose is None else choose(each.name)
        off = why_off(each.name, each.only, hardware, passes.without)
        if off and each.name in (plan or {}):
            raise BadInputError(
                f"the plan chooses for {each.name!r}, which is off ({off}): leave it out of "
                "the plan, or switch the pass on"
            )
        module = _run(passes, each, module, hardware, decisions, off)
        if each.decides and passes.is_on(each.name):
            decisions.require_kept()
            taken[each.name] = decisions.taken
        return module

    with hardware.tvm_target():
        module = functools.reduce(run, (*OPERATORS[_FIRST:], *added()), begun.module)
        module = functools.reduce(run, PROGRAMS, lower(module, passes.network))
    return Simplified(module, passes.reports, passes.without, taken)


_FIRST = next(at for at, each in enumerate(OPERATORS) if each.decides)
"""The place of the first pass that has a choice."""


def _run(
    passes: Passes,
    each: Pass,
    module: IRModule,
    hardware: Hardware,
    decisions: Decisions,
    off: str,
) -> IRModule:
    if off:
        passes.skip(each.name, off)
    else:
        module = passes.run(each.name, module, *each.changes(hardware, decisions))
    return module if each.always is None else each.always(module)
