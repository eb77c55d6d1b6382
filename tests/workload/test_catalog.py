"""Every name of the catalog builds the program that its description promises."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.workload import Workload, catalog

PROGRAMS = catalog.names("subgraph") + catalog.names("kernel")

# Operations of the products alone, from the shapes in the descriptions: 2 x cells x depth.
PRODUCT_FLOPS = {
    "conv3d_bn_relu": 2 * 4 * 14 * 14 * 256 * 27 * 256,
    "conv3d": 2 * 8 * 28 * 28 * 128 * 64,
    "ffn": 2 * 128 * 3072 * 768,
    "attention_qk": 2 * 32 * 128 * 128 * 64,
    "attention_projection": 2 * 128 * 2048 * 2048,
    "dense": 2 * 2048 * 1000,
    "attention_pv": 2 * 12 * 128 * 64 * 128,
    "qkv_projection": 2 * 128 * 768 * 768,
    "conv2d_relu": 2 * 14 * 14 * 256 * 1024,
    "conv2d": 2 * 14 * 14 * 96 * 384,
    "depthwise_relu": 2 * 56 * 56 * 144 * 9,
    "conv2d_add": 2 * 14 * 14 * 96 * 576,
    "depthwise": 2 * 7 * 7 * 576 * 9,
    "conv2d_add_relu": 2 * 14 * 14 * 1024 * 256,
    "conv2d_pad_relu": 2 * 28 * 28 * 128 * 9 * 128,
    "conv2d_stride_relu": 2 * 28 * 28 * 128 * 9 * 128,
    "conv2d_stride_add": 2 * 28 * 28 * 512 * 256,
    "llama3_attention": 4 * 32 * 128 * 128 * 128,
    "deepseek_moe": 2 * 16 * 2048 * 7168,
    "flux_attention": 4 * 24 * 256 * 256 * 128,
    "flux_conv": 2 * 32 * 32 * 512 * 9 * 512,
    "matmul_512": 2 * 512**3,
    "conv2d_3x3": 2 * 56 * 56 * 64 * 9 * 64,
    "depthwise_3x3": 2 * 112 * 112 * 32 * 9,
}


@pytest.fixture(scope="module")
def workloads() -> dict[str, Workload]:
    built = {name: catalog.get(name) for name in PROGRAMS}
    assert all(isinstance(workload, Workload) for workload in built.values())
    return built  # type: ignore[return-value]


def test_the_catalog_holds_what_the_papers_name_and_four_networks_more():
    assert len(catalog.names("subgraph")) == 22
    assert catalog.names("network")[10:] == ("efficientnet_b0", "unet", "detr", "wav2vec2")
    kernels = {"llama3_attention", "deepseek_moe", "flux_attention", "flux_conv"}
    assert kernels < set(catalog.names("kernel"))
    assert len(set(catalog.names())) == len(catalog.names())


def test_every_entry_describes_itself_in_one_line():
    for entry in catalog.entries():
        assert entry.description and "\n" not in entry.description
        assert entry.group in ("network", "subgraph", "kernel")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_operations_and_one_function(name, workloads):
    workload = workloads[name]
    assert workload.name == name and workload.flops > 0 and workload.weight == 1
    assert [g.name_hint for g in workload.module.functions] == ["main"]


@pytest.mark.parametrize("name", sorted(PRODUCT_FLOPS))
def test_programs_have_the_shape_they_promise(name, workloads):
    # Bias, activation and softmax come on top of the product, and are small beside it.
    ratio = workloads[name].flops / PRODUCT_FLOPS[name]
    assert 1 <= ratio < 1.2


def test_no_weight_is_free_to_be_laid_out_anew(workloads):
    """TVM would take the cost of another layout out of the measured time."""
    free = [n for n, w in workloads.items() if "layout_free_buffers" in w.module["main"].attrs]
    assert not free


def test_keys_are_unique(workloads):
    assert len({workload.key for workload in workloads.values()}) == len(workloads)


def test_keys_are_the_same_in_another_process(workloads):
    code = (
        "import sys, json; sys.modules['torch'] = None\n"
        "from foretune.workload import catalog\n"
        "print(json.dumps({n: catalog.get(n).key for n in json.loads(sys.argv[1])}))"
    )
    command = [sys.executable, "-c", code, json.dumps(PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert json.loads(done.stdout) == {n: workload.key for n, workload in workloads.items()}


def _run(workload: Workload, *inputs: np.ndarray) -> np.ndarray:
    """The untuned program's output for these inputs."""
    from foretune._tvm import tvm

    module = tvm.compile(workload.module, tvm.target.Target({"kind": "llvm"})).jit()
    main = workload.module["main"]
    shape = [int(extent) for extent in main.params[-1].ty.shape]
    out = tvm.runtime.tensor(np.zeros(shape, "float32"))
    module["main"](*(tvm.runtime.tensor(array) for array in inputs), out)
    return np.asarray(out.numpy())


