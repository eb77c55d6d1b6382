"""The workload: one tensor program to tune."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_COLD = "foretune.cold"


@dataclass(frozen=True)
class ColdWeights:
    """Parameters of a program that each of its calls in a network reads from far away.

    Attributes:
        parameters: Their positions.
        between_bytes: How many bytes of weights the network reads from one call to the next.
    """

    parameters: tuple[int, ...]
    between_bytes: int


@dataclass(frozen=True)
class Workload:
    """One tensor program: an ``IRModule`` with the single PrimFunc ``main``.

    Two workloads are equal when their ``key`` is: names and weights do not count.

    Attributes:
        name: What people call it.
        key: 16 hex digits: TVM's structural hash of the module, stable across processes.
        module_json: The module, serialised, so that a workload can be sent to another process.
        flops: Floating-point operations of one call.
        weight: How often the program occurs in the model it came from.
    """

    name: str = field(compare=False)
    key: str
    module_json: str = field(compare=False, repr=False)
    flops: float = field(compare=False)
    weight: int = field(default=1, compare=False)

    @functools.cached_property
    def module(self) -> IRModule:
        """The program. Treat as read-only."""
        from foretune import _tvm

        module: IRModule = _tvm.load_json(self.module_json)
        return module

    @functools.cached_property
    def cold(self) -> ColdWeights | None:
        """What ``mark_cold`` noted in the program; None for a program that stands alone."""
        return cold_weights(self.module["main"])

    def with_weight(self, weight: int) -> Workload:
        """The same program occurring ``weight`` times."""
        return replace(self, weight=weight)

    @classmethod
    def from_module(cls, module: IRModule, name: str, weight: int = 1) -> Workload:
        """Wraps an ``IRModule`` with exactly one PrimFunc (any name), or a PrimFunc.

        Raises:
            BadInputError: The module has no PrimFunc or several.
        """
        from foretune import _tvm
        from foretune.errors import BadInputError

        if isinstance(module, _tvm.PrimFunc):
            function = module
        else:
            functions = [f for f in module.functions.values() if isinstance(f, _tvm.PrimFunc)]
            if len(functions) != 1:
                raise BadInputError(
                    "a workload holds exactly one PrimFunc, but module "
                    f"{name!r} holds {len(functions)}: pass one function, or tune it as a model"
                )
            function = functions[0]
        function = _tvm.rooted(function)
        function = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
        normalised = _tvm.IRModule({"main": function})
        return cls(
            name=name,
            key=f"{_tvm.structural_hash(normalised):016x}",
            module_json=_tvm.save_json(normalised),
            flops=_estimate_flops(normalised),
            weight=weight,
        )


def mark_cold(function: Any, cold: ColdWeights) -> Any:
    """A PrimFunc that says which of its parameters are cold.

    It says so itself, because it is another workload then: the same program on weights that lie in
    the caches has other times and another best schedule.
    """
    return function.with_attr(_COLD, [*cold.parameters, cold.between_bytes])


def cold_weights(function: Any) -> ColdWeights | None:
    """What ``mark_cold`` noted in a PrimFunc, scheduled or not; None where it did not."""
    attributes = function.attrs
    if attributes is None or _COLD not in attributes:
        return None
    *parameters, between = (int(value) for value in attributes[_COLD])
    return ColdWeights(tuple(parameters), between)


def _estimate_flops(module: IRModule) -> float:
    from foretune import _tvm

    return float(_tvm.tvm.s_tir.analysis.estimate_tir_flops(module))
