"""What a tensor program computes, whatever its names and epilogues: signature and operator kind.

Both look at the *main block*: the reduction with the most iterations, which is where a tensor
program spends its time. What is fused before and after it (padding, bias, activation, residual) is
left out, so that a convolution with another activation is the same computation on the same shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from foretune.workload._base import Workload

_REDUCTION_AXIS = 2  # tvm.tirx.IterVar.CommReduce

OPERATOR_KINDS = (
    "attention",
    "batch_matmul",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "dense",
    "depthwise",
    "dilated_conv2d",
    "elementwise",
    "gated_mlp",
    "group_conv2d",
    "norm",
    "pool",
    "reduction",
    "softmax",
    "squeeze_excite",
)
"""Everything that ``operator_kind`` gives."""


def signature(workload: Workload) -> str:
    """Operation, buffer shapes and loop extents of the main block, as one line of text.

    Dimensions of 1 are dropped and the rest of each shape is sorted, so that layouts, transposed
    operands and a batch of one make no difference. Two programs of one signature may still differ
    (a softmax and a row maximum have the same main block): it is meant for leaving out too much
    rather than too little. Element types do not count either.

    For example ``Add reads 30x30x128 3x3x128x128 writes 28x28x128 spatial 28x28x128 reduced
    3x3x128`` for a 3x3 convolution with padding.
    """
    blocks = _blocks(workload)
    if not blocks:
        parameters = [_shape(var.ty.shape) for var in workload.module["main"].params]
        return f"opaque parameters {' '.join(sorted(parameters))}"
    main = _main(blocks)
    reads = sorted(_buffer_shape(region.source) for region in main.node.reads)
    writes = sorted(_buffer_shape(region.source) for region in main.node.writes)
    return (
        f"{'+'.join(sorted(main.operations))} reads {' '.join(reads)} writes {' '.join(writes)} "
        f"spatial {_shape(main.extents(False))} reduced {_shape(main.extents(True))}"
    )


def operator_kind(workload: Workload) -> str:
    """What kind of operator a program is: one of ``OPERATOR_KINDS``.

    Judged from the structure of the reductions: how many buffers are multiplied, which axes they
    share, and whether an index adds an output axis and a reduced one (a window). Only transposed
    convolution, where it is not by phases, and pooling are known by the names that TOPI gives their
    blocks. A mean or a variance by itself is a "reduction"; with the square root that makes use of
    it, a "norm". Programs without a reduction, those that only move data included, are
    "elementwise".
    """
    blocks = _blocks(workload)
    reductions = [block for block in blocks if block.reduced]
    if not reductions:
        return "elementwise"
    products = [block for block in reductions if block.operands]
    if len(products) > 1:
        return _kind_of_several(reductions, products)
    return _kind_of_product(blocks, products[0]) if products else _kind_of_sum(blocks, reductions)


@dataclass(frozen=True, eq=False)
class _Block:
    """A block with its loops.

    Attributes:
        node: TVM's ``SBlock``.
        stores: The values it stores; a reduction over a pair of buffers has two.
        reduced: Positions of the reduced ones among its axes.
    """

    node: Any
    stores: tuple[Any, ...]
    reduced: frozenset[int]

    @property
    def name(self) -> str:
        return str(self.node.name_hint)

    @property
    def operations(self) -> set[str]:
        """The outermost operation of what it stores: that of a reduction is how it combines."""
        return {type(value).__name__ for value in self.stores}

    def extents(self, reduced: bool) -> list[int]:
        """Extents of its reduced axes, or of the others."""
        return [
            _extent(axis.dom.extent)
            for at, axis in enumerate(self.node.iter_vars)
            if (at in self.reduced) is reduced
        ]

    @property
    def iterations(self) -> int:
        return math.prod(self.extents(True)) * math.prod(self.extents(False))

    @property
    def operands(self) -> tuple[Any, ...]:
        """The two loads whose product it sums up; empty if it does something else."""
        for value in self.stores:
            for term in (value.a, value.b) if type(value).__name__ == "Add" else ():
                loads = _factors(term)
                if len(loads) == 2 and all(self.axes(load) & self.reduced for load in loads):
                    return loads
        return ()

    def axes(self, expression: Any) -> frozenset[int]:
        """Positions of the axes that an expression depends on."""
        nodes = list(_walk(expression))
        return frozenset(
            at
            for at, axis in enumerate(self.node.iter_vars)
            if any(node.same_as(axis.var) for node in nodes)
        )

    def longer(self, positions: frozenset[int]) -> frozenset[int]:
        """Those of the axes that have more than one iteration."""
        axes = self.node.iter_vars
        return frozenset(at for at in positions if _extent(axes[at].dom.extent) > 1)

    def windows(
        self, load: Any, but: frozenset[int] = frozenset()
    ) -> list[tuple[Any, frozenset[int]]]:
        """Indices of a load that add up an output axis, none of ``but``, and a reduced one.

        Returns:
            Each index with the positions of the reduced axes in it.
        """
        windows_of = []
        for index in load.indices:
            axes = self.axes(index)
            if axes & self.reduced and axes - self.reduced - but:
                windows_of.append((index, axes & self.reduced))
        return windows_of


def _blocks(workload: Workload) -> list[_Block]:
    """The blocks that compute something, in the order of the program."""
    blocks = []
    for node in _walk(workload.module["main"].body):
        if type(node).__name__ != "SBlock" or len(node.iter_vars) == 0:
            continue
        below = list(_walk(node.body))
        if any(type(other).__name__ == "SBlock" for other in below):
            continue
        stores = tuple(other.value for other in below if type(other).__name__ == "BufferStore")
        reduced = frozenset(
            at for at, axis in enumerate(node.iter_vars) if axis.iter_type == _REDUCTION_AXIS
        )
        blocks.append(_Block(node, stores, reduced))
    return blocks


def _main(blocks: Sequence[_Block]) -> _Block:
    """The reduction with the most iterations; without any, the block with the most."""
    reductions = [block for block in blocks if block.reduced]
    # Of several equal ones the first.
    return max(reductions or blocks, key=lambda block: block.iterations)


def _kind_of_several(reductions: Sequence[_Block], products: Sequence[_Block]) -> str:
    others = [block for block in reductions if block not in products]
    if any("Max" in block.operations for block in others):
        return "attention"
    return "squeeze_excite" if others else "gated_mlp"


def _kind_of_product(blocks: Sequence[_Block], product: _Block) -> str:
    left, right = product.operands
    shared = product.longer((product.axes(left) & product.axes(right)) - product.reduced)
    windows = max((product.windows(load, shared) for load in (left, right)), key=len)
    if not windows:
        return "batch_matmul" if shared else "dense"
    dilated = any(block.name.startswith(("data_dilate", "kernel_transform")) for block in blocks)
    # By phases, both the place that is read and the part of the kernel depend on the phase.
    if dilated or any(product.axes(index) & shared for index, _ in windows):
        return "conv2d_transpose"
    if len(windows) == 2 and shared:
        inside = frozenset(at for _, axes in windows for at in axes)
        return "group_conv2d" if product.longer(product.reduced - inside) else "depthwise"
    if len(windows) == 2 and any(_is_dilated(product, *window) for window in windows):
        return "dilated_conv2d"
    return f"conv{min(len(windows), 3)}d"


def _is_dilated(block: _Block, index: Any, reduced: frozenset[int]) -> bool:
    """Whether steps of the window are longer than one: ``y + 2 * window``."""
    return any(
        type(node).__name__ == "Mul" and block.longer(block.axes(node) & reduced)
        for node in _walk(index)
    )


def _kind_of_sum(blocks: Sequence[_Block], reductions: Sequence[_Block]) -> str:
    main = _main(reductions)
    loads = [node for value in main.stores for node in _loads(value)]
    if "pool" in main.name or any(main.windows(load) for load in loads):
        return "pool"
    if {"Add", "Max"} <= {operation for block in reductions for operation in block.operations}:
        return "softmax"
    if any(_has_root(value) for block in blocks for value in block.stores):
        return "norm"
    # What is left of a pooling whose window is the whole image.
    return "pool" if len(main.longer(main.reduced)) > 1 else "reduction"


def _has_root(expression: Any) -> bool:
    """Whether a square root or its inverse is taken."""
    return any(
        type(node).__name__ == "Call" and str(getattr(node.op, "name", "")).endswith("sqrt")
        for node in _walk(expression)
    )


def _factors(expression: Any) -> tuple[Any, ...]:
    """The loads of two different buffers that an expression multiplies; empty if it does not."""
    if type(expression).__name__ != "Mul":
        return ()
    sides = [_loads(expression.a), _loads(expression.b)]
    if any(len(side) != 1 for side in sides) or sides[0][0].source.same_as(sides[1][0].source):
        return ()
    return sides[0][0], sides[1][0]


def _loads(expression: Any) -> list[Any]:
    return [node for node in _walk(expression) if type(node).__name__ == "TensorLoad"]


def _walk(node: Any) -> Iterator[Any]:
    """Every statement and expression from a node downwards, in the order of the program."""
    from foretune import _tvm

    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(_tvm.children(top)))


def _buffer_shape(buffer: Any) -> str:
    return _shape(buffer.ty.shape)


def _shape(extents: Sequence[Any]) -> str:
    """Extents above 1 in ascending order, ``"1"`` if there is none."""
    longer = sorted(extent for extent in map(_extent, extents) if extent != 1)
    return "x".join(map(str, longer)) or "1"


def _extent(extent: Any) -> int:
    """A length; 0 where it depends on the data."""
    return int(extent) if isinstance(extent, int) or hasattr(extent, "value") else 0
