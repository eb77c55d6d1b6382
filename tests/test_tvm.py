"""The seam to TVM."""

from __future__ import annotations

from foretune import _tvm


def test_versions_name_the_compiler_too() -> None:
    versions = _tvm.versions()
    assert set(versions) == {"tvm", "tvm_ffi", "llvm"}
    assert int(versions["llvm"]) > 0
