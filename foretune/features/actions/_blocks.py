"""The blocks of an untransformed program: extents, reductions, and how they read their buffers.

Read from TVM once per workload; everything after that is arithmetic on tile sizes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune._arrays import FloatArray

_REDUCTION = 2
"""TVM's number of a block iterator that is a reduction."""


@dataclass(frozen=True)
class Dimension:
    """One dimension of a buffer, as a block indexes it.

    Attributes:
        size: Elements of the buffer in this dimension.
        terms: (position of the axis, coefficient) of every axis in the index.
        linear: Whether the index is the sum of its terms; if not, coefficients are 1 and the
            elements touched are guessed as the product of the tiles.
        base: Elements touched at one point of the axes.
        runs: (position of the axis, n) of every axis along which the index is linear in pieces of
            n iterations only: of groups, of axes that were fused.
    """

    size: int
    terms: tuple[tuple[int, int], ...]
    linear: bool = True
    base: int = 1
    runs: tuple[tuple[int, int], ...] = ()

    def span(self, tiles: Sequence[FloatArray]) -> FloatArray:
        """Elements between the first and the last one touched by a tile: (n,) per axis -> (n,)."""
        touched = np.full_like(tiles[0], self.base)
        for axis, coefficient in self.terms:
            if self.linear:
                touched += abs(coefficient) * (tiles[axis] - 1.0)
            else:
                touched *= tiles[axis]
        return np.minimum(touched, float(self.size))


@dataclass(frozen=True)
class Access:
    """One buffer that a block reads or writes.

    Attributes:
        buffer: Its name.
        bytes: Size of the buffer.
        element_bytes: Size of an element.
        dimensions: Its dimensions, outermost first.
    """

    buffer: str
    bytes: int
    element_bytes: int
    dimensions: tuple[Dimension, ...]

    def footprint(self, tiles: Sequence[FloatArray]) -> FloatArray:
        """Bytes touched by a tile: (n,) per axis -> (n,)."""
        touched = np.full_like(tiles[0], self.element_bytes)
        for dimension in self.dimensions:
            touched *= dimension.span(tiles)
        return touched

    def uses(self, axis: int) -> bool:
        """Whether the index depends on an axis."""
        return any(a == axis for dimension in self.dimensions for a, _ in dimension.terms)

    def contiguous(self, axis: int) -> bool:
        """Whether neighbours along an axis are neighbours in memory."""
        if not self.dimensions or not self.dimensions[-1].linear:
            return False
        outer = any(a == axis for d in self.dimensions[:-1] for a, _ in d.terms)
        return not outer and (axis, 1) in self.dimensions[-1].terms

    def run(self, axis: int) -> int:
        """Iterations along an axis after which the index starts anew or jumps; 0: never."""
        return math.gcd(*(n for d in self.dimensions for a, n in d.runs if a == axis))


@dataclass(frozen=True)
class Block:
    """One block of the untransformed program.

    Attributes:
        name: Its name.
        extents: Iterations of its axes, in the order of its loops.
        reduction: Which axes are reductions.
        reads: Buffers it reads, those it writes left out.
        writes: Buffers it writes.
    """

    name: str
    extents: tuple[int, ...]
    reduction: tuple[bool, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]

    @property
    def iterations(self) -> int:
        """Product of the extents."""
        return math.prod(self.extents)


@functools.lru_cache(maxsize=512)
def blocks_of(module_json: str) -> tuple[Block, ...]:
    """The blocks of a workload's module in their order; none where there is no module."""
    if not module_json:
        return ()
    from foretune import _tvm

    module = _tvm.load_json(module_json)
    schedule = _tvm.Schedule(module, seed=1, debug_mask="none", error_render_level="none")
    root = schedule.get_sblock("root", func_name="main")
    return tuple(_block(schedule.get(block)) for block in schedule.get_child_blocks(root))


def _block(block: Any) -> Block:
    variables = [axis.var for axis in block.iter_vars]
    positions = {str(variable.name): at for at, variable in enumerate(variables)}
    written = {str(region.source.name) for region in block.writes}
    reads = [region for region in block.reads if str(region.source.name) not in written]
    return Block(
        str(block.name_hint),
        tuple(max(1, _constant(axis.dom.extent)) for axis in block.iter_vars),
        tuple(int(axis.iter_type) == _REDUCTION for axis in block.iter_vars),
        tuple(_access(region, variables, positions) for region in reads),
        tuple(_access(region, variables, positions) for region in block.writes),
    )


def _access(region: Any, variables: Sequence[Any], positions: Mapping[str, int]) -> Access:
    shape = [max(1, _constant(size)) for size in region.source.shape]
    element = _element_bytes(str(region.source.dtype))
    dimensions = tuple(
        _dimension(size, where, variables, positions)
        for size, where in zip(shape, region.region, strict=True)
    )
    name = str(region.source.name)
    return Access(name, math.prod(shape) * element, element, dimensions)


def _dimension(
    size: int, where: Any, variables: Sequence[Any], positions: Mapping[str, int]
) -> Dimension:
    from foretune._tvm import tvm

    names = (str(v.name) for v in tvm.tirx.analysis.undefined_vars(where.min))
    used = sorted(positions[name] for name in names if name in positions)
    base = max(1, _constant(where.extent) or size)
    solved = list(tvm.sym.detect_linear_equation(where.min, [variables[at] for at in used]))
    # One coefficient per variable and the constant; nothing where the index is not linear.
    coefficients = [_constant(c) for c in solved[:-1]]
    if len(coefficients) != len(used) or 0 in coefficients:
        runs = _runs(where.min, {at: variables[at] for at in used})
        return Dimension(size, tuple((at, 1) for at in used), False, base, runs)
    return Dimension(size, tuple(zip(used, coefficients, strict=True)), True, base)


def _runs(index: Any, axes: Mapping[int, Any]) -> tuple[tuple[int, int], ...]:
    """``Dimension.runs`` of an index, from the constants that it divides axes by.

    Before → after, for an axis ``f`` at position 3: ``f // 12 * 6 + c`` → ``((3, 12),)``.
    """
    from foretune._tvm import tvm

    divided: list[tuple[Any, int]] = []
    nodes = [index]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (tvm.tirx.FloorDiv, tvm.tirx.FloorMod)):
            divided.append((node.a, _constant(node.b)))
        nodes += [getattr(node, side) for side in ("a", "b") if hasattr(node, side)]
    strides: dict[int, int] = {}
    for dividend, divisor in divided:
        for at, axis in axes.items():
            equation = list(tvm.sym.detect_linear_equation(dividend, [axis]))
            step = abs(_constant(equation[0])) if equation else 0
            if step and divisor > 0:
                strides[at] = math.gcd(strides.get(at, 0), divisor // math.gcd(divisor, step))
    return tuple(sorted(strides.items()))


def _constant(value: Any) -> int:
    """The number behind an expression, 0 where it is none."""
    return int(getattr(value, "value", 0))


def _element_bytes(dtype: str) -> int:
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        # Types that NumPy lacks have 16 or 8 bits.
        return 2 if "16" in dtype else 1
