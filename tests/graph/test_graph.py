"""From a model to workloads and back to one program that computes the same."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from foretune import _tvm
from foretune.errors import BadInputError
from foretune.graph import (
    compile_model,
    compile_workload,
    extract,
    simplify,
    verify,
)
from foretune.hardware import Hardware
from foretune.space import Space
from foretune.workload import from_object

pytest.importorskip("transformers")

from tests.graph.networks import NETWORKS, block


@pytest.fixture(scope="module")
def models():
    built = {}

    def get(name):
        if name not in built:
            built[name] = NETWORKS[name]()
        return built[name]

    return get


@pytest.fixture(scope="module")
def small():
    return block()


@pytest.fixture(scope="module")
def extraction(small, hardware):
    return extract(small, hardware)


@pytest.fixture(scope="module")
def drawn(extraction, hardware):
    """A candidate for each kernel of the block."""
    rng = np.random.default_rng(0)
    spaces = {w.key: Space.generate(w, hardware) for w in extraction.workloads}
    return {key: space.sample(rng, 1)[0] for key, space in spaces.items()}


@pytest.fixture(scope="module")
def words(models, hardware):
    return extract(models("bert"), hardware)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n != "block" else ()) for n in sorted(NETWORKS)],
)
def test_an_untuned_artifact_computes_what_the_original_does(models, hardware, name):
    model = models(name)
    result = verify(compile_model(model, hardware, {}), model)
    assert result.ok
    assert result.max_relative_error < 1e-4


def test_a_tuned_artifact_computes_what_the_original_does(small, hardware, extraction, drawn):
    artifact = compile_model(small, hardware, drawn, extraction)
    assert artifact.manifest["tuned"] == sorted(w.name for w in extraction.workloads)
    assert artifact.manifest["untuned"] == []
    assert verify(artifact, small).ok


def test_what_has_no_candidate_is_named_as_untuned(small, hardware, extraction, drawn):
    first, *others = extraction.workloads
    best = {first.key: drawn[first.key]}
    manifest = compile_model(small, hardware, best, extraction).manifest
    assert manifest["tuned"] == [first.name]
    assert manifest["untuned"] == sorted(w.name for w in others)


def test_batch_norm_padding_and_relu6_leave_no_kernels_of_their_own(extraction):
    names = [w.name for w in extraction.workloads]
    assert not [n for n in names if any(op in n for op in ("norm", "sqrt", "pad", "minimum"))]
    # One transpose brings the input to NHWC; none is left between the convolutions.
    assert [n for n in names if "transpose" in n] == ["transpose_1x17x17x3"]
    # The convolution with a kernel of one element is a product, and so is the head.
    assert len([n for n in names if "conv2d" in n]) == 2
    assert len([n for n in names if "matmul" in n]) == 2
    assert any(n.startswith("fused_conv2d_add_clip") for n in names)


def test_residual_blocks_fuse_into_their_convolution(models, hardware):
    names = [w.name for w in extract(models("resnet"), hardware).workloads]
    assert any(n.startswith("fused_matmul_add_add_relu") for n in names)
    assert not [n for n in names if n.startswith(("add", "relu", "fused_add"))]


def test_equal_programs_are_one_workload_that_counts_its_calls(words):
    keys = [w.key for w in words.workloads]
    assert len(keys) == len(set(keys))
    # Query, key and value projections of two layers.
    assert 6 in [w.weight for w in words.workloads if "matmul_add" in w.name]
    script = words.program["main"].script()
    assert sum(w.weight for w in words.workloads) <= script.count("R.call_tir(")


@pytest.mark.slow
def test_names_are_unique_and_readable(models, hardware):
    for name in NETWORKS:
        names = [w.name for w in extract(models(name), hardware).workloads]
        assert len(names) == len(set(names))
        assert all(n.replace("_", "").isalnum() for n in names)


def test_keys_do_not_depend_on_the_weights(hardware, extraction):
    keys = [w.key for w in extraction.workloads]
    assert keys == [w.key for w in extract(block(), hardware).workloads]


class Repeated(torch.nn.Module):
    """Layers that are called several times: PyTorch exports a transpose for each call."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)
        self.conv = torch.nn.Conv2d(32, 32, 3, padding=1)
        self.up = torch.nn.ConvTranspose2d(32, 32, 2, 2)

    def forward(self, x):
        for _ in range(3):
            x = self.linear(x).relu()
        x = x.unflatten(1, (8, 8)).permute(0, 3, 1, 2)
        y = self.conv(self.conv(x).relu())
        return self.up(y), self.up(y + 1)


def test_weights_that_several_calls_share_are_there_once(hardware):
    model = from_object((Repeated().eval(), (torch.randn(1, 64, 32),)))
    artifact = compile_model(model, hardware, {})
    assert verify(artifact, model).ok
    sizes = [math.prod(value.shape) for value in artifact._parameters.values()]
    # A product's, a convolution's (by Winograd 6 x 6 in place of 3 x 3) and the other one's.
    assert sum(size >= 32 * 32 for size in sizes) == 3


def test_kernels_written_by_importers_are_called_like_their_operator(hardware):
    class Special(torch.nn.Module):
        def forward(self, x):
            return torch.special.erfcx(x), torch.lgamma(x), torch.sign(x), torch.atan2(x, x + 2)

    model = from_object((Special(), (torch.rand(3, 5) + 0.5,)))
    names = [w.name for w in extract(model, hardware).workloads]
    assert not any("lambda" in name or name.startswith("call") for name in names)
    assert any("lgamma" in name for name in names)


def test_simplifying_leaves_the_model_as_it_was(small, hardware):
    before = _tvm.structural_hash(small.module)
    simplify(small, hardware)
    assert _tvm.structural_hash(small.module) == before


def test_a_single_kernel_becomes_an_artifact(hardware, rng, extraction, drawn):
    workload = extraction.workloads[0]
    untuned = compile_workload(workload, hardware)
    inputs = [rng.standard_normal(s.shape).astype(s.dtype) for s in untuned.inputs]
    tuned = compile_workload(workload, hardware, drawn[workload.key])
    assert tuned.manifest["tuned"] == [workload.name]
    for expected, actual in zip(untuned.run(inputs), tuned.run(inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


CUDA = {
    "kind": "cuda",
    "arch": "sm_86",
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
    "max_shared_memory_per_block": 49152,
}


def test_layouts_are_kept_for_gpus(small):
    extraction = extract(small, Hardware("a GPU", json.dumps(CUDA), 1))
    assert "layouts" not in [report.name for report in extraction.passes if report.on]
    names = [w.name for w in extraction.workloads]
    assert not [n for n in names if "transpose" in n]
    # Channels, then rows and columns: as PyTorch has them.
    assert any(n.startswith("fused_conv2d_add") and n.endswith("_1x16x8x8") for n in names)


def test_a_cuda_model_compiles_without_a_gpu(small):
    artifact = compile_model(small, Hardware("a GPU", json.dumps(CUDA), 1), {})
    if not _tvm.tvm.cuda(0).exist:
        with pytest.raises(BadInputError, match="no such device"):
            artifact.run(small.examples)


@pytest.mark.slow
def test_a_wrong_output_fails_verification(small, hardware):
    class Wrong:
        def run(self, inputs):
            return [a * 1.01 for a in small.reference(inputs)]

    class NotANumber:
        def run(self, inputs):
            return [a * np.nan for a in small.reference(inputs)]

    class AnotherType:
        def run(self, inputs):
            return [a.astype("float64") for a in small.reference(inputs)]

    class OneMore:
        def run(self, inputs):
            return [*small.reference(inputs), np.ones(1)]

    result = verify(Wrong(), small)
    assert not result.ok
    assert "'output0' differs by" in result.message and "examples" in result.message
    assert "float64" in verify(AnotherType(), small).message
    assert "2 outputs" in verify(OneMore(), small).message
    result = verify(NotANumber(), small)
    assert not result.ok
    assert np.isnan(result.max_abs_error)


def test_operators_behind_a_product_fuse_with_it_across_reshapes(words):
    names = [w.name for w in words.workloads]
    assert any(n.startswith("fused_matmul_add_gelu") for n in names)
    assert any(n.startswith("fused_matmul_add_add") for n in names)
    assert not [
        n for n in names if n.startswith(("gelu", "fused_reshape_gelu", "fused_reshape_add"))
    ]
