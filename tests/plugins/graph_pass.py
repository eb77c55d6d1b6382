"""A graph pass of somebody else's: what is never negative is its own absolute value."""

from __future__ import annotations

from typing import Any

from tvm import IRModule, relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

NEVER_NEGATIVE = ("nn.relu", "sigmoid", "exp", "sqrt", "nn.softmax", "abs")


def drop_absolutes(module: IRModule) -> IRModule:
    """``abs(relu(x))`` → ``relu(x)``."""
    changed = module.clone()
    for name in NEVER_NEGATIVE:
        changed["main"] = _without_absolute(changed["main"], f"relax.{name}")
    return changed


def _without_absolute(function: relax.Function, name: str) -> relax.Function:
    inner = is_op(name)(wildcard())

    def inner_alone(_call: relax.Expr, matches: dict[Any, relax.Expr]) -> relax.Expr:
        return matches[inner]

    return rewrite_call(is_op("relax.abs")(inner), inner_alone, function)
