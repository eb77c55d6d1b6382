"""Where the operands of a kernel come from: views through which it reads another tensor.

A kernel that takes a view needs no transpose, split or repetition of its operand. Uses are counted
so that nothing that someone else reads is computed a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from foretune.graph.passes.rewrites import PERMUTE, axes_of, call_of, extents, is_constant, scalar
from foretune.operators.views import View

if TYPE_CHECKING:
    from foretune._tvm import IRModule

_RESHAPES = frozenset({"relax.reshape", "relax.expand_dims", "relax.squeeze"})
_BROADCAST = frozenset({"relax.broadcast_to"})
_REPEAT = frozenset({"relax.repeat"})
_SPLIT = frozenset({"relax.split"})
_SLICE = frozenset({"relax.strided_slice"})
MULTIPLY = frozenset({"relax.multiply"})
DIVIDE = frozenset({"relax.divide"})

_Change = Callable[[View], View | None]


class Operand(NamedTuple):
    """A tensor as a view of another, times a number."""

    source: Any
    view: View
    factor: float = 1.0


class Bindings:
    """What the variables of ``main`` are bound to, and who uses them."""

    def __init__(self, module: IRModule) -> None:
        from foretune import _tvm

        self._relax = _tvm.tvm.relax
        main = module["main"]
        self._values: dict[Any, Any] = {}
        self._uses: Counter[Any] = Counter()
        self._users: dict[Any, Any] = {}
        free = self._relax.analysis.free_vars
        blocks = main.body.blocks if isinstance(main.body, self._relax.SeqExpr) else []
        for binding in (each for block in blocks for each in block.bindings):
            value = getattr(binding, "value", None)
            if value is None:
                continue
            self._values[binding.var] = value
            for variable in self._variables(value):
                self._uses[variable] += 1
                self._users[variable] = binding.var
        for variable in free(main.body.body):
            self._uses[variable] += 2  # what is returned stays

    def calls(self) -> Iterator[tuple[Any, Any]]:
        """Each variable that is bound to a call, with the call, in order."""
        for variable, value in self._values.items():
            if isinstance(value, self._relax.Call):
                yield variable, value

    def value(self, expression: Any) -> Any:
        """What a variable is bound to; other expressions themselves."""
        return self._values.get(expression, expression)

    def uses(self, variable: Any) -> int:
        """How many operands a variable is."""
        return self._uses[variable]

    def user(self, variable: Any) -> Any | None:
        """The variable of the one binding that uses ``variable``; None where there are several."""
        return self._users[variable] if self._uses[variable] == 1 else None

    def _variables(self, value: Any) -> list[Any]:
        """The variables that are operands, each as often as it is one."""
        relax = self._relax
        if isinstance(value, relax.Var):
            return [value]
        fields = getattr(value, "args", None) or getattr(value, "fields", None) or ()
        if isinstance(value, relax.TupleGetItem):
            fields = [value.tuple_value]
        variables = [v for field in fields for v in self._variables(field)]
        return variables or list(relax.analysis.free_vars(value))

    def operand(
        self, expression: Any, accepted: Callable[[View], View | None], scaled: bool = False
    ) -> Operand | None:
        """The farthest tensor of which ``expression`` is a view that a kernel takes.

        Args:
            expression: A tensor.
            accepted: The view as the kernel has it; None where it does not take one.
            scaled: Whether the tensor may be a multiple of the other one.
        """
        changes: list[_Change] = []
        factor = 1.0
        best: Operand | None = None
        while True:
            view: View | None = View.of(extents(expression))
            for change in reversed(changes):
                view = None if view is None else change(view)
            taken = None if view is None else accepted(view)
            if taken is not None:
                best = Operand(expression, taken, factor)
            value = self.value(expression)
            step = self._step(value)
            if step is not None:
                source, change = step
                changes.append(change)
            else:
                multiple = multiple_of(value) if scaled else None
                if multiple is None:
                    return best
                source, number = multiple
                factor *= number
            expression = source

    def _step(self, value: Any) -> tuple[Any, _Change] | None:
        """A tensor that ``value`` is a view of, and how."""
        relax = self._relax
        if isinstance(value, relax.TupleGetItem):
            return self._part(value)
        if not isinstance(value, relax.Call):
            return None
        shape = extents(value)
        if call_of(value, _RESHAPES):
            return value.args[0], lambda view: view.reshaped(shape)
        if call_of(value, PERMUTE):
            return value.args[0], lambda view: view.permuted(axes_of(value))
        if call_of(value, _BROADCAST):
            return value.args[0], lambda view: view.broadcast(shape)
        if call_of(value, _REPEAT) and value.attrs.axis is not None:
            axis, times = int(value.attrs.axis) % len(shape), int(value.attrs.repeats)
            return value.args[0], lambda view: view.repeated(axis, times)
        return self._slice(value) if call_of(value, _SLICE) else None

    def _slice(self, value: Any) -> tuple[Any, _Change] | None:
        """A slice with steps of one."""
        lists = [_numbers(argument) for argument in value.args[1:]]
        if len(lists) < 3 or None in lists:
            return None
        axes, begins = lists[:2]
        if any(step != 1 for step in (lists[3] or () if len(lists) > 3 else ())):
            return None
        before, after = extents(value.args[0]), extents(value)

        def narrowed(view: View) -> View | None:
            part: View | None = view
            for axis, begin in zip(axes or (), begins or (), strict=True):
                at, length = axis % len(before), before[axis]
                start = min(max(begin + length if begin < 0 else begin, 0), length)
                part = part and part.narrowed(at, start, after[at])
            return part

        return value.args[0], narrowed

    def _part(self, value: Any) -> tuple[Any, _Change] | None:
        """One of the parts of a split."""
        split = self.value(value.tuple_value)
        if not call_of(split, _SPLIT):
            return None
        parts = [[int(e) for e in part.shape] for part in split.ty.fields]
        axis = int(split.attrs.axis) % len(parts[0])
        begin = sum(part[axis] for part in parts[: value.index])
        return split.args[0], lambda view: view.narrowed(axis, begin, parts[value.index][axis])


def _numbers(expression: Any) -> list[int] | None:
    """The integers of a tuple of constants."""
    fields = getattr(expression, "fields", None)
    if fields is None:
        return None
    scalars = [scalar(field) for field in fields]
    return None if None in scalars else [int(value) for value in scalars if value is not None]


def multiple_of(value: Any) -> tuple[Any, float] | None:
    """The tensor that a call multiplies (or divides) by a number, and the factor."""
    if call_of(value, MULTIPLY):
        for one, other in (value.args, reversed(value.args)):
            number = scalar(other) if is_constant(other) else None
            if number is not None and extents(one) == extents(value):
                return one, float(number)
    if call_of(value, DIVIDE) and is_constant(value.args[1]):
        number = scalar(value.args[1])
        if number and extents(value.args[0]) == extents(value):
            return value.args[0], 1.0 / float(number)
    return None
