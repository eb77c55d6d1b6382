"""What a quantised network may differ by: one step, and what the original differs from itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretune.graph import (
    InputSet,
    compile_model,
    default_tolerance,
    judge_outputs,
    output_steps,
    take_sample,
    verify,
)
from foretune.graph._exact import PLAIN
from foretune.graph.artifact import Artifact
from foretune.hardware import probe
from foretune.workload import load_input

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

SCALE = np.float32(0.05)


def network(folder: Path) -> str:
    """Outputs: bytes; what they stand for, reshaped; a product of it; the floats themselves."""
    node = helper.make_node
    weight = np.random.default_rng(0).standard_normal((6, 3)).astype("float32")
    constants = {"s": SCALE, "z": np.int8(3), "to": np.array([3, 4]), "w": weight}
    graph = helper.make_graph(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["bytes"]),
            node("DequantizeLinear", ["bytes", "s", "z"], ["r"]),
            node("Reshape", ["r", "to"], ["reshaped"]),
            node("MatMul", ["r", "w"], ["product"]),
            node("Neg", ["x"], ["floats"]),
        ],
        "steps",
        [helper.make_tensor_value_info("x", 1, (2, 6))],
        [
            helper.make_tensor_value_info("bytes", 3, (2, 6)),
            helper.make_tensor_value_info("reshaped", 1, (3, 4)),
            helper.make_tensor_value_info("product", 1, (2, 3)),
            helper.make_tensor_value_info("floats", 1, (2, 6)),
        ],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, folder / "steps.onnx")
    return str(folder / "steps.onnx")


class Moved:
    """An artifact whose outputs are moved."""

    def __init__(self, artifact: Artifact, by: list) -> None:
        self.artifact, self.by = artifact, by

    def run(self, inputs):
        outputs = self.artifact.run(inputs)
        for output, by in zip(outputs, self.by, strict=True):
            output.reshape(-1)[0] += output.dtype.type(by)
        return outputs


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load_input(network(tmp_path_factory.mktemp("steps")))


@pytest.fixture(scope="module")
def artifact(model):
    return compile_model(model, probe(threads=1), {})


def given(model) -> InputSet:
    data = np.linspace(-1, 1, 12, dtype="float32").reshape(2, 6)
    return InputSet("some", (data,), model)


def test_steps_are_read_from_the_graph(model) -> None:
    assert output_steps(model) == pytest.approx([1, SCALE, 0, 0], rel=1e-4)


def test_a_network_that_rounds_to_bytes_is_judged_by_a_step_of_them(model) -> None:
    assert default_tolerance(model) == pytest.approx(1 / 255)


@pytest.mark.parametrize(
    "by, ok",
    [
        ([0, 0, 0, 0], True),
        ([1, 0, 0, 0], True),
        ([0, SCALE, 0, 0], True),
        ([2, 0, 0, 0], False),
        ([0, 2 * SCALE, 0, 0], False),
        ([0, 0, 0.3, 0], False),
        ([0, 0, 0, SCALE], False),
    ],
)
def test_one_step_is_allowed_and_two_are_not(model, artifact, by, ok) -> None:
    assert verify(Moved(artifact, by), model, inputs=[given(model)]).ok == ok


def test_a_sample_keeps_its_steps_and_its_judge(model, artifact, tmp_path) -> None:
    inputs = given(model)
    artifact.sample = take_sample(inputs, 1e-3)
    artifact.save(tmp_path / "steps.so")
    loaded = Artifact.load(tmp_path / "steps.so")
    sample = loaded.sample
    assert sample.steps == pytest.approx((1, SCALE, 0, 0), rel=1e-4)
    assert sample.exact.by == PLAIN == loaded.manifest["sample"]["judged_by"]
    outputs = list(sample.outputs)

    def wrong(moved):
        seen = judge_outputs(
            outputs, moved, "abcd", sample.tolerances, sample.steps, lambda: sample.exact
        )
        return [difference.name for difference in seen.wrong]

    assert wrong(outputs) == []
    assert wrong([outputs[0] + np.int8(1), *outputs[1:]]) == []
    assert wrong([outputs[0] + np.int8(2), *outputs[1:]]) == ["a"]
    assert wrong([*outputs[:3], outputs[3] + SCALE]) == ["d"]
