"""Operators that move elements without computing."""

from __future__ import annotations

import itertools
from typing import Any

from foretune import _tvm
from foretune.operators import elements
from foretune.workload.importers.torch._node import Lowering, Node, NotLoweredError


def _view(node: Node) -> Any:
    return node.reshape(node["self"], node.shape)


def _permute(node: Node) -> Any:
    rank = len(node.shape)
    axes = [int(axis) % rank for axis in node["dims"]] if rank else []
    if axes == sorted(axes):
        return node["self"]
    return node.emit(_tvm.tvm.relax.op.permute_dims(node["self"], axes))


def _transpose(node: Node) -> Any:
    rank = len(node.shape)
    if rank < 2:
        return node["self"]
    axes = list(range(rank))
    first, second = node.axis("dim0"), node.axis("dim1")
    axes[first], axes[second] = second, first
    return node.emit(_tvm.tvm.relax.op.permute_dims(node["self"], axes))


def _expand(node: Node) -> Any:
    return node.broadcast(node["self"], node.shape)


def _repeat(node: Node) -> Any:
    shape, repeats = node.shape_of("self"), [int(n) for n in node["repeats"]]
    value = node.reshape(node["self"], [1] * (len(repeats) - len(shape)) + shape)
    if not repeats or all(n == 1 for n in repeats):
        return value
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    return node.emit(_tvm.tvm.relax.op.tile(value, repeats))


def _concatenate(node: Node) -> Any:
    given = list(zip(node["tensors"], node.raw["tensors"], strict=True))
    # An empty tensor of rank 1 is skipped whatever the others' rank: PyTorch's old convention.
    kept = [
        node.cast(value, node.dtype)
        for value, fake in given
        if not (fake.dim() == 1 and fake.shape[0] == 0) and fake.numel()
    ]
    if not kept:
        return node.full(node.shape, 0, node.dtype)
    if len(kept) == 1:
        return node.reshape(kept[0], node.shape)
    return node.emit(_tvm.tvm.relax.op.concat(kept, int(node["dim"]) % len(node.shape)))


def _slice(node: Node) -> Any:
    shape = node.shape_of("self")
    axis = node.axis("dim")
    if node.shape == shape and int(node["step"]) == 1:
        return node["self"]
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    start, _, step = slice(node["start"], node["end"], node["step"]).indices(shape[axis])
    end = min(start + (node.shape[axis] - 1) * step + 1, shape[axis])
    return node.emit(_tvm.tvm.relax.op.strided_slice(node["self"], [axis], [start], [end], [step]))


def _select(node: Node) -> Any:
    shape, axis = node.shape_of("self"), node.axis("dim")
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    at = int(node["index"]) % shape[axis]
    part = node.emit(_tvm.tvm.relax.op.strided_slice(node["self"], [axis], [at], [at + 1], [1]))
    return node.reshape(part, node.shape)


def _split(node: Node) -> Any:
    relax, shape, axis = _tvm.tvm.relax, node.shape_of("self"), node.axis("dim")
    sizes = node["split_sizes"] if "split_sizes" in node.raw else node["split_size"]
    if isinstance(sizes, int):
        if sizes == 0:
            return [node["self"]]
        sizes = [min(sizes, shape[axis] - at) for at in range(0, shape[axis], sizes)] or [0]
    if 0 in sizes or 0 in shape:
        parts, begin = [], 0
        for size in sizes:
            own = [*shape[:axis], size, *shape[axis + 1 :]]
            parts.append(
                node.full(own, 0, node.dtype)
                if 0 in own
                else node.emit(
                    relax.op.strided_slice(node["self"], [axis], [begin], [begin + size])
                )
            )
            begin += size
        return parts
    if len(sizes) == 1:
        return [node["self"]]
    bounds = list(itertools.accumulate(sizes))[:-1]
    whole = node.emit(relax.op.split(node["self"], bounds, axis))
    return [node.emit(relax.TupleGetItem(whole, at)) for at in range(len(sizes))]


def _unbind(node: Node) -> Any:
    relax, shape, axis = _tvm.tvm.relax, node.shape_of("self"), node.axis("dim")
    rest = [*shape[:axis], *shape[axis + 1 :]]
    return [
        node.reshape(node.emit(relax.op.strided_slice(node["self"], [axis], [at], [at + 1])), rest)
        for at in range(shape[axis])
    ]


def _flip(node: Node) -> Any:
    value, shape = node["self"], node.shape
    axes = {int(axis) % len(shape) for axis in node["dims"]} if shape else set()
    for axis in sorted(axes):
        if shape[axis] > 1:
            value = node.emit(_tvm.tvm.relax.op.flip(value, axis))
    return value


