"""ONNX files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError, MissingDependencyError, UnsupportedModelError
from foretune.workload.model import Model, OnnxSource


def import_onnx(
    path: Path, shapes: Mapping[str, Sequence[int]] | None = None, seed: int = 0
) -> Model:
    """Imports an ONNX file, with external data if it has any.

    Args:
        path: The file.
        shapes: Fixed shapes of inputs, by name: required for inputs with dynamic dimensions.
        seed: For the example inputs.

    Raises:
        BadInputError: Not an ONNX file, truncated, or a shape does not fit.
        UnsupportedModelError: An operator is not supported, or a dimension is dynamic.
    """
    proto = _load(path)
    fixed = _shapes(proto, path, shapes or {})

    from foretune import _tvm  # noqa: F401  the seam loads TVM before its front end
    from tvm.relax.frontend.onnx import from_onnx  # isort: skip

    try:
        module = from_onnx(proto, shape_dict=fixed, keep_params_in_input=False)
    except Exception as error:  # the front end raises many kinds, from Python and from C++
        raise UnsupportedModelError(_explain(error, path)) from error
    source = OnnxSource(
        str(path.resolve()), {name: tuple(shape) for name, shape in (shapes or {}).items()}
    )
    return Model.from_relax(module, path.stem, source, seed=seed)


def _load(path: Path) -> Any:
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MissingDependencyError("an ONNX file needs onnx: pip install onnx") from None
    try:
        proto = onnx.load(str(path))
        onnx.checker.check_model(str(path))
    except DecodeError:
        raise BadInputError(
            f"{path} is not an ONNX file or is truncated: export or download it again"
        ) from None
    except (onnx.checker.ValidationError, FileNotFoundError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInputError(
            f"{path} is not a valid ONNX model ({reason}): check that it and its external data "
            "are complete"
        ) from None
    except OSError as error:
        raise BadInputError(
            f"{error.filename or path} cannot be read ({error.strerror or error}): check its "
            "permissions"
        ) from error
    return proto


def _shapes(proto: Any, path: Path, wanted: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    parameters = {initializer.name for initializer in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in parameters]
    names = [value.name for value in inputs]
    for name in wanted:
        if name not in names:
            raise BadInputError(f"{path} has no input {name!r}: its inputs are {', '.join(names)}")
    return {value.name: _shape(value, path, wanted.get(value.name)) for value in inputs}


def _shape(value: Any, path: Path, wanted: Sequence[int] | None) -> list[int]:
    declared = value.type.tensor_type.shape.dim
    if wanted is not None and len(wanted) != len(declared):
        raise BadInputError(
            f"{path}: input {value.name!r} has {len(declared)} dimensions, but the shape given "
            f"has {len(wanted)}: {list(wanted)}"
        )
    extents: list[int] = []
    for axis, dim in enumerate(declared):
        static = dim.HasField("dim_value") and dim.dim_value > 0
        if wanted is None and not static:
            example = ",".join(str(d.dim_value) if d.dim_value > 0 else "1" for d in declared)
            raise UnsupportedModelError(
                f"{path}: input {value.name!r} dimension {axis} is dynamic "
                f"({dim.dim_param or '?'}): fix it, for example --shape {value.name}={example}"
            )
        if wanted is not None and static and wanted[axis] != dim.dim_value:
            raise BadInputError(
                f"{path}: input {value.name!r} dimension {axis} is {dim.dim_value} in the model, "
                f"but the shape given says {wanted[axis]}"
            )
        extents.append(int(dim.dim_value if wanted is None else wanted[axis]))
    return extents


def _explain(error: Exception, path: Path) -> str:
    text = str(error)
    unsupported = re.search(r"not supported for frontend ONNX: *(.*)", text)
    if unsupported:
        return (
            f"{path} holds operators that TVM cannot import: {unsupported.group(1).strip()}; "
            "replace them in the model"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reason = lines[0][:300] if lines else ""
    return f"TVM could not import {path}: {type(error).__name__}: {reason}"
