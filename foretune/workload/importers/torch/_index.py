"""Operators that read or write at positions given by tensors."""

from __future__ import annotations

from typing import Any

from foretune import _tvm
from foretune.operators import elements
from foretune.workload.importers.torch._node import Lowering, Node, NotLoweredError


def _index(node: Node) -> Any:
    pairs = [
        (axis, position, fake)
        for axis, (position, fake) in enumerate(
            zip(node["indices"], node.raw["indices"], strict=True)
        )
        if position is not None
    ]
    _refuse_masks([fake for _, _, fake in pairs])
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    axes = [axis for axis, _, _ in pairs]
    positions = [position for _, position, _ in pairs]
    return node.te(
        lambda x, *given: elements.index(x, given, axes, node.shape), node["self"], *positions
    )


def _refuse_masks(fakes: list[Any]) -> None:
    if any(str(fake.dtype) in ("torch.bool", "torch.uint8") for fake in fakes):
        raise NotLoweredError("a mask as index gives a size that depends on values")


def _index_select(node: Node) -> Any:
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    if not node.shape_of("self"):
        return node["self"]
    axis = node.axis("dim")
    position = node.reshape(node["index"], [node.shape[axis]])
    return node.te(lambda x, p: elements.index(x, [p], [axis], node.shape), node["self"], position)


def _embedding(node: Node) -> Any:
    """TVM's ``take``, kept inside the table: PyTorch refuses tokens that lie outside."""
    relax, shape = _tvm.tvm.relax, node.shape_of("indices")
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    position = node.cast(node["indices"], "int32")
    if len(shape) != 1:
        position = node.reshape(position, [_count(shape)])
    taken = node.emit(relax.op.take(node["weight"], position, axis=0, mode="clip"))
    return node.reshape(taken, node.shape)


def _gather(node: Node) -> Any:
    if 0 in node.shape:
        return node.full(node.shape, 0, node.dtype)
    if not node.shape_of("self"):
        return node.reshape(node["self"], node.shape)
    axis = node.axis("dim")
    return node.te(lambda x, p: elements.gather(x, p, axis), node["self"], node["index"])


def _scatter(reduction: str = "update") -> Lowering:
    def lower(node: Node) -> Any:
        value = node["value"] if "value" in node.raw else None
        shape = node.shape_of("index")
        if value is not None:
            source = node.full(shape, value, node.dtype)
        else:
            source = _corner(node, node["src"], node.shape_of("src"), shape)
        return _scattered(node, node["self"], source, reduction)

    return lower


def _corner(node: Node, value: Any, have: list[int], wanted: list[int]) -> Any:
    """The part of a source that the index reads."""
    if have == wanted or 0 in wanted:
        return value
    axes = list(range(len(wanted)))
    return node.emit(_tvm.tvm.relax.op.strided_slice(value, axes, [0] * len(wanted), wanted))


def _scattered(node: Node, data: Any, source: Any, reduction: str) -> Any:
    relax, shape = _tvm.tvm.relax, node.shape
    if 0 in node.shape_of("index") or 0 in shape:
        return data
    index, axis = node["index"], node.axis("dim")
    if not shape:
        data, source, index = (node.reshape(v, [1]) for v in (data, source, index))
    elif not node.shape_of("index"):
        source, index = (node.reshape(v, [1] * len(shape)) for v in (source, index))
    dtype = node.dtype
    work = {"bool": "int8", "float16": "float32", "bfloat16": "float32"}.get(dtype, dtype)
    data, source = node.cast(data, work), node.cast(source, work)
    written = node.emit(relax.op.scatter_elements(data, index, source, axis, reduction))
    return node.reshape(node.cast(written, dtype), shape)


def _scatter_reduce(node: Node) -> Any:
    name = node["reduce"]
    reductions = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}
    if name not in reductions or (name == "mean" and not node.dtype.startswith("float")):
        raise NotLoweredError(f"scatter_reduce by {name}")
    relax, wanted = _tvm.tvm.relax, node.shape_of("index")
    source = _corner(node, node["src"], node.shape_of("src"), wanted)
    data = node["self"]
    if not node["include_self"]:
        start = _neutral(name, node.dtype)
        data = _scattered(node, data, node.full(wanted, start, node.dtype), "update")
    result = _scattered(node, data, source, reductions[name])
    if name != "mean":
        return result
    ones = node.full(wanted, 1, node.dtype)
    count = node.full(node.shape, 1, node.dtype)
    if not node["include_self"]:
        zeros = node.full(wanted, 0, node.dtype)
        count = _scattered(node, count, zeros, "update")
    count = _scattered(node, count, ones, "add")
    return node.emit(relax.op.divide(result, count))


