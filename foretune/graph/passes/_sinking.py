"""Which operators a transpose can sink below, and what becomes of their axes and layouts.

``P`` is ``permute_dims(., axes)``: axis ``i`` of ``P(x)`` is axis ``axes[i]`` of ``x``. A rule
makes ``g`` with ``f(P(x), ...) = P(g(x, ...))``. An operator without a rule keeps its transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

UNARY = frozenset(
    {
        *("relax.abs", "relax.ceil", "relax.cos", "relax.erf", "relax.exp", "relax.floor"),
        *("relax.log", "relax.negative", "relax.round", "relax.rsqrt", "relax.sigmoid"),
        *("relax.sign", "relax.sin", "relax.sqrt", "relax.square", "relax.tanh"),
        *("relax.tan", "relax.atan", "relax.sinh", "relax.cosh", "relax.trunc"),
        *("relax.logical_not", "relax.isnan", "relax.isinf", "relax.isfinite"),
        *("relax.astype", "relax.clip", "relax.nn.relu", "relax.nn.relu6", "relax.nn.gelu"),
        *("relax.nn.gelu_tanh", "relax.nn.silu", "relax.nn.leakyrelu", "relax.nn.softplus"),
        "relax.nn.selu",
    }
)
BINARY = frozenset(
    {
        *("relax.add", "relax.subtract", "relax.multiply", "relax.divide", "relax.power"),
        *("relax.maximum", "relax.minimum", "relax.floor_divide"),
        *("relax.equal", "relax.not_equal", "relax.less", "relax.less_equal"),
        *("relax.greater", "relax.greater_equal", "relax.logical_and", "relax.logical_or"),
    }
)
REDUCE = frozenset({"relax.mean", "relax.sum", "relax.max", "relax.min", "relax.prod"})

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Rule:
    """How a transpose moves below one operator.

    Attributes:
        operands: The operands that have to be transposed alike (or be constants).
        make: The operator on what stands above the transposes; None where it cannot be.
    """

    operands: Callable[[Any], Sequence[Any]]
    make: Callable[[Any, list[Any], Axes], Any]


def rule_of(name: str) -> Rule | None:
    """The rule of a Relax operator, None if it has none."""
    return _RULES.get(name)


def layout_above(letters: str, axes: Axes) -> str:
    """The layout of ``x`` where ``letters`` is that of ``P(x)``."""
    above = [""] * len(letters)
    for letter, axis in zip(letters, axes, strict=True):
        above[axis] = letter
    return "".join(above)


def _relax() -> Any:
    from foretune import _tvm

    return _tvm.tvm.relax


def _first(call: Any) -> Sequence[Any]:
    return [call.args[0]]


def _all(call: Any) -> Sequence[Any]:
    return list(call.args)


def _same(call: Any, sources: list[Any], _axes: Axes) -> Any:
    rest = list(call.args)[len(sources) :]
    return _relax().Call(call.op, [*sources, *rest], call.attrs)


def _reduce(call: Any, sources: list[Any], axes: Axes) -> Any:
    if call.attrs.axis is None:
        return None
    make = getattr(_relax().op, str(call.op.name).removeprefix("relax."))
    return make(sources[0], [axes[int(axis)] for axis in call.attrs.axis], keepdims=True)


def _softmax(call: Any, sources: list[Any], axes: Axes) -> Any:
    make = getattr(_relax().op.nn, str(call.op.name).removeprefix("relax.nn."))
    return make(sources[0], axis=axes[int(call.attrs.axis)])


def _prelu(call: Any, sources: list[Any], axes: Axes) -> Any:
    return _relax().op.nn.prelu(sources[0], call.args[1], axis=axes[int(call.attrs.axis)])


def _pad(call: Any, sources: list[Any], axes: Axes) -> Any:
    if len(call.args) > 1:
        return None
    widths = [int(w) for w in call.attrs.pad_width]
    moved = [0] * len(widths)
    for place, axis in enumerate(axes):
        moved[2 * axis : 2 * axis + 2] = widths[2 * place : 2 * place + 2]
    return _relax().op.nn.pad(sources[0], moved, call.attrs.pad_mode, call.attrs.pad_value)


_IMAGES = frozenset({"NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC"})


def _images(call: Any, axes: Axes) -> str | None:
    """The layout above of a pooling or resizing operator, if it is one that TVM lowers."""
    layout = str(call.attrs.layout)
    same = str(getattr(call.attrs, "out_layout", layout)) in ("", layout)
    above = layout_above(layout, axes) if len(layout) == len(axes) else ""
    return above if same and above in _IMAGES else None


def _pool(call: Any, sources: list[Any], axes: Axes) -> Any:
    layout = _images(call, axes)
    if layout is None:
        return None
    names = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad")
    make = getattr(_relax().op.nn, str(call.op.name).removeprefix("relax.nn."))
    kept = {name: getattr(call.attrs, name) for name in names}
    return make(sources[0], **kept, layout=layout)


def _adaptive_pool(call: Any, sources: list[Any], axes: Axes) -> Any:
    layout = _images(call, axes)
    if layout is None:
        return None
    make = getattr(_relax().op.nn, str(call.op.name).removeprefix("relax.nn."))
    return make(sources[0], call.attrs.output_size, layout)


def _resize(call: Any, sources: list[Any], axes: Axes) -> Any:
    layout = _images(call, axes)
    if layout is None:
        return None
    names = ("method", "coordinate_transformation_mode", "rounding_method", "cubic_alpha")
    kept = {n: getattr(call.attrs, n) for n in (*names, "cubic_exclude", "extrapolation_value")}
    roi = [float(edge.value) for edge in call.attrs.roi]
    return _relax().op.image.resize2d(
        sources[0], call.args[1], roi, layout, **kept, out_dtype=call.attrs.out_dtype
    )


def _group_norm(call: Any, sources: list[Any], axes: Axes) -> Any:
    attrs = call.attrs
    return _relax().op.nn.group_norm(
        sources[0],
        *call.args[1:],
        num_groups=attrs.num_groups,
        channel_axis=axes[int(attrs.channel_axis)],
        axes=sorted(axes[int(axis)] for axis in attrs.axes),
        epsilon=attrs.epsilon,
        center=attrs.center,
        scale=attrs.scale,
    )


def _parts(call: Any) -> Sequence[Any]:
    parts = call.args[0]
    return list(parts.fields) if isinstance(parts, _relax().Tuple) else []


def _concat(call: Any, sources: list[Any], axes: Axes) -> Any:
    if call.attrs.axis is None:
        return None
    return _relax().op.concat(sources, axis=axes[int(call.attrs.axis)])


def _slice(call: Any, sources: list[Any], axes: Axes) -> Any:
    if not isinstance(call.args[1], _relax().Tuple):
        return None
    moved = [axes[int(axis.value)] for axis in call.args[1].fields]
    return _relax().op.strided_slice(
        sources[0], moved, *call.args[2:], assume_inbound=bool(call.attrs.assume_inbound)
    )


_RULES: dict[str, Rule] = {
    **dict.fromkeys(UNARY, Rule(_first, _same)),
    **dict.fromkeys(BINARY, Rule(_all, _same)),
    **dict.fromkeys(REDUCE, Rule(_first, _reduce)),
    **dict.fromkeys(("relax.nn.softmax", "relax.nn.log_softmax"), Rule(_first, _softmax)),
    **{
        f"relax.nn.{kind}_pool{rank}d": Rule(_first, _adaptive_pool if "_" in kind else _pool)
        for kind in ("max", "avg", "adaptive_avg")
        for rank in (1, 2, 3)
    },
    "relax.where": Rule(_all, _same),
    "relax.nn.pad": Rule(_first, _pad),
    "relax.nn.prelu": Rule(_first, _prelu),
    "relax.image.resize2d": Rule(_first, _resize),
    "relax.nn.group_norm": Rule(_first, _group_norm),
    "relax.concat": Rule(_parts, _concat),
    "relax.strided_slice": Rule(_first, _slice),
}
