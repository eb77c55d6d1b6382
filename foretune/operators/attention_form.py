"""What an attention is made of: its operands, what is done to its scores, the machine it is for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretune.operators._script import number
from foretune.operators.views import View

_SUMS = {16: 12, 32: 24}
"""Vector registers to those that hold sums; the others hold operands."""


@dataclass(frozen=True)
class Step:
    """What is done to a score.

    Attributes:
        kind: ``scale``, ``add``, ``keep`` (where a mask is true, else ``value``) or ``drop``
            (where it is false, else ``value``).
        value: The factor, or what a masked score becomes.
        view: Of the mask over ``[n, i, j]``; None for ``scale``.
        dtype: Of the mask.
    """

    kind: str
    value: float = 0.0
    view: View | None = None
    dtype: str = "float32"


@dataclass(frozen=True)
class Attention:
    """One attention.

    Attributes:
        heads: Extent of ``n``.
        rows: Extent of ``i``, L_q.
        columns: Extent of ``j``, L_kv.
        depth: Extent of ``d``.
        width: Extent of the values' last axis.
        query: View over ``[n, i, d]``.
        key: View over ``[n, j, d]``.
        value: View over ``[n, j, width]``, whose last axis is contiguous.
        result: View over ``[n, i, width]``, whose last axis is contiguous.
        scale: Factor of every product.
        steps: What is done to scores, in order.
        causal: Column ``j`` counts for row ``i`` where ``j <= i + columns - rows``.
        safe: A row whose scores are all ``-inf`` gives zeros, as PyTorch's
            ``scaled_dot_product_attention`` has it; NaN otherwise, as softmax has it.
    """

    heads: int
    rows: int
    columns: int
    depth: int
    width: int
    query: View
    key: View
    value: View
    result: View
    scale: float = 1.0
    steps: tuple[Step, ...] = ()
    causal: bool = False
    safe: bool = False


@dataclass(frozen=True)
class Machine:
    """What a kernel is shaped for.

    Attributes:
        lanes: Numbers of float32 in a vector register.
        registers: Vector registers, 16 or 32.
        l2_bytes: Of the second cache of a core.
    """

    lanes: int
    registers: int = 16
    l2_bytes: int = 512 * 1024

    @property
    def sums(self) -> int:
        """Registers for sums."""
        return _SUMS[self.registers]


def operands(a: Attention) -> list[tuple[str, int, str]]:
    """Name, size and type of each argument of the kernel."""
    masks = [step for step in a.steps if step.view is not None]
    sizes = [(f"m{at}", step.view.size, step.dtype) for at, step in enumerate(masks) if step.view]
    views = {"q": a.query, "k": a.key, "v": a.value}
    given = [(name, view.size, "float32") for name, view in views.items()]
    return [*given, *sizes, ("y", a.result.size, "float32")]


def score(a: Attention, value: str, head: str, row: str, column: str) -> str:
    """A product of ``q`` and ``k`` after all steps."""
    masks = 0
    for step in a.steps:
        if step.view is None:
            value = f"({value} * {number(step.value)})"
            continue
        mask = f"m{masks}[{step.view.index(head, row, column)}]"
        masks += 1
        if step.kind == "add":
            value = f"({value} + {mask})"
        else:
            kept, lost = value, number(step.value)
            if step.kind == "drop":
                kept, lost = lost, kept
            value = f"T.Select({mask}, {kept}, {lost})"
    if a.causal:
        last = f"{row} + {a.columns - a.rows}"
        value = f"T.Select({column} <= {last}, {value}, {number(-float('inf'))})"
    return value


def grouped(a: Attention) -> Attention:
    """Heads that share keys as further rows, where rows are few: keys are read once for all.

    Before → after: 32 heads of one row over 8 heads of keys → 8 heads of 4 rows.
    """
    group = a.key.shared()
    if a.causal or group < 2 or group != a.value.shared() or a.heads % group or a.rows > 4:
        return a
    masks = [step.view.grouped(group) for step in a.steps if step.view is not None]
    query, result = a.query.grouped(group), a.result.grouped(group)
    key, value = a.key.ungrouped(group), a.value.ungrouped(group)
    if query is None or result is None or key is None or value is None or None in masks:
        return a
    left = iter(masks)
    steps = [s if s.view is None else replace(s, view=next(left)) for s in a.steps]
    return replace(
        a, heads=a.heads // group, rows=a.rows * group, query=query, key=key, value=value,
        result=result, steps=tuple(steps),
    )  # fmt: skip