def _neutral(name: str, dtype: str) -> float:
    if name in ("sum", "mean"):
        return 0
    if name == "prod":
        return 1
    largest = name == "amin"
    if dtype.startswith(("float", "bfloat")):
        return float("inf") if largest else float("-inf")
    import numpy as np

    limits = np.iinfo("int8" if dtype == "bool" else dtype)
    return int(limits.max if largest else limits.min)


def _index_put(node: Node) -> Any:
    relax, shape = _tvm.tvm.relax, node.shape
    fakes = [fake for fake in node.raw["indices"] if fake is not None]
    masks = [str(fake.dtype) == "torch.bool" for fake in fakes]
    if len(fakes) == 1 and masks[0] and not node.raw["values"].numel() > 1:
        return _masked_put(node, fakes[0])
    _refuse_masks(fakes)
    if 0 in shape or any(fake.numel() == 0 for fake in fakes) or not fakes:
        return node["self"]
    given = [axis for axis, value in enumerate(node["indices"]) if value is not None]
    order = [*given, *(axis for axis in range(len(shape)) if axis not in given)]
    picked = _broadcast_shape([list(fake.shape) for fake in fakes])
    rest = [shape[axis] for axis in order[len(given) :]]
    first = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    before = [shape[axis] for axis in range(first)]
    result_shape = [*before, *picked, *rest[first:]]
    values = node.broadcast(node.cast(node["values"], node.dtype), result_shape)
    if first:
        rank = len(picked)
        axes = [*range(first, first + rank), *range(first), *range(first + rank, len(result_shape))]
        values = node.emit(relax.op.permute_dims(values, axes))
    data = node["self"]
    if order != sorted(order):
        data = node.emit(relax.op.permute_dims(data, order))
    # Flat: one row per position, so that one scatter over rows does it.
    rows = _count([shape[axis] for axis in given])
    row = _row_number(node, given, picked)
    width, count = _count(rest), _count(picked)
    data = node.reshape(data, [rows, width])
    values = node.reshape(values, [count, width])
    row = node.broadcast(node.reshape(row, [count, 1]), [count, width])
    work = {"bool": "int8", "float16": "float32", "bfloat16": "float32"}.get(node.dtype, node.dtype)
    mode = "add" if node["accumulate"] else "update"
    data, values = node.cast(data, work), node.cast(values, work)
    data = node.cast(node.emit(relax.op.scatter_elements(data, row, values, 0, mode)), node.dtype)
    data = node.reshape(data, [shape[axis] for axis in order])
    if order != sorted(order):
        back = [order.index(axis) for axis in range(len(shape))]
        data = node.emit(relax.op.permute_dims(data, back))
    return data


def _masked_put(node: Node, mask: Any) -> Any:
    shape = node.shape
    if node["accumulate"]:
        raise NotLoweredError("adding by a mask")
    position = next(axis for axis, value in enumerate(node["indices"]) if value is not None)
    value = node["indices"][position]
    wide = [1] * position + [int(n) for n in mask.shape]
    wide += [1] * (len(shape) - len(wide))
    condition = node.broadcast(node.reshape(value, wide), shape)
    new = node.reshape(node.cast(node["values"], node.dtype), [1] * len(shape))
    return node.emit(_tvm.tvm.relax.op.where(condition, new, node["self"]))


def _row_number(node: Node, given: list[int], picked: list[int]) -> Any:
    relax, total = _tvm.tvm.relax, None
    for axis in given:
        extent = node.shape[axis]
        position = node.cast(node["indices"][axis], "int64")
        size = node.const(extent, "int64")
        negative = relax.op.less(position, node.const(0, "int64"))
        position = node.emit(relax.op.where(negative, relax.op.add(position, size), position))
        if total is not None:
            position = node.emit(relax.op.add(relax.op.multiply(total, size), position))
        total = position
    return node.broadcast(total, picked)


def _broadcast_shape(shapes: list[list[int]]) -> list[int]:
    import numpy as np

    return [int(n) for n in np.broadcast_shapes(*(tuple(shape) for shape in shapes))]


def _count(shape: list[int]) -> int:
    total = 1
    for extent in shape:
        total *= int(extent)
    return total


def _masked_fill(node: Node) -> Any:
    value = node["value"]
    new = (
        node.const(value, node.dtype)
        if isinstance(value, (bool, int, float))
        else node.cast(value, node.dtype)
    )
    chosen = node.emit(_tvm.tvm.relax.op.where(node["mask"], new, node["self"]))
    return node.broadcast(chosen, node.shape)


INDEX: dict[str, Lowering] = {
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "index_select.default": _index_select,
    "embedding.default": _embedding,
    "gather.default": _gather,
    "scatter.src": _scatter(),
    "scatter.value": _scatter(),
    "scatter_add.default": _scatter("add"),
    "scatter_reduce.two": _scatter_reduce,
    "index_put.default": _index_put,
    "_unsafe_index_put.default": _index_put,
    "masked_fill.Scalar": _masked_fill,
    "masked_fill.Tensor": _masked_fill,
}
