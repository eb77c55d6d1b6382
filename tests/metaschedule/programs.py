"""Small programs and a quick builder for the tests of this room."""

from __future__ import annotations

import json
import logging
from typing import Any

from foretune import _tvm
from foretune.hardware import Hardware
from foretune.workload import Workload, catalog


def matmul(size: int = 64) -> Workload:
    workload = catalog.get(f"matmul:{size}x{size}x{size}")
    assert isinstance(workload, Workload)
    return workload


def quick_builder(hardware: Hardware) -> Any:
    """TVM's builder, its workers spared the import of every intrinsic."""
    options = json.loads(hardware.target)

    def load() -> None:
        from foretune import _tvm

        _tvm.load_intrinsics(_tvm.Target(options))

    load()
    # TVM configures its logger anew for every run and fails on handlers without a name, which
    # pytest adds to a logger that does not propagate, as TVM's does not after its first run.
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    for handler in [h for h in logger.handlers if h.get_name() is None]:
        logger.removeHandler(handler)
    return _tvm.meta_schedule.builder.LocalBuilder(max_workers=1, timeout_sec=120, initializer=load)


def two_operators() -> Any:
    """A Relax module of a matrix product and a softmax, lowered to two PrimFuncs."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 32), "float32"))
    w = relax.Var("w", relax.TensorType((32, 64), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w))
            output = builder.emit_output(relax.op.nn.softmax(product))
        builder.emit_func_output(output)
    return relax.get_pipeline("zero")(builder.get())
