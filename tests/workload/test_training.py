"""Workloads to learn from: what they cover, and that none of them is in the evaluation set."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from benchmarks import excluded as writer
from foretune.hardware import Hardware
from foretune.workload import Workload, catalog, training
from foretune.workload.catalog import _operators as op

# What users' networks consist of.
FREQUENT = ("conv2d", "dense", "batch_matmul", "depthwise")
SINGLE_KINDS = {
    "conv3d_bn_relu": "conv3d",
    "conv3d": "conv3d",
    "ffn": "dense",
    "attention_qk": "batch_matmul",
    "layernorm_variance": "reduction",
    "layernorm_mean": "reduction",
    "attention_projection": "dense",
    "softmax": "softmax",
    "dense": "dense",
    "avgpool2d": "pool",
    "attention_pv": "batch_matmul",
    "qkv_projection": "dense",
    "maxpool2d": "pool",
    "conv2d_relu": "conv2d",
    "conv2d": "conv2d",
    "depthwise_relu": "depthwise",
    "conv2d_add": "conv2d",
    "depthwise": "depthwise",
    "conv2d_add_relu": "conv2d",
    "conv2d_pad_relu": "conv2d",
    "conv2d_stride_relu": "conv2d",
    "conv2d_stride_add": "conv2d",
    "llama3_attention": "attention",
    "deepseek_moe": "dense",
    "flux_attention": "attention",
    "flux_conv": "conv2d",
    "matmul_512": "dense",
    "conv2d_3x3": "conv2d",
    "depthwise_3x3": "depthwise",
}


def _get(name: str) -> Workload:
    workload = catalog.get(name)
    assert isinstance(workload, Workload)
    return workload


def _workload(*tensors: object) -> Workload:
    return Workload.from_module(op.program(*tensors), "test")


def _convolution(epilogue: bool, names: str = "xwb", height: int = 28) -> Workload:
    x, w = op.tensor(names[0], 1, height, height, 24), op.tensor(names[1], 3, 3, 24, 40)
    result = op.conv2d(x, w, 1, 1)
    if not epilogue:
        return _workload(x, w, result)
    b = op.tensor(names[2], 40)
    return _workload(x, w, b, op.relu(op.add_bias(result, b)))


Workloads = tuple[training.TrainingWorkload, ...]


@pytest.fixture(scope="module")
def workloads() -> Workloads:
    return training.training_workloads()


def test_workloads_are_distinct_and_named_after_what_they_are(workloads: Workloads):
    assert len(workloads) >= 100
    assert len({one.workload.key for one in workloads}) == len(workloads)
    names = tuple(one.name for one in workloads)
    assert names == training.training_names() and len(set(names)) == len(names)
    for one in workloads:
        assert one.name.startswith(f"train_{one.kind}_") and one.workload.name == one.name
        assert not one.name.endswith("_")


def test_no_two_workloads_compute_the_same_on_the_same_shape(workloads: Workloads):
    repeated = Counter(training.signature(one.workload) for one in workloads)
    assert not [text for text, count in repeated.items() if count > 1]


def test_a_name_says_the_shape():
    function = _of("train_conv2d_1x28x28x96_3x3s1_64_relu").module["main"]
    shapes = [tuple(int(extent) for extent in var.ty.shape) for var in function.params]
    assert shapes == [(1, 28, 28, 96), (3, 3, 96, 64), (64,), (1, 28, 28, 64)]


def test_kinds_are_many_and_the_frequent_ones_make_half(workloads: Workloads):
    kinds = Counter(one.kind for one in workloads)
    assert len(kinds) >= 16 and min(kinds.values()) >= 3
    assert 0.45 <= sum(kinds[kind] for kind in FREQUENT) / len(workloads) <= 0.6


def test_a_beginning_of_the_list_has_all_kinds(workloads: Workloads):
    kinds = Counter(one.kind for one in workloads)
    assert {one.kind for one in workloads[: len(kinds)]} == set(kinds)
    half = Counter(one.kind for one in workloads[: len(workloads) // 2])
    assert all(0.3 <= half[kind] / count <= 0.8 for kind, count in kinds.items())


def test_sizes_are_worth_measuring(workloads: Workloads):
    """Neither over in a few microseconds nor seconds of work for the untuned program."""
    flops = {one.name: one.workload.flops for one in workloads}
    assert {name: f for name, f in flops.items() if not 2e5 <= f <= 6e8} == {}


def test_the_kind_of_a_workload_shows_in_its_structure(workloads: Workloads):
    found = {one.name: training.operator_kind(one.workload) for one in workloads}
    assert found == {one.name: one.kind for one in workloads}


def test_listing_names_does_not_load_tvm():
    code = (
        "import sys; from foretune.workload import training; training.training_names()\n"
        "print({'tvm', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr


def _run(workload: Workload, *inputs: np.ndarray) -> np.ndarray:
    """The untuned program's output for these inputs."""
    from foretune._tvm import tvm

    module = tvm.compile(workload.module, tvm.target.Target({"kind": "llvm"})).jit()
    shape = [int(extent) for extent in workload.module["main"].params[-1].ty.shape]
    out = tvm.runtime.tensor(np.zeros(shape, "float32"))
    module["main"](*(tvm.runtime.tensor(array) for array in inputs), out)
    return np.asarray(out.numpy())


