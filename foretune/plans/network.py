"""A network as plans see it: its operators, and what it becomes with a plan.

The passes before the first one that has a choice run once (``graph.begin``). A plan is what the
later ones make of it (``graph.finish``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune.graph import Begun, Simplified, begin, finish
from foretune.graph.passes import kind_of, operands_of
from foretune.graph.passes.rewrites import extents
from foretune.plans.links import Constants, Path, Walk, link_of

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.workload import Model

_WITH_WEIGHTS = ("conv", "matmul", "call_tir")
"""Operators that are known by their weights begin so; a bias is none of theirs."""


@dataclass(frozen=True)
class Operator:
    """A call of the network about which a pass may have a choice.

    Attributes:
        node: Its place among the calls of the network.
        name: What it is called: kind and extents of its operands.
        link: By which passes know it again.
    """

    node: int
    name: str
    link: str


class PlanNetwork:
    """A network before the first pass that has a choice.

    A pass that fails on it without a plan is left out of all its plans.

    Args:
        model: The network; its examples are what plans are timed with.
        hardware: What it is for.
        without: Names of passes that do not run.

    Attributes:
        begun: The network.
        calls: Its calls, in order.
        operators: Those that may have choices, in order.
    """

    def __init__(self, model: Model, hardware: Hardware, without: Collection[str] = ()) -> None:
        self.model = model
        self.hardware = hardware
        begun = begin(model, hardware, without)
        failed = [report.name for report in finish(begun, hardware).passes if report.failed]
        self.begun: Begun = begun.without(failed)
        self.calls = calls_of(self.begun.module)
        self._constants = Constants()
        self.operators = tuple(
            Operator(at, _name(call), link_of(call, self._constants))
            for at, call in enumerate(self.calls)
            if _has_tensor(call) and (not _weights(call) or _is_heavy(call))
        )
        self._links: dict[str, list[int]] = {}
        for number, operator in enumerate(self.operators):
            self._links.setdefault(operator.link, []).append(number)

    def walk(
        self,
        wanted: Mapping[int, Mapping[str, str]],
        offered: Callable[[int, str, Path], bool] | None = None,
    ) -> tuple[Simplified, Walk]:
        """The fused program of a plan, and what was decided on the way.

        Args:
            wanted: Number of an operator to pass and choice; passes decide for the others.
            offered: As for ``Walk``.

        Raises:
            UnsupportedOperatorsError: Nothing can lower some operators.
        """
        walk = Walk(self._links, wanted, self._constants, offered)
        simplified = finish(self.begun, self.hardware, choose=walk.decisions, checked=False)
        return simplified, walk


def calls_of(module: Any) -> list[Any]:
    """The calls that variables of ``main`` are bound to, in order."""
    return [call for _, call in bindings_of(module)]


def bindings_of(module: Any) -> list[tuple[Any, Any]]:
    """The same, each behind its variable."""
    from foretune import _tvm

    relax = _tvm.tvm.relax
    body = module["main"].body
    return [
        (binding.var, binding.value)
        for block in (body.blocks if isinstance(body, relax.SeqExpr) else ())
        for binding in block.bindings
        if isinstance(getattr(binding, "value", None), relax.Call)
    ]


def _has_tensor(call: Any) -> bool:
    return getattr(call.ty, "shape", None) is not None and hasattr(call.op, "name")


def _weights(call: Any) -> list[Any]:
    return [o for o in operands_of(call) if hasattr(getattr(o, "value", None), "numpy")]


def _is_heavy(call: Any) -> bool:
    return str(call.op.name).rpartition(".")[2].startswith(_WITH_WEIGHTS)


def _name(call: Any) -> str:
    told = ", ".join(
        "x".join(map(str, extents(operand)))
        for operand in operands_of(call)
        if getattr(operand.ty, "shape", None) is not None
    )
    return f"{kind_of(call)} {told}"