def _diagonal(node: Node) -> Any:
    first, second, offset = node.axis("dim1"), node.axis("dim2"), int(node["offset"])
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    return node.te(lambda x: elements.diagonal(x, offset, first, second), node["self"])


def _as_strided(node: Node) -> Any:
    given = node.raw["self"]
    if not given.is_contiguous() or given.storage_offset():
        raise NotLoweredError("as_strided of a view")
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    offset = int(node["storage_offset"] or 0)
    strides = [int(stride) for stride in node["stride"]]
    flat = node.reshape(node["self"], [given.numel()])
    return node.te(lambda x: elements.strided(x, node.shape, strides, offset), flat)


def _unfold(node: Node) -> Any:
    if not node.shape_of("self"):
        return node.reshape(node["self"], node.shape)
    axis, step = node.axis("dimension"), int(node["step"])
    return node.te(lambda x: elements.windows(x, axis, node.shape, step), node["self"])


def _pad(node: Node) -> Any:
    relax, shape = _tvm.tvm.relax, node.shape_of("self")
    pads = [int(pad) for pad in node["pad"]]
    before, after = [0] * len(shape), [0] * len(shape)
    for at in range(len(pads) // 2):
        before[-1 - at], after[-1 - at] = pads[2 * at], pads[2 * at + 1]
    value = node["self"]
    if 0 in node.shape or 0 in shape:
        return node.full(node.shape, node["value"] or 0, node.dtype)
    if any(pad < 0 for pad in pads):
        axes = list(range(len(shape)))
        begin = [max(-pad, 0) for pad in before]
        end = [n - max(-pad, 0) for n, pad in zip(shape, after, strict=True)]
        value = node.emit(relax.op.strided_slice(value, axes, begin, end))
    widths = [max(w, 0) for pair in zip(before, after, strict=True) for w in pair]
    if not any(widths):
        return value
    fill = node["value"]
    if node.dtype == "bool":
        padded = node.emit(relax.op.nn.pad(node.cast(value, "int8"), widths, "constant", int(fill)))
        return node.cast(padded, "bool")
    return node.emit(relax.op.nn.pad(value, widths, "constant", float(fill or 0)))


def _mirrored(replicate: bool) -> Lowering:
    def lower(node: Node) -> Any:
        pads = [int(pad) for pad in node["padding"]]
        before = [0] * len(node.shape)
        for at in range(len(pads) // 2):
            before[-1 - at] = pads[2 * at]
        return node.te(
            lambda x: elements.padded_by_itself(x, node.shape, before, replicate), node["self"]
        )

    return lower


def _triangle(lower_part: bool) -> Lowering:
    def lower(node: Node) -> Any:
        diagonal = int(node["diagonal"])
        return node.te(lambda x: elements.triangle(x, diagonal, lower_part), node["self"])

    return lower


def _slice_scatter(node: Node) -> Any:
    shape, axis = node.shape, node.axis("dim")
    start, _, step = slice(node["start"], node["end"], node["step"]).indices(shape[axis])
    return _overwritten(node, axis, start, step, node["src"], node.shape_of("src"))


def _select_scatter(node: Node) -> Any:
    shape, axis = node.shape, node.axis("dim")
    source = [*shape[:axis], 1, *shape[axis + 1 :]]
    at = int(node["index"]) % shape[axis]
    return _overwritten(node, axis, at, 1, node.reshape(node["src"], source), source)


def _overwritten(
    node: Node, axis: int, start: int, step: int, source: Any, shape: list[int]
) -> Any:
    if 0 in shape:
        return node["self"]
    value = node.cast(source, node.dtype)
    return node.te(lambda x, y: elements.overwrite(x, y, axis, start, step), node["self"], value)


SHAPES: dict[str, Lowering] = {
    "view.default": _view,
    "_unsafe_view.default": _view,
    "reshape.default": _view,
    "unsqueeze.default": _view,
    "squeeze.default": _view,
    "squeeze.dim": _view,
    "squeeze.dims": _view,
    "permute.default": _permute,
    "transpose.int": _transpose,
    "expand.default": _expand,
    "repeat.default": _repeat,
    "cat.default": _concatenate,
    "slice.Tensor": _slice,
    "select.int": _select,
    "split_with_sizes.default": _split,
    "split.Tensor": _split,
    "unbind.int": _unbind,
    "flip.default": _flip,
    "diagonal.default": _diagonal,
    "as_strided.default": _as_strided,
    "unfold.default": _unfold,
    "constant_pad_nd.default": _pad,
    **{f"reflection_pad{n}d.default": _mirrored(False) for n in (1, 2, 3)},
    **{f"replication_pad{n}d.default": _mirrored(True) for n in (1, 2, 3)},
    "tril.default": _triangle(True),
    "triu.default": _triangle(False),
    "slice_scatter.default": _slice_scatter,
    "select_scatter.default": _select_scatter,
}
