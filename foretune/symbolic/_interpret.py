"""Interpreting a sketch's trace with decisions left open.

Every instruction does to the tree of loops and blocks what TVM's schedule primitive of that name
does, with extents that are scalars. Where a block is computed decides the structure of the tree, so
locations are given; tile factors and choices stay open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from foretune.space.decision import Choice, PerfectTile
from foretune.space.trace import Trace, snake_case
from foretune.symbolic._blocks import BlockTree
from foretune.symbolic._nodes import Block, Loop, UnsupportedTraceError
from foretune.symbolic._scalar import Scalar
from foretune.symbolic._tree import blocks_of

if TYPE_CHECKING:
    from foretune.space.sketch import Sketch

Reference = Union[Block, Loop, Scalar, int, None]  # noqa: UP007 - evaluated at run time

_LAYOUT_FREE = "layout_free_buffers"
_IGNORED = frozenset({"StorageAlign"})


class Interpreter(BlockTree):
    """The tree of a sketch after its trace.

    Args:
        sketch: Whose trace.
        fixed: Decisions that decide structure: location variables by index.

    Attributes:
        columns: (index of the variable, part of its tile) of each open number.
        variables: Their scalars.
        annotations: Of the root block.

    Raises:
        UnsupportedTraceError: An instruction or statement is not known.
    """

    def __init__(self, sketch: Sketch, fixed: Mapping[int, int]) -> None:
        function = sketch.workload.module["main"]
        if _LAYOUT_FREE in (function.attrs or {}):
            raise UnsupportedTraceError("post-processor RewriteLayout", "changes buffer layouts")
        super().__init__(function)
        self.sketch = sketch
        self.columns: list[tuple[int, int]] = []
        self.variables: list[Scalar] = []
        self.annotations: dict[str, Scalar] = {}
        self._fixed = fixed
        self._names: dict[str, Reference] = {}
        self._at = {position: index for index, position in enumerate(sketch.positions)}
        trace = Trace.from_text(sketch.trace)
        self._recorded = trace.decisions
        for position, (kind, inputs, attributes, outputs) in enumerate(trace.instructions):
            if kind in _IGNORED:
                continue
            apply: Callable[..., Any] | None = getattr(self, f"_do_{snake_case(kind)}", None)
            if apply is None:
                raise UnsupportedTraceError(f"instruction {kind}", "is not known")
            self._position = position
            results = apply(self._resolve(inputs), attributes)
            if outputs:
                values = results if isinstance(results, list) else [results]
                self._names.update(zip(outputs, values, strict=True))

    # What instructions refer to.

    def _resolve(self, inputs: Sequence[Any]) -> list[Any]:
        resolved: list[Any] = []
        for each in inputs:
            if isinstance(each, list):
                resolved.append(self._resolve(each))
            elif isinstance(each, str) and each in self._names:
                resolved.append(self._names[each])
            elif each == "None":
                resolved.append(None)
            elif isinstance(each, str):
                resolved.append(each.strip('"'))
            else:
                resolved.append(self.algebra.number(each) if isinstance(each, int) else each)
        return resolved

    # Sampling.

    def _variable(self, kind: type[Any]) -> tuple[int, Any] | None:
        index = self._at.get(self._position)
        if index is None:
            return None
        variable = self.sketch.variables[index]
        assert isinstance(variable, kind)
        return index, variable

    def _do_sample_perfect_tile(self, _inputs: list[Any], _attributes: Any) -> list[Scalar]:
        own = self._variable(PerfectTile)
        if own is None:
            return [self.algebra.number(f) for f in self._recorded[self._position]]
        index, variable = own
        names = [f"{variable.name}.{part}" for part in range(variable.parts)]
        factors = self.algebra.tile(names, variable.extent)
        self.columns += [(index, part) for part in range(variable.parts)]
        self.variables += factors
        return factors

    _do_sample_partitioned_tile = _do_sample_perfect_tile

    def _choice(self, index: int, variable: Choice) -> Scalar:
        value = self.algebra.variable(variable.name, int(max(variable.values)))
        self.columns.append((index, 0))
        self.variables.append(value)
        return value

    def _do_sample_categorical(self, _inputs: list[Any], attributes: Any) -> Scalar:
        own = self._variable(Choice)
        if own is None:
            return self.algebra.number(attributes[0][self._recorded[self._position]])
        return self._choice(*own)

    def _do_sample_compute_location(self, inputs: list[Any], _attributes: Any) -> Loop | int:
        index = self._at.get(self._position)
        decision = int(self._recorded[self._position] if index is None else self._fixed[index])
        if decision < 0:
            return decision
        return self._consumers(inputs[0])[0].loops()[decision]

    # Looking up.

    def _do_get_sblock(self, _inputs: list[Any], attributes: Any) -> Block | None:
        name = attributes[0]
        for block in self.blocks():
            if block.name == name:
                return block
        if name != "root":
            raise UnsupportedTraceError(f"block {name}", "is not in the program")
        return None

    def _do_get_loops(self, inputs: list[Any], _attributes: Any) -> list[Loop]:
        loops: list[Loop] = inputs[0].loops()
        return loops

    def _do_get_child_blocks(self, inputs: list[Any], _attributes: Any) -> list[Block]:
        return self.blocks() if inputs[0] is None else list(blocks_of(inputs[0].body))

    def _do_get_consumers(self, inputs: list[Any], _attributes: Any) -> list[Block]:
        return self._consumers(inputs[0])

    def _do_get_producers(self, inputs: list[Any], _attributes: Any) -> list[Block]:
        return self._producers(inputs[0])

    def _do_bind(self, inputs: list[Any], attributes: Any) -> None:
        inputs[0].thread = attributes[0]

    def _do_annotate(self, inputs: list[Any], attributes: Any) -> None:
        target, value = inputs
        own = self._variable(Choice) if self._position in self._at else None
        if own is not None:
            value = self._choice(*own)
        if target is None:
            self.annotations[attributes[0]] = value
        else:
            target.annotations[attributes[0]] = value

    def _do_unannotate(self, inputs: list[Any], attributes: Any) -> None:
        if inputs[0] is not None:
            inputs[0].annotations.pop(attributes[0], None)

    def _do_set_scope(self, inputs: list[Any], attributes: Any) -> None:
        inputs[0].target.scope = attributes[1]
