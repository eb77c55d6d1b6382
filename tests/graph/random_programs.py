"""Small Relax programs of the operators that the graph passes have rules for, from a seed.

Transposes and reshapes stand between all others, axes count from either end, constants have
every rank that broadcasts, and extents repeat, so that a wrong axis keeps the shape and only the
values tell.
"""

from __future__ import annotations

import numpy as np

from foretune import _tvm
from tests.graph.programs import constant

relax = _tvm.tvm.relax
op = relax.op


def program(seed, steps=7, makers=None, wide=False):
    """The module, and an input for it, one axis of which is ``wide``, if that is wanted."""
    makers = MAKERS if makers is None else makers
    rng = np.random.default_rng(seed)
    dtype = "float32" if rng.random() < 0.85 else "int32"
    extents = [int(n) for n in rng.choice([1, 2, 3, 3, 4, 4], rng.integers(2, 5))]
    if wide:
        extents[int(rng.integers(len(extents)))] = int(rng.choice([16, 17, 32]))
    x = numbers(rng, extents, dtype)
    builder = relax.BlockBuilder()
    parameter = relax.Var("x", relax.TensorType(x.shape, dtype))
    with builder.function("main", [parameter]):
        with builder.dataflow():
            values = [parameter]
            for _ in range(steps):
                draw = makers[int(rng.integers(len(makers)))]
                operand = (
                    values[-1] if rng.random() < 0.8 else values[int(rng.integers(len(values)))]
                )
                made = draw(rng, operand, values)
                if made is not None:
                    values.append(builder.emit(made))
                    if isinstance(values[-1].ty, relax.TupleType):
                        part = int(rng.integers(len(values[-1].ty.fields)))
                        values[-1] = builder.emit(relax.TupleGetItem(values[-1], part))
            chosen = {len(values) - 1, int(rng.integers(len(values)))}
            outputs = relax.Tuple([values[i] for i in sorted(chosen)])
            result = builder.emit_output(outputs)
        builder.emit_func_output(result)
    return builder.get(), x


def numbers(rng, shape, dtype):
    """Quarters or small whole numbers: many of them equal, some zero."""
    drawn = rng.integers(-6, 7, shape)
    return np.asarray(drawn if dtype == "int32" else drawn / 4).astype(dtype)


def shape_of(x):
    return [int(extent) for extent in x.ty.shape]


def floats(x):
    return str(x.ty.dtype) == "float32"


def axis_of(rng, x):
    rank = len(shape_of(x))
    return int(rng.integers(-rank, rank))


def permute(rng, x, _values):
    rank = len(shape_of(x))
    axes = rng.permutation(rank)
    given = [int(a) - rank if rng.random() < 0.3 else int(a) for a in axes]
    return op.permute_dims(x, None if rng.random() < 0.2 else given)


def reshape(rng, x, _values):
    shape = shape_of(x)
    kind = rng.integers(4)
    if kind == 0:
        shape.insert(int(rng.integers(len(shape) + 1)), 1)
    elif kind == 1 and 1 in shape and len(shape) > 2:
        shape.remove(1)
    elif kind == 2 and len(shape) > 2:
        at = int(rng.integers(len(shape) - 1))
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        at = int(rng.integers(len(shape)))
        if shape[at] == 4:
            shape[at : at + 1] = [2, 2]
    return op.reshape(x, shape) if len(shape) < 6 else None


def unary(rng, x, _values):
    makers = [op.abs, op.negative, op.sign]
    if floats(x):
        makers += [op.nn.relu, op.tanh, op.floor, op.nn.leakyrelu, lambda t: op.clip(t, -1, 0.5)]
    return makers[int(rng.integers(len(makers)))](x)


def binary(rng, x, values):
    makers = [op.add, op.subtract, op.multiply, op.maximum, op.minimum]
    make = makers[int(rng.integers(len(makers)))]
    alike = [v for v in values if shape_of(v) == shape_of(x) and v.ty.dtype == x.ty.dtype]
    if rng.random() < 0.5:
        other = alike[int(rng.integers(len(alike)))]
    else:
        shape = [n if rng.random() < 0.5 else 1 for n in shape_of(x)]
        shape = shape[int(rng.integers(len(shape) + 1)) :]
        if rng.random() < 0.1 and len(shape_of(x)) < 5:
            shape = [1] * (len(shape_of(x)) + 1)
        other = constant(numbers(rng, shape, str(x.ty.dtype)) * int(rng.integers(2)))
    return make(x, other) if rng.random() < 0.5 else make(other, x)


def bounded(rng, x, _values):
    """A minimum of a maximum, in any order of bounds and operands."""
    low, high = (constant(numbers(rng, [], str(x.ty.dtype))) for _ in range(2))
    inner = op.maximum(x, low) if rng.random() < 0.5 else op.maximum(low, x)
    inner = relax.BlockBuilder().normalize(inner) if not isinstance(inner, relax.Var) else inner
    return op.minimum(inner, high) if rng.random() < 0.5 else op.minimum(high, inner)


