"""Kernels captured as a CUDA graph: what the compiled network calls; no GPU is needed for that."""

from __future__ import annotations

import pytest
import torch

from foretune import _tvm
from foretune.graph import compile_model, extract
from foretune.graph.passes import cuda_graph
from foretune.hardware import Hardware, preset
from foretune.workload import Model, from_object

NAME = "cuda-graph"


@pytest.fixture(scope="module")
def network() -> Model:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 6 * 6, 16),
        torch.nn.Softmax(-1),
    )
    model = from_object((module.eval(), (torch.randn(1, 3, 8, 8),)))
    assert isinstance(model, Model)
    return model


def _compiled(model: Model, hardware: Hardware, *without: str) -> tuple[str, dict[str, object]]:
    artifact = compile_model(model, hardware, {}, extract(model, hardware, without))
    (report,) = (entry for entry in artifact.manifest["passes"] if entry["name"] == NAME)
    return artifact._executable.as_text(), report


def test_all_kernels_but_the_first_and_the_last_are_launched_together(network: Model) -> None:
    text, report = _compiled(network, preset("h100"))
    assert report == {"name": NAME, "on": True, "reason": "", "changed": True}
    main = text[text.index("@main:") :].split("\n\n")[0]
    assert "cuda_graph.run_or_capture" in main
    # The first reads the input, the last writes the output: both are other memory in each call.
    assert main.index("fused_conv2d_add_relu") < main.index("run_or_capture")
    assert main.index("run_or_capture") < main.index("softmax")
    assert "fused_matmul_add" not in main


def test_the_switch_leaves_kernels_to_be_launched_one_by_one(network: Model) -> None:
    text, report = _compiled(network, preset("h100"), NAME)
    assert report["on"] is False and report["reason"] == "switched off"
    assert "cuda_graph" not in text


def test_a_processor_has_no_such_graphs(network: Model, hardware: Hardware) -> None:
    text, report = _compiled(network, hardware)
    assert report["on"] is False and "cuda" in str(report["reason"])
    assert "cuda_graph" not in text


def test_a_failure_of_tvm_leaves_the_module_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("TVM does not know it")

    relax = _tvm.tvm.relax
    monkeypatch.setattr(relax.transform, "RewriteCUDAGraph", fails)
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    module = _tvm.IRModule({"main": relax.Function([x], x, relax.TensorType((4,), "float32"))})
    captured = cuda_graph.capture(module, 1)
    assert captured.reason == "failed: TVM does not know it"
    assert captured.module.same_as(module)
