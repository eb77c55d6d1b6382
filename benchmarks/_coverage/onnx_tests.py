"""ONNX's own tests: all of ``onnx.backend.test`` without downloads, with their own tolerances."""

from __future__ import annotations

import functools
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._coverage.suite import DIFFERS, PASS, REFUSED, Result, Suite, outcome_of
from foretune.hardware import Hardware

KINDS = ("node", "pytorch-operator", "pytorch-converted", "simple")
"""Real models are left out: their files have to be downloaded."""
_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")
_BFLOAT16_RTOL = 2.0**-6
_FAR = 100.0
_SIZES = ("scales", "roi", "depth", "start", "limit", "delta")
"""Names of inputs that decide sizes although they are floats."""

EXCLUDED: dict[str, str] = {
    r"^test_(sequence_|split_to_sequence|concat_from_sequence|identity_seq|loop1._seq|if_seq)": (
        "sequences are no tensors"
    ),
    r"optional|loop16_seq_none|if_opt|identity_opt": "optional values are no tensors",
    r"string|strnorm|tfidfvectorizer|label_encoder|regex_full_match|_to_STRING|STRING_to_":
        "strings are no numbers",
    r"^test_(nonzero|unique|nonmaxsuppression|compress)":
        "sizes depend on values",
    r"image_decoder": "decodes files",
    r"^test_(training|adam|adagrad|momentum|nesterov|gradient)": "training",
    r"^test_(bernoulli|multinomial|random)": "random numbers",
}  # fmt: skip
"""Patterns of test names to the reason why they are left out."""


class OnnxTests(Suite):
    title = "ONNX's own tests"

    def names(self) -> tuple[list[str], Mapping[str, str]]:
        left_out = {name: reason for name in load_cases() if (reason := _excluded(name))}
        return [name for name in load_cases() if name not in left_out], left_out

    def attempt(self, name: str, hardware: Hardware) -> Result:
        """Also ``operator``, ``bound`` and ``close``.

        A test passes too where it is beyond its own tolerance by no more than the last place of the
        largest expected number; ``close`` says so. A test whose inputs decide sizes or axes is
        refused; it is tried once more with the values of those inputs known at import: integers and
        truth values of rank 0 or 1, and a few floats (``_SIZES``).
        """
        case = load_cases()[name]
        result = _attempt(case, hardware, bind=False)
        if result["outcome"] == REFUSED:
            again = _attempt(case, hardware, bind=True)
            result = again if again["bound"] else result
        return {**result, "operator": _operator_of(case, load_cases())}

    def about(self, results: Sequence[Mapping[str, Any]]) -> str:
        bound = sum(r["outcome"] == PASS and bool(r["bound"]) for r in results)
        close = sum(bool(r.get("close")) for r in results)
        return (
            f"Of those that pass, {bound} have inputs that decide sizes or axes: integers and "
            "truth values of rank 0 or 1, and scales. They are known at import here; the command "
            "line has no such option and refuses models with such inputs. Tolerances are the "
            f"tests' own; {close} pass only if they may differ by the last place of the largest "
            "expected number. Tests of real models are left out: they have to be downloaded."
        )


@functools.cache
def _operators() -> frozenset[str]:
    import onnx

    return frozenset(schema.name for schema in onnx.defs.get_all_schemas())


def _attempt(case: Any, hardware: Hardware, bind: bool) -> Result:
    bound: list[str] = []
    close = False

    def compute() -> str:
        nonlocal close
        model = _model_of(case)
        for inputs, expected in _data_of(case, model):
            outputs = _run(case, model, inputs, hardware, bound, bind)
            if not difference(outputs, expected, case.rtol, case.atol):
                continue
            close = True
            fault = difference(outputs, expected, case.rtol, case.atol, last_place=True)
            if fault:
                return fault
        return ""

    found = outcome_of(compute, f"{case.name}.onnx", _operators())
    return {**found, "bound": bound, "close": close and found["outcome"] != DIFFERS}