def _inputs(workload: Workload, rng: np.random.Generator) -> list[np.ndarray]:
    shapes = [[int(e) for e in var.ty.shape] for var in workload.module["main"].params[:-1]]
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def _of(name: str) -> Workload:
    return next(one.workload for one in training.training_workloads() if one.name == name)


def test_norms_normalise(rng):
    x, gain, shift = _inputs(layer := _of("train_norm_layer_392x384"), rng)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(
        _run(layer, x, gain, shift), expected * gain + shift, rtol=1e-3, atol=1e-4
    )
    x, gain = _inputs(rms := _of("train_norm_rms_256x1024"), rng)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain
    np.testing.assert_allclose(_run(rms, x, gain), expected, rtol=1e-3, atol=1e-4)


def test_squeeze_and_excitation_scales_channels(rng):
    x, w, u = _inputs(workload := _of("train_squeeze_excite_1x10x10x672_168"), rng)
    w, u = w / 26, u / 13
    gate = np.maximum(x.mean((1, 2)) @ w, 0) @ u
    expected = x / (1 + np.exp(-gate))[:, None, None, :]
    np.testing.assert_allclose(_run(workload, x, w, u), expected, rtol=1e-3, atol=1e-4)


def test_a_gated_layer_multiplies_by_silu(rng):
    x, w, u = _inputs(workload := _of("train_gated_mlp_1x1024_2048"), rng)
    w, u = w / 32, u / 32
    opened = x @ w
    expected = opened / (1 + np.exp(-opened)) * (x @ u)
    np.testing.assert_allclose(_run(workload, x, w, u), expected, rtol=1e-3, atol=1e-3)


def test_transposed_and_grouped_convolutions_compute_what_pytorch_computes(rng):
    torch = pytest.importorskip("torch")
    x, w = _inputs(workload := _of("train_conv2d_transpose_1x160x7x7_4x4s2p1_80"), rng)
    w = w / 50
    expected = torch.nn.functional.conv_transpose2d(
        torch.from_numpy(x), torch.from_numpy(w), stride=2, padding=1
    )
    np.testing.assert_allclose(_run(workload, x, w), expected.numpy(), rtol=1e-3, atol=1e-3)
    x, w, b = _inputs(workload := _of("train_group_conv2d_1x28x28x200_1x1s1g4_80_bias"), rng)
    nchw, oihw = torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(w).permute(3, 2, 0, 1)
    expected = torch.nn.functional.conv2d(nchw, oihw, torch.from_numpy(b), groups=4)
    np.testing.assert_allclose(
        _run(workload, x, w, b), expected.permute(0, 2, 3, 1).numpy(), rtol=1e-3, atol=1e-3
    )


def test_names_and_epilogues_do_not_change_the_signature():
    plain = training.signature(_convolution(epilogue=False))
    assert training.signature(_convolution(epilogue=True)) == plain
    assert training.signature(_convolution(epilogue=True, names="abc")) == plain
    assert training.signature(_convolution(epilogue=True, height=14)) != plain
    assert "30x30" in plain and "24" in plain and "40" in plain


