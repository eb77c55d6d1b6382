"""Networks without PyTorch, which child processes load in no time: ``this file:function``."""

from __future__ import annotations

import numpy as np

from foretune import _tvm

relax = _tvm.tvm.relax


def _main(make, *shape):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(make(builder.emit, x)))
        builder.emit_func_output(result)
    return builder.get()


def _constant(rng, *shape):
    return relax.const(rng.normal(size=shape).astype("float32"), "float32")


def products():
    """Two products with bias and activation, and one without."""
    rng = np.random.default_rng(0)

    def make(emit, x):
        for _ in range(2):
            y = emit(relax.op.matmul(x, _constant(rng, 32, 32)))
            x = emit(relax.op.nn.relu(emit(relax.op.add(y, _constant(rng, 32)))))
        return emit(relax.op.matmul(x, _constant(rng, 32, 32)))

    return _main(make, 8, 32)


def product():
    """One product: the smallest network that has a choice."""
    weights = _constant(np.random.default_rng(2), 32, 32)
    return _main(lambda emit, x: emit(relax.op.matmul(x, weights)), 8, 32)


def convolutions():
    """Convolutions of 3 x 3 and 1 x 1, two with the same weights, and a residual."""
    rng = np.random.default_rng(1)

    def make(emit, x):
        nn, shared = relax.op.nn, _constant(rng, 16, 16, 3, 3)
        x = emit(nn.relu(emit(nn.conv2d(x, _constant(rng, 16, 8, 3, 3), padding=(1,) * 4))))
        y = emit(nn.conv2d(x, shared, padding=(1,) * 4))
        y = emit(nn.relu(emit(relax.op.add(y, x))))
        y = emit(nn.relu(emit(nn.conv2d(y, shared, padding=(1,) * 4))))
        y = emit(nn.max_pool2d(y, (2, 2), (2, 2)))
        return emit(nn.relu(emit(nn.conv2d(y, _constant(rng, 32, 16, 1, 1)))))

    return _main(make, 1, 8, 12, 12)


def nothing():
    """No pass has a choice."""
    return _main(lambda emit, x: emit(relax.op.nn.relu(x)), 4, 4)