def _draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def test_softmax_computes_softmax(rng, workloads):
    x = _draw(rng, 32, 128, 128)
    expected = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    np.testing.assert_allclose(_run(workloads["softmax"], x), expected, rtol=1e-4, atol=1e-6)


def test_attention_shares_key_and_value_heads(rng, workloads):
    q, k, v = _draw(rng, 32, 128, 128), _draw(rng, 8, 128, 128), _draw(rng, 8, 128, 128)
    keys, values = np.repeat(k, 4, axis=0), np.repeat(v, 4, axis=0)
    scores = q @ keys.transpose(0, 2, 1) / np.sqrt(128)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ values
    np.testing.assert_allclose(
        _run(workloads["llama3_attention"], q, k, v), expected, rtol=1e-3, atol=1e-4
    )


def test_layer_norm_statistics(rng, workloads):
    x = _draw(rng, 1, 128, 768)
    mean = _run(workloads["layernorm_mean"], x)
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), atol=1e-5)
    variance = _run(workloads["layernorm_variance"], x, mean)
    np.testing.assert_allclose(variance, x.var(-1, keepdims=True), rtol=1e-4)


def test_gelu_is_the_exact_one(rng, workloads):
    torch = pytest.importorskip("torch")
    x, w, b = _draw(rng, 128, 768), _draw(rng, 768, 3072) / 28, _draw(rng, 3072)
    expected = torch.nn.functional.gelu(torch.from_numpy(x @ w + b)).numpy()
    np.testing.assert_allclose(_run(workloads["ffn"], x, w, b), expected, rtol=1e-3, atol=1e-4)


def test_convolutions_compute_what_pytorch_computes(rng, workloads):
    torch = pytest.importorskip("torch")
    x, w, b = _draw(rng, 1, 28, 28, 128), _draw(rng, 3, 3, 128, 128), _draw(rng, 128)
    nchw, oihw = (torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(w).permute(3, 2, 0, 1))
    expected = torch.relu(torch.nn.functional.conv2d(nchw, oihw, torch.from_numpy(b), padding=1))
    np.testing.assert_allclose(
        _run(workloads["conv2d_pad_relu"], x, w, b),
        expected.permute(0, 2, 3, 1).numpy(),
        rtol=1e-3,
        atol=1e-3,
    )


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("matmul:64x32x16", 2 * 64 * 32 * 16),
        ("batch_matmul:2x3x4x5", 2 * 2 * 3 * 4 * 5),
        ("conv2d:1x8x8x4x6x3x1", 2 * 8 * 8 * 6 * 9 * 4),
        ("conv2d:1x8x8x4x6x3x2", 2 * 4 * 4 * 6 * 9 * 4),
        ("depthwise:1x8x8x4x3x1", 2 * 8 * 8 * 4 * 9),
    ],
)
def test_sized_names(name, flops):
    workload = catalog.get(name)
    assert catalog.has(name)
    assert isinstance(workload, Workload) and workload.flops == flops


def test_a_sized_name_gives_the_same_program_as_the_plain_one(workloads):
    assert catalog.get("matmul:512x512x512").key == workloads["matmul_512"].key


@pytest.mark.parametrize(
    "name",
    ["matmul:0x3x3", "matmul:3x3", "matmul:axbxc", "matmul:", "conv2d:1x8x8x4x4x3", "what:3"],
)
def test_bad_sizes_are_bad_input(name):
    with pytest.raises(BadInputError):
        catalog.get(name)


def test_an_unknown_name_lists_the_known_ones():
    assert not catalog.has("resnet5")
    with pytest.raises(BadInputError, match=r"'resnet5'.*resnet50"):
        catalog.get("resnet5")
    with pytest.raises(BadInputError, match="network"):
        catalog.entries("no-such-group")


def test_listing_the_catalog_loads_neither_tvm_nor_torch():
    code = (
        "import sys; from foretune.workload import catalog; catalog.entries()\n"
        "print({'tvm', 'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr
