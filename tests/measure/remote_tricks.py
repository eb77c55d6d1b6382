"""Programs that do on a device what programs must not do, and the builder of their libraries."""

from __future__ import annotations

from typing import Any

from tests.measure.misbehaviour import Trick

BUILDER = "tests.measure.remote_tricks:build"
_SOURCE = """
@T.prim_func
def main(a: {buffer}, b: {buffer}, c: {buffer}):
    T.func_attr({{"global_symbol": "main", "tirx.noalias": True}})
    {body}
"""
_BODIES = {
    "crashes": 'T.evaluate(T.call_extern("int32", "abort"))',
    "hangs": 'T.evaluate(T.call_extern("int32", "pause"))',
    "writes_nothing": "T.evaluate(0)",
    "overwrites_input": "a[0, 0] = T.float32(100)",
}


def build(trick: Trick) -> Any:
    """TVM's executable of a program of three square matrices that does what its mode says."""
    from foretune import _tvm

    target = trick.hardware.code_target()
    if trick.mode == "build_raises":
        raise RuntimeError("cannot\nwill not")
    if trick.mode == "has_no_room":
        raise RuntimeError("ld: final link failed: No space left on device")
    module = trick.workload.module
    if trick.mode in _BODIES:
        (size, _) = module["main"].params[0].ty.shape
        buffer = f'T.Buffer(({int(size)}, {int(size)}), "float32")'
        source = _SOURCE.format(buffer=buffer, body=_BODIES[trick.mode])
        module = _tvm.IRModule({"main": _tvm.tvm.script.from_source(source)})
    else:
        assert trick.mode == "good"
    return _tvm.tvm.compile(module, target)
