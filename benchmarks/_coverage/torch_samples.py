"""PyTorch's operator samples: the first ones of every operator that ``torch.export`` accepts.

A network is called ``OPERATOR:DTYPE:K``: the K-th of these samples.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._coverage.suite import (
    NOT_EXPORTABLE,
    PASS,
    Result,
    Suite,
    difference,
    export_error,
    outcome_of,
)
from foretune.hardware import Hardware

_ABSENT = "absent"
"""An operator has fewer samples: this one counts nowhere."""
_STEPS = {"float32": 1e-5}

SAMPLES = 4
"""Samples per operator in float32; one of integers or truth values where it takes no float32."""

EXCLUDED: dict[str, str] = {
    r"^(bernoulli|cauchy|exponential|geometric|log_normal|multinomial|normal|rand|randint|randn"
    r"|uniform|nn\.functional\.(dropout|feature_alpha|alpha_dropout|rrelu|fractional_max)"
    r"|rand_like|randint_like|randn_like)": "random numbers",
    r"sparse|to_sparse|^torch\.ops\.aten\._safe_softmax": "sparse tensors or an internal operator",
    r"^linalg|^(cholesky|cholesky_inverse|cholesky_solve|geqrf|lu|lu_solve|lu_unpack|ormqr|pinverse"
    r"|qr|svd|svd_lowrank|pca_lowrank|symeig|triangular_solve|logdet|matrix_exp|inverse|slogdet"
    r"|det|lobpcg)$": "linear algebra",
    r"^(empty|empty_like|empty_strided|empty_permuted|new_empty|new_empty_strided|resize_"
    r"|resize_as_)$": "memory that is not initialised",
    r"^(item|broadcast_shapes|equal|allclose|jiterator.*)$": "no tensor is returned, or CUDA only",
}  # fmt: skip
"""Patterns of operator names to the reason why they are left out."""

_COMPLEX = re.compile(
    r"^fft\.|^(stft|istft|view_as_complex|complex|polar|cfloat|cdouble|chalf|hfft)$"
)
"""Operators on complex numbers, a type that TVM does not have: refused, and counted apart, too."""


class TorchSamples(Suite):
    title = "PyTorch's operator samples"

    def __init__(self) -> None:
        self._last: tuple[str, list[Any]] = ("", [])

    def names(self) -> tuple[list[str], Mapping[str, str]]:
        infos = operators()
        left_out = {name: reason for name in infos if (reason := _excluded(name))}
        return _tasks({n: info for n, info in infos.items() if n not in left_out}), left_out

    def attempt(self, name: str, hardware: Hardware) -> Result:
        operator, dtype, at = name.rsplit(":", 2)
        if self._last[0] != operator:
            self._last = (operator, exportable(operators()[operator], dtype))
        found = self._last[1]
        if int(at) >= len(found):
            result = {"outcome": _ABSENT if found else NOT_EXPORTABLE, "message": ""}
        else:
            module, inputs = found[int(at)]
            result = outcome_of(lambda: _compared(module, inputs, hardware), "sample")
        return {**result, "operator": operator}

    def about(self, results: Sequence[Mapping[str, Any]]) -> str:
        real = [r for r in results if not _COMPLEX.search(r["operator"])]
        passed = sum(r["outcome"] == PASS for r in real)
        return (
            f"{passed / max(1, len(real)):.1%} of the {len(real):,} that have no complex numbers "
            "pass; TVM lacks that type. Outputs are compared with eager PyTorch's in shape, type "
            "and values, as an artifact is judged."
        )


def _excluded(name: str) -> str:
    """Why an operator is left out; empty if it is not."""
    return next((reason for text, reason in EXCLUDED.items() if re.search(text, name)), "")


def operators() -> dict[str, Any]:
    """All operators by name and variant, in PyTorch's order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {
        f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name: info
        for info in op_db
    }


def _dtype_of(info: Any) -> Any:
    """The type that an operator is tried in: float32 where it takes it."""
    import torch

    known = info.supported_dtypes("cpu")
    wanted = (torch.float32, torch.int64, torch.int32, torch.bool, torch.uint8)
    return next((dtype for dtype in wanted if dtype in known), None)


def _tasks(infos: dict[str, Any]) -> list[str]:
    """One name per sample; those an operator does not have turn out when it is run."""
    import torch

    found = []
    for name, info in infos.items():
        dtype = _dtype_of(info)
        if dtype is not None:
            count = SAMPLES if dtype is torch.float32 else 1
            found += [f"{name}:{str(dtype)[6:]}:{at}" for at in range(count)]
    return found


def _samples(info: Any, dtype: Any) -> Iterator[Any]:
    """The operator's samples, the same in every process."""
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from info.sample_inputs("cpu", dtype, requires_grad=False)


def _module_of(info: Any, sample: Any) -> tuple[Any, tuple[Any, ...]]:
    """A module that calls the operator on its tensors, and the tensors; all else is constant."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))

    class Call(torch.nn.Module):
        def forward(self, *given: Any) -> Any:
            arrays = iter(given)
            bound = [next(arrays) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            first, args, kwargs = pytree.tree_unflatten(bound, structure)
            return info.op(first, *args, **kwargs)

    return Call().eval(), tensors


def exportable(info: Any, dtype: str) -> list[Any]:
    """The first modules with inputs that ``torch.export`` accepts."""
    import torch

    found: list[Any] = []
    try:
        for tried, sample in enumerate(_samples(info, getattr(torch, dtype))):
            if len(found) == SAMPLES or tried == 5 * SAMPLES:
                break
            module, inputs = _module_of(info, sample)
            if not export_error(module, inputs):
                found.append((module, inputs))
    except Exception:  # PyTorch's own samples may fail on a build without a library
        return found
    return found


def _compared(module: Any, inputs: Any, hardware: Hardware) -> str:
    from foretune.graph import compile_model
    from foretune.workload import from_object

    model = from_object((module, inputs), "sample")
    expected = model.reference(model.examples)
    outputs = compile_model(model, hardware, {}).run(list(model.examples))
    return difference(expected, outputs, _STEPS)
