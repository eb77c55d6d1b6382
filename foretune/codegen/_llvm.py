"""Functions in LLVM's own language beside a tensor program."""

from __future__ import annotations

from typing import Any

from foretune import _tvm


def with_code(function: Any, code: str) -> Any:
    """The program, and beside it LLVM's code of functions that it calls."""
    tirx, s_tir = _tvm.tvm.tirx, _tvm.tvm.s_tir

    def beside(body: Any) -> Any:
        node = tirx.const(0, "int32")
        return tirx.AttrStmt(node, "pragma_import_llvm", _tvm.tvm.ir.StringImm(code), body)

    root = function.body
    if not isinstance(root, s_tir.SBlockRealize):
        return function.with_body(beside(root))
    block = root.block
    block = s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, beside(block.body),
        block.init, block.alloc_buffers, block.match_buffers, block.annotations,
    )  # fmt: skip
    return function.with_body(s_tir.SBlockRealize(root.iter_values, root.predicate, block))