def test_layout_and_a_batch_of_one_do_not_change_the_signature():
    def product(*shape: int, transposed: bool = False) -> Workload:
        x, y = op.tensor("x", *shape), op.tensor("y", *((5, 48, 32) if transposed else (5, 32, 48)))
        return _workload(x, y, op.batch_matmul(x, y, transposed))

    assert training.signature(product(5, 16, 32)) == training.signature(
        product(5, 16, 32, transposed=True)
    )
    x, w = op.tensor("x", 16, 32), op.tensor("w", 32, 48)
    x3 = op.tensor("x", 1, 16, 32)
    assert training.signature(_workload(x, w, op.matmul(x, w))) == training.signature(
        _workload(x3, w, op.matmul(x3, w))
    )
    assert training.signature(_workload(x, w, op.matmul(x, w))) != training.signature(
        product(5, 16, 32)
    )


def test_a_sum_and_a_maximum_differ():
    x = op.tensor("x", 1, 14, 14, 64)
    largest, average = (_workload(x, op.pool2d(x, kind, 3, 2, 1)) for kind in ("max", "avg"))
    assert training.signature(largest) != training.signature(average)


@pytest.mark.parametrize("name", SINGLE_KINDS)
def test_the_kind_of_what_the_catalog_names(name):
    assert training.operator_kind(_get(name)) == SINGLE_KINDS[name]


def test_every_single_program_of_the_catalog_has_its_kind_checked(workloads: Workloads):
    assert set(SINGLE_KINDS) == {*catalog.names("subgraph"), *catalog.names("kernel")}
    assert set(SINGLE_KINDS.values()) <= set(training.OPERATOR_KINDS)
    assert {one.kind for one in workloads} <= set(training.OPERATOR_KINDS)


def test_without_a_reduction_the_kind_is_elementwise():
    x, y = op.tensor("x", 16, 32), op.tensor("y", 16, 32)
    workload = _workload(x, y, op.relu(op.add(x, y)))
    assert training.operator_kind(workload) == "elementwise"
    assert training.signature(workload)


def test_no_workload_is_in_the_evaluation_set(workloads: Workloads):
    excluded = training.excluded()
    assert [one.name for one in workloads if one.workload.key in excluded.keys] == []
    signatures = {one.name: training.signature(one.workload) for one in workloads}
    assert {n: s for n, s in signatures.items() if s in excluded.signatures} == {}
    assert not any(excluded.has(one.workload) for one in workloads)


def test_the_evaluation_set_has_what_differs_only_by_names_and_epilogue():
    excluded = training.excluded()
    x, w = op.tensor("image", 1, 28, 28, 128), op.tensor("filter", 3, 3, 128, 128)
    workload = _workload(x, w, op.relu6(op.conv2d(x, w, 1, 1)))
    assert workload.key not in excluded.keys
    assert excluded.has(workload) and excluded.has(_get("conv2d_pad_relu"))


def _written() -> list[dict[str, object]]:
    document = json.loads(training.EXCLUDED_FILE.read_text(encoding="utf-8"))
    assert document["schema"] == training.EXCLUDED_SCHEMA
    entries: list[dict[str, object]] = document["workloads"]
    return entries


def test_the_written_subgraphs_and_kernels_are_current():
    """Otherwise run ``python -m benchmarks.excluded``."""
    assert [entry for entry in _written() if entry["network"] is None] == list(writer.single())


def test_every_network_is_written():
    assert {entry["network"] for entry in _written()} == {None, *writer.networks()}


@pytest.mark.slow
@pytest.mark.parametrize("name", writer.networks())
def test_the_written_tasks_of_networks_are_current(name: str, hardware: Hardware):
    """Otherwise run ``python -m benchmarks.excluded``."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    written = [entry for entry in _written() if entry["network"] == name]
    assert written == list(writer.of_networks([name]))
    kinds = {training.operator_kind(w) for w in _tasks(name, hardware)}
    assert kinds <= set(training.OPERATOR_KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mobilenet_v2", {"conv2d", "depthwise", "dense", "pool", "elementwise"}),
        ("dcgan", {"conv2d_transpose", "dense"}),
        # Its attention is one kernel that is not tuned.
        ("gpt_neo_2_7b_attention", {"dense"}),
    ],
)
def test_kinds_of_a_network_are_those_of_its_layers(name, expected, hardware):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    kinds = {training.operator_kind(workload) for workload in _tasks(name, hardware)}
    assert expected <= kinds <= expected | {"elementwise"}


def _tasks(name: str, hardware: Hardware) -> list[Workload]:
    from foretune.graph import extract
    from foretune.workload import Model

    model = catalog.get(name)
    assert isinstance(model, Model)
    return extract(model, hardware).workloads