def reduction(rng, x, _values):
    rank = len(shape_of(x))
    if rank < 3:
        return None
    axes = {int(a) for a in rng.integers(0, rank, int(rng.integers(1, 3)))}
    given = [a - rank if rng.random() < 0.5 else a for a in sorted(axes)]
    makers = [op.sum, op.max, op.min] + ([op.mean] if floats(x) else [])
    return makers[int(rng.integers(len(makers)))](x, given, keepdims=bool(rng.integers(2)))


def softmax(rng, x, _values):
    make = op.nn.softmax if rng.random() < 0.5 else op.nn.log_softmax
    return make(x, axis=axis_of(rng, x)) if floats(x) else None


def pad(rng, x, _values):
    widths = [int(w) for w in rng.integers(0, 2, 2 * len(shape_of(x)))]
    value = float(rng.choice([0, 0, 1])) if floats(x) else 0
    return op.nn.pad(x, widths, "constant", value)


def concat(rng, x, values):
    alike = [v for v in values if shape_of(v) == shape_of(x) and v.ty.dtype == x.ty.dtype]
    other = alike[int(rng.integers(len(alike)))]
    if rng.random() < 0.3:
        other = constant(numbers(rng, shape_of(x), str(x.ty.dtype)))
    return op.concat([x, other], axis=axis_of(rng, x))


def split(rng, x, _values):
    axis = axis_of(rng, x)
    extent = shape_of(x)[axis]
    if extent < 2:
        return None
    at = int(rng.integers(1, extent))
    return op.split(x, 2 if extent % 2 == 0 and rng.random() < 0.5 else [at], axis=axis)


def strided(rng, x, _values):
    axis = axis_of(rng, x)
    return op.strided_slice(x, [axis], [0], [max(1, shape_of(x)[axis] - 1)], [1])


def choose(rng, x, _values):
    mask = constant(rng.integers(0, 2, shape_of(x)) == 1)
    return op.where(mask, x, constant(numbers(rng, [], str(x.ty.dtype))))


def image(make):
    """An operator on four axes with a layout; a rank that fits is drawn rarely, so it is made."""

    def maker(rng, x, _values):
        return make(rng, x) if floats(x) and len(shape_of(x)) == 4 else None

    return maker