@functools.cache
def load_cases() -> dict[str, Any]:
    """All tests by name, in ONNX's order."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return {case.name: case for case in sorted(found, key=lambda c: (KINDS.index(c.kind), c.name))}


def _excluded(name: str) -> str:
    """Why a test is left out; empty if it is not."""
    return next((reason for text, reason in EXCLUDED.items() if re.search(text, name)), "")


def _operator_of(case: Any, cases: dict[str, Any]) -> str:
    """The operator that a test is about, or its kind where it is about none."""
    base = cases.get(_EXPANDED.sub("", case.name), case)
    if case.kind != "node":
        return str(case.kind)
    nodes = base.model.graph.node
    return str(nodes[0].op_type) if len(nodes) == 1 else "several"


def _model_of(case: Any) -> Any:
    """The ``ModelProto`` of a test."""
    import onnx

    return (
        case.model if case.model is not None else onnx.load(str(Path(case.model_dir, "model.onnx")))
    )


def _data_of(case: Any, model: Any) -> list[tuple[list[Any], list[Any]]]:
    """Pairs of inputs and expected outputs: arrays, and lists for sequences."""
    if case.data_sets is not None:
        return [([_array(v) for v in i], [_array(v) for v in o]) for i, o in case.data_sets]
    folders = sorted(Path(case.model_dir).glob("test_data_set*"))
    return [
        (_read(folder, "input", model.graph.input), _read(folder, "output", model.graph.output))
        for folder in folders
    ]


def _array(value: Any) -> Any:
    import onnx

    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return value if isinstance(value, (list, tuple, dict)) or value is None else np.asarray(value)


def _read(folder: Path, what: str, values: Sequence[Any]) -> list[Any]:
    import onnx

    found = []
    for at in range(len(list(folder.glob(f"{what}_*.pb")))):
        data = Path(folder, f"{what}_{at}.pb").read_bytes()
        kind = values[at].type.WhichOneof("value")
        if kind != "tensor_type":
            return [None]
        found.append(onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data)))
    return found


def _run(
    case: Any, model: Any, inputs: Any, hardware: Any, bound: list[str], bind: bool
) -> list[Any]:
    import onnx

    from foretune.graph import compile_model
    from foretune.workload import load_input

    held = {tensor.name for tensor in model.graph.initializer}
    names = [v.name for v in model.graph.input if v.name not in held]
    given = dict(zip(names, inputs, strict=False))
    tensors = {n: a for n, a in given.items() if isinstance(a, np.ndarray)}
    constants = {n: a for n, a in tensors.items() if bind and _decides_sizes(n, a)}
    bound[:] = sorted(constants)
    shapes = {n: a.shape for n, a in tensors.items() if n not in constants}
    with tempfile.TemporaryDirectory(prefix="foretune-onnx-") as folder:
        path = Path(folder, f"{case.name}.onnx")
        onnx.save(model, str(path))
        loaded = load_input(str(path), shapes=shapes, constants=constants)
    artifact = compile_model(loaded, hardware, {})
    return artifact.run([tensors[spec.name] for spec in loaded.inputs])


def _decides_sizes(name: str, array: Any) -> bool:
    return array.ndim <= 1 and (array.dtype.kind in "iub" or name in _SIZES)


def _unit(wanted: Any) -> float:
    """The last place of the largest expected number, which rounding alone decides.

    Numbers far above the others, such as those that a mask leaves, are not counted.
    """
    from foretune.graph import scale_of

    if wanted.dtype.kind != "f" or not wanted.size:
        return 0.0
    finite = np.abs(wanted[np.isfinite(wanted)].astype("float64"))
    if not finite.size:
        return 0.0
    largest = min(float(finite.max()), _FAR * scale_of(finite))
    return float(np.finfo(wanted.dtype).eps) * largest


def difference(
    actual: Any, expected: Any, rtol: float, atol: float, last_place: bool = False
) -> str:
    """What differs beyond the tolerance of the test, or also ``_unit``; empty if nothing does."""
    if len(actual) != len(expected):
        return f"{len(actual)} outputs instead of {len(expected)}"
    for at, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        if got.shape != wanted.shape:
            return f"output {at} has shape {got.shape} instead of {wanted.shape}"
        if got.dtype != wanted.dtype:
            return f"output {at} has type {got.dtype} instead of {wanted.dtype}"
        half = got.dtype.name == "bfloat16"
        pair = (got.astype("float32"), wanted.astype("float32")) if half else (got, wanted)
        relative = max(rtol, _BFLOAT16_RTOL) if half else rtol
        allowed = _unit(pair[1]) if last_place else 0.0
        try:
            np.testing.assert_allclose(*pair, rtol=relative, atol=max(atol, allowed))
        except AssertionError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            return f"output {at}: {' '.join(lines[1:5])[:200]}"
    return ""
