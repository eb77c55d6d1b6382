"""ONNX's own tests, and what is left out of them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("node", "pytorch-operator", "pytorch-converted", "simple")
"""Real models are left out: their files have to be downloaded."""
_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")

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


def load_cases() -> dict[str, Any]:
    """All tests by name, in ONNX's order."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return {case.name: case for case in sorted(found, key=lambda c: (KINDS.index(c.kind), c.name))}


def excluded(name: str) -> str:
    """Why a test is left out; empty if it is not."""
    return next((reason for text, reason in EXCLUDED.items() if re.search(text, name)), "")


def operator_of(case: Any, cases: dict[str, Any]) -> str:
    """The operator that a test is about, or its kind where it is about none."""
    base = cases.get(_EXPANDED.sub("", case.name), case)
    if case.kind != "node":
        return str(case.kind)
    nodes = base.model.graph.node
    return str(nodes[0].op_type) if len(nodes) == 1 else "several"


def model_of(case: Any) -> Any:
    """The ``ModelProto`` of a test."""
    import onnx

    return (
        case.model if case.model is not None else onnx.load(str(Path(case.model_dir, "model.onnx")))
    )


def data_of(case: Any, model: Any) -> list[tuple[list[Any], list[Any]]]:
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