def convolution(rng, x):
    # TVM itself gets other orders wrong: it pads NWHC as if it were NHWC.
    layout = "NCHW" if rng.random() < 0.7 else "NHWC"
    kernel_layout = "OIHW" if rng.random() < 0.6 else ["HWIO", "IOHW", "OHWI"][rng.integers(3)]
    shape = dict(zip(layout, shape_of(x), strict=True))
    groups = shape["C"] if rng.random() < 0.3 else 1
    extents = {"O": groups * int(rng.integers(1, 4)), "I": shape["C"] // groups}
    extents |= {letter: int(rng.integers(1, min(shape[letter], 3) + 1)) for letter in "HW"}
    weight = numbers(rng, [extents[letter] for letter in kernel_layout], "float32")
    padding = [int(p) for p in rng.integers(0, 2, 4)]
    return op.nn.conv2d(
        x,
        constant(weight),
        strides=[int(s) for s in rng.integers(1, 3, 2)],
        padding=padding,
        groups=groups,
        data_layout=layout,
        kernel_layout=kernel_layout,
    )


def pool(rng, x):
    layout = "NCHW" if rng.random() < 0.7 else "NHWC"
    make = op.nn.max_pool2d if rng.random() < 0.5 else op.nn.avg_pool2d
    size = [int(min(2, shape_of(x)[layout.index(letter)])) for letter in "HW"]
    return make(x, size, [1, 1], [0, 0], layout=layout)


def adaptive(_rng, x):
    return op.nn.adaptive_avg_pool2d(x, (1, 2))


def group_norm(rng, x):
    channel = int(rng.integers(1, 4))
    extent = shape_of(x)[channel]
    groups = 2 if extent % 2 == 0 else 1
    weights = [constant(numbers(rng, [extent], "float32")) for _ in range(2)]
    axes = [axis for axis in range(1, 4) if axis != channel]
    return op.nn.group_norm(x, *weights, groups, channel, axes, epsilon=0.1)


def prelu(rng, x):
    axis = int(rng.integers(4))
    return op.nn.prelu(x, constant(numbers(rng, [shape_of(x)[axis]], "float32")), axis)


def resize(_rng, x):
    return op.image.resize2d(x, (3, 5), layout="NCHW", method="nearest_neighbor")


def batch_norm(rng, x):
    if rng.random() < 0.5:
        x = relax.BlockBuilder().normalize(convolution(rng, x))
    axis = int(rng.integers(4))
    extent = shape_of(x)[axis]
    gamma, beta, mean = (constant(numbers(rng, [extent], "float32")) for _ in range(3))
    variance = constant((rng.random(extent) + 0.5).astype("float32"))
    return op.nn.batch_norm(x, gamma, beta, mean, variance, axis, training=False)


def product(rng, x, values):
    """With a constant, one that another product has already, or what is computed."""
    shape = shape_of(x)
    if not floats(x) or len(shape) < 2:
        return None
    others = [v for v in values if floats(v) and len(shape_of(v)) == 2]
    fitting = [v for v in others if shape_of(v)[0] == shape[-1]]
    if fitting and rng.random() < 0.3:
        return op.matmul(x, fitting[int(rng.integers(len(fitting)))])
    if rng.random() < 0.3:
        return op.matmul(x, _shared(rng, shape[-1]))
    columns = int(rng.choice([1, 3, 16, 17]))
    return op.matmul(x, constant(numbers(rng, [shape[-1], columns], "float32") / 4))


_SHARED = {}


def _shared(rng, extent):
    """The same constant in every product of such a size."""
    if extent not in _SHARED:
        _SHARED[extent] = constant(numbers(rng, [extent, 4], "float32") / 4)
    return _SHARED[extent]


def spatial(rng, x, _values):
    """A convolution of one to three axes, dilated, strided, in groups, perhaps transposed."""
    axes = len(shape_of(x)) - 2
    if not floats(x) or not 1 <= axes <= 3:
        return None
    channels, extents = shape_of(x)[1], shape_of(x)[2:]
    kernel = [int(rng.integers(1, 4)) for _ in range(axes)]
    pads = [int(p) for p in rng.integers(0, 2, axes)]
    strides = [int(s) for s in rng.integers(1, 3, axes)]
    if rng.random() < 0.5:
        groups = channels if rng.random() < 0.3 else 1
        weight = numbers(rng, [channels, int(rng.integers(1, 5)), *kernel], "float32") / 4
        make = [op.nn.conv1d_transpose, op.nn.conv2d_transpose, op.nn.conv3d_transpose][axes - 1]
        pads = [min(p, k - 1) for p, k in zip(pads, kernel, strict=True)]
        more = [int(rng.integers(0, s)) for s in strides]
        options = {"strides": strides, "padding": pads * 2, "output_padding": more}
        return make(x, constant(weight), groups=groups, **options)
    dilation = [int(d) for d in rng.integers(1, 3, axes)]
    pairs = zip(extents, pads, kernel, dilation, strict=True)
    if any(extent + 2 * pad < 1 + step * (taps - 1) for extent, pad, taps, step in pairs):
        return None
    groups = channels if rng.random() < 0.3 else 1
    weight = numbers(rng, [groups * int(rng.integers(1, 20)), channels // groups, *kernel], "f4")
    return getattr(op.nn, f"conv{axes}d")(
        x, constant(weight / 4), strides=strides, padding=pads * 2, dilation=dilation, groups=groups
    )


def scaled(rng, x, values):
    """A product or a convolution of any kind, with a batch norm behind it."""
    make, axis = (product, -1) if rng.random() < 0.4 else (spatial, 1)
    made = make(rng, x, values)
    if made is None:
        return None
    y = relax.BlockBuilder.current().emit(made)
    extent = shape_of(y)[axis]
    gamma, beta, mean = (constant(numbers(rng, [extent], "float32")) for _ in range(3))
    variance = constant((rng.random(extent) + 0.5).astype("float32"))
    axis %= len(shape_of(y))
    return op.nn.batch_norm(y, gamma, beta, mean, variance, axis, training=False)


def filtered(rng, x, _values):
    """A convolution that Winograd's filtering can compute."""
    if not floats(x) or len(shape_of(x)) != 4 or min(shape_of(x)[2:]) < 2:
        return None
    weight = numbers(rng, [int(rng.integers(1, 20)), shape_of(x)[1], 3, 3], "float32") / 4
    return op.nn.conv2d(x, constant(weight), padding=[1, 1, 1, 1])


def curve(rng, x, _values):
    """A function that is computed by polynomials."""
    makers = [op.exp, op.erf, op.sigmoid, op.nn.gelu, op.nn.silu, op.sin, op.nn.gelu_tanh]
    return makers[int(rng.integers(len(makers)))](op.clip(x, -4, 4)) if floats(x) else None


def layer_norm(rng, x, _values):
    if not floats(x):
        return None
    extent = shape_of(x)[-1]
    weights = [constant(numbers(rng, [extent], "float32")) for _ in range(2)]
    return op.nn.layer_norm(x, *weights, axes=[-1], epsilon=0.1)


def attend(_rng, x, _values):
    """What looks at itself: scores, their shares, and the values that they weigh."""
    shape = shape_of(x)
    if not floats(x) or len(shape) < 3:
        return None
    emit = relax.BlockBuilder.current().emit
    axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    scores = emit(op.matmul(x, emit(op.permute_dims(x, axes))))
    shares = emit(op.nn.softmax(emit(op.multiply(scores, constant(np.float32(0.25)))), axis=-1))
    return op.matmul(shares, x)


_IMAGES = (convolution, convolution, pool, adaptive, group_norm, prelu, resize, batch_norm)
MAKERS = (
    *(permute,) * 6,
    *(reshape,) * 3,
    *(unary, binary, binary, bounded, reduction, softmax, pad, concat, split, strided, choose),
    *(image(make) for make in _IMAGES),
)

LAYERS = (*MAKERS, *(product, spatial, curve) * 4, *(layer_norm, attend, scaled, filtered) * 2)
"""Also what passes over products, norms and functions have rules for."""
