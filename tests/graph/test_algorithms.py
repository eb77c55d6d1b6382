"""Winograd's filtering as a choice: what it computes, what it is for, and plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.errors import BadInputError
from foretune.graph import compile_model, extract
from foretune.graph._default import default_schedule
from foretune.graph.passes import Decisions, algorithms, winograd_tiles
from foretune.graph.passes.reshapes import sink_reshapes
from foretune.graph.passes.rewrites import rewrite_operators
from foretune.hardware import probe
from foretune.workload import Model, TensorSpec
from tests.graph.programs import constant, module_of, relax, run

op = relax.op
WINOGRAD = ("winograd2", "winograd4")
LARGEST_ERROR = 5e-6


def hardware(lanes=8):
    return replace(probe(), simd_bits=32 * lanes)


def convolution(data, weight, padding, **kwargs):
    letters = "HW" if weight.ndim == 4 else "DHW"
    make = getattr(op.nn, f"conv{len(letters)}d")
    layouts = {"data_layout": f"N{letters}C", "kernel_layout": f"{letters}IO"}
    return make(data, constant(weight), padding=list(padding), **layouts, **kwargs)


def exact(data, weight, padding):
    """The convolution in float64, by PyTorch."""
    import torch

    rank = weight.ndim - 2
    x = np.moveaxis(data.astype("float64"), -1, 1)
    ends = [(padding[a], padding[rank + a]) for a in range(rank)]
    x = torch.from_numpy(np.pad(x, [(0, 0), (0, 0), *ends]))
    kernel = np.moveaxis(weight.astype("float64"), (-1, -2), (0, 1))
    conv = torch.nn.functional.conv2d if rank == 2 else torch.nn.functional.conv3d
    return np.moveaxis(conv(x, torch.from_numpy(kernel.copy())).numpy(), 1, -1)


def filtered(module, algorithm, target=None):
    free = Decisions()
    algorithms.choose_algorithms(module, target or hardware(), free)
    decisions = Decisions(dict.fromkeys(free.taken, algorithm))
    changed = algorithms.choose_algorithms(module, target or hardware(), decisions)
    decisions.require_kept()
    return rewrite_operators(sink_reshapes(rewrite_operators(changed)))


def fused(module):
    from foretune.graph._lowering import lower

    names = ("FoldConstant", "AnnotateTIROpPattern", "FuseOps", "FuseTIR")
    passes = [getattr(relax.transform, name)() for name in names]
    passes.append(relax.transform.DeadCodeElimination(["main"]))
    with hardware().tvm_target():
        return _tvm.tvm.transform.Sequential(passes)(lower(module, "a network"))


def scheduled(module):
    return winograd_tiles.schedule_tiles(fused(module))


def error(actual, expected):
    return np.abs(actual - expected).max() / np.abs(expected).max()


@st.composite
def convolutions(draw):
    rank = draw(st.integers(2, 3))
    padding = draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    depth = [draw(st.integers(1, 3))] * (rank - 2)
    kernel = [*depth, 3, 3]
    extents = [
        max(1, k - padding[a] - padding[rank + a]) + draw(st.integers(0, 7))
        for a, k in enumerate(kernel)
    ]
    channels = [draw(st.sampled_from([1, 5, 8, 12, 16, 24])) for _ in range(2)]
    return draw(st.integers(1, 2)), extents, kernel, channels, padding


@settings(max_examples=8, deadline=None)
@given(convolutions(), st.sampled_from(WINOGRAD))
def test_convolutions_of_every_size_padding_and_rank(case, algorithm):
    batch, extents, kernel, (inputs, outputs), padding = case
    rng = np.random.default_rng(sum(extents))
    x = rng.normal(size=(batch, *extents, inputs)).astype("float32")
    weight = rng.normal(size=(*kernel, inputs, outputs)).astype("float32")
    module = module_of(lambda t: convolution(t, weight, padding), x)
    changed = scheduled(filtered(module, algorithm))
    (actual,) = run(default_schedule(changed, hardware()), x)
    assert actual.dtype == np.float32
    assert error(actual, exact(x, weight, padding)) < LARGEST_ERROR


@pytest.mark.parametrize("algorithm", WINOGRAD)
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_the_error_of_the_longest_sums_that_are_a_choice(rng, algorithm, mean):
    channels = 512
    x = np.maximum(rng.normal(mean, 1, (1, 8, 8, channels)), 0).astype("float32")
    weight = rng.normal(size=(3, 3, channels, 16)).astype("float32")
    module = module_of(lambda t: convolution(t, weight, (1, 1, 1, 1)), x)
    (actual,) = run(default_schedule(scheduled(filtered(module, algorithm)), hardware()), x)
    assert error(actual, exact(x, weight, (1, 1, 1, 1))) < LARGEST_ERROR


def test_longer_sums_leave_out_the_choice_of_the_larger_error():
    shape = algorithms.Convolution(1, 1, 1, (14, 14), 512, 512)
    assert "winograd4" in algorithms.costs(shape)
    for longer in (replace(shape, inputs=513), replace(shape, depth=3)):
        assert set(algorithms.costs(longer)) == {"direct", "winograd2"}


def bias_and_relu(y, _x, emit):
    return op.nn.relu(emit(op.add(y, constant(np.arange(16, dtype="float32")))))


def bias_residual_and_relu(y, x, emit):
    return bias_and_relu(emit(op.add(y, x)), x, emit)


def silu(y, _x, emit):
    return op.multiply(y, emit(op.sigmoid(y)))


@pytest.mark.parametrize("after", [bias_and_relu, bias_residual_and_relu, silu])
def test_what_follows_is_computed_in_the_last_step(rng, after):
    x = rng.normal(size=(1, 9, 7, 16)).astype("float32")
    weight = rng.normal(size=(3, 3, 16, 16)).astype("float32")

    def make(t):
        emit = relax.BlockBuilder.current().emit
        return emit(after(emit(convolution(t, weight, (1, 1, 1, 1))), t, emit))

    module = module_of(make, x)
    changed = scheduled(filtered(module, "winograd4"))
    steps = {
        str(v.name_hint): bool(dict(f.attrs or {}).get("tirx.is_scheduled", False))
        for v, f in changed.functions.items()
        if v.name_hint != "main" and not relax.analysis.has_reshape_pattern(f)
    }
    assert len(steps) == 3
    assert sum(steps.values()) == 2, "only the product is left to be tuned"
    (expected,), (actual,) = run(module, x), run(default_schedule(changed, hardware()), x)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_steps_that_are_not_scheduled_compute_the_same(rng):
    x = rng.normal(size=(1, 6, 5, 16)).astype("float32")
    weight = rng.normal(size=(3, 3, 16, 16)).astype("float32")
    program = fused(
        filtered(module_of(lambda t: convolution(t, weight, (0, 1, 1, 0)), x), "winograd4")
    )
    one, other = (
        run(default_schedule(each, hardware()), x)[0]
        for each in (program, winograd_tiles.schedule_tiles(program))
    )
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_what_is_not_finite_stays_in_its_tile(rng):
    x = rng.normal(size=(1, 12, 12, 8)).astype("float32")
    weight = rng.normal(size=(3, 3, 8, 8)).astype("float32")
    module = module_of(lambda t: convolution(t, weight, (1, 1, 1, 1)), x)
    program = default_schedule(scheduled(filtered(module, "winograd4")), hardware())
    (before,) = run(program, x)
    x[0, 6, 6, 3] = np.inf
    (after,) = run(program, x)
    reached = np.zeros((12, 12), bool)
    reached[4:8, 4:8] = True
    assert np.isnan(after[0, reached]).all(), "the direct convolution gives infinities there"
    np.testing.assert_array_equal(after[0, ~reached], before[0, ~reached])


@pytest.mark.parametrize(
    "change",
    [{"strides": 2}, {"dilation": 2}, {"groups": 2}, {"kernel": 5}, {"dtype": "float64"}],
)
def test_other_convolutions_have_no_choice(rng, change):
    options = dict(change)
    size, dtype = options.pop("kernel", 3), options.pop("dtype", "float32")
    x = rng.normal(size=(1, 9, 9, 8)).astype(dtype)
    weight = rng.normal(size=(size, size, 8 // options.get("groups", 1), 8)).astype(dtype)
    module = module_of(lambda t: convolution(t, weight, (1, 1, 1, 1), **options), x)
    decisions = Decisions()
    assert not has_steps(algorithms.choose_algorithms(module, hardware(), decisions))
    assert decisions.taken == {}


def has_steps(module):
    return any("winograd" in str(v.name_hint) for v in module.get_global_vars())


def test_weights_that_are_computed_have_no_choice(rng):
    x = rng.normal(size=(3, 3, 8, 8)).astype("float32")

    def make(t):
        return op.nn.conv2d(t, t, data_layout="NHWC", kernel_layout="HWIO")

    decisions = Decisions()
    algorithms.choose_algorithms(module_of(make, x), hardware(), decisions)
    assert decisions.taken == {}


FIRST = "conv2d 1x28x28x4, 3x3x4x64"
SECOND = "conv2d 1x28x28x64, 3x3x64x64"


@pytest.fixture
def network(rng):
    """Two convolutions, of which one has few channels."""
    x = rng.normal(size=(1, 28, 28, 4)).astype("float32")
    first, second = (
        rng.normal(size=(3, 3, i, o)).astype("float32") for i, o in ((4, 64), (64, 64))
    )

    def make(t):
        emit = relax.BlockBuilder.current().emit
        return convolution(emit(convolution(t, first, (1,) * 4)), second, (1,) * 4)

    spec = TensorSpec("x0", x.shape, "float32")
    result = TensorSpec("y", (1, 28, 28, 64), "float32")
    return Model("two", module_of(make, x), (spec,), (result,), (x,))


def test_each_convolution_is_decided_for_itself_and_the_plan_can_be_given_back(network):
    found = extract(network, hardware())
    plan = found.plan["algorithms"]
    assert list(plan) == [FIRST, SECOND]
    assert plan[FIRST] == "direct"
    assert plan[SECOND] in WINOGRAD
    again = extract(network, hardware(), plan=found.plan)
    assert again.plan == found.plan
    assert [w.key for w in again.workloads] == [w.key for w in found.workloads]


def test_a_plan_decides_about_layouts_and_panels(network, rng):
    x = rng.normal(size=(1, 4, 9, 9)).astype("float32")
    weight = constant(rng.normal(size=(32, 4, 3, 3)).astype("float32"))

    def make(t):
        return op.nn.conv2d(t, weight, strides=(2, 2))

    spec, result = TensorSpec("x0", x.shape, "float32"), TensorSpec("y", (1, 32, 4, 4), "float32")
    model = Model("one", module_of(make, x), (spec,), (result,), (x,))
    found = extract(model, hardware())
    written, last = "conv2d 1x4x9x9, 32x4x3x3", "conv2d 1x9x9x4, 3x3x4x32"
    assert found.plan["layouts"] == {written: "channels last"}
    assert found.plan["packed-weights"] == {last: "panels"}
    plan = {"layouts": {written: "as written"}}
    (kept,) = extract(model, hardware(), plan=plan).workloads
    assert kept.name.endswith("1x32x4x4")
    plan = {"packed-weights": {last: "plain"}}
    plain = extract(model, hardware(), plan=plan)
    assert plain.plan["packed-weights"] == {last: "plain"}
    assert any(w.name.endswith("1x4x4x32") for w in plain.workloads)
    for each in (found, plain):
        artifact = compile_model(model, hardware(), {}, each)
        np.testing.assert_allclose(artifact.run([x])[0], run(model.module, x)[0], atol=1e-4)


def test_a_plan_decides(network):
    direct = extract(network, hardware(), plan={"algorithms": {SECOND: "direct"}})
    assert set(direct.plan["algorithms"].values()) == {"direct"}
    off = extract(network, hardware(), ["algorithms"])
    assert "algorithms" not in off.plan
    assert [w.key for w in off.workloads] == [w.key for w in direct.workloads]


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ({"algorithms": {"conv2d 1x9": "direct"}}, f"{FIRST}, {SECOND}"),
        ({"algorithms": {FIRST: "fourier"}}, "direct, winograd2, winograd4"),
        ({"rewrites": {}}, "algorithms"),
    ],
)
def test_a_plan_for_another_network_is_refused(network, plan, named):
    with pytest.raises(BadInputError, match=named):
        extract(network, hardware(), plan=plan)


def test_a_plan_of_a_pass_that_is_off_is_refused(network):
    plan = {"algorithms": {SECOND: "direct"}}
    with pytest.raises(BadInputError, match="'algorithms', which is off"):
        extract(network, hardware(), ["algorithms"], plan)
    # What layouts leave as it was is another convolution to a plan made with them.
    found = extract(network, hardware())
    chosen = {name: each for name, each in found.plan.items() if name != "layouts"}
    assert extract(network, hardware(), ["layouts"], chosen).plan["algorithms"] == plan_of(found)


def plan_of(found):
    return found.plan["algorithms"]


def test_the_second_of_equal_operators_has_a_number(rng):
    x = rng.normal(size=(1, 8, 8, 16)).astype("float32")
    weights = rng.normal(size=(3, 3, 3, 16, 16)).astype("float32")
    decisions = Decisions()
    algorithms.choose_algorithms(module_of(lambda t: chain(t, weights), x), hardware(), decisions)
    name = "conv2d 1x8x8x16, 3x3x16x16"
    assert list(decisions.taken) == [name, f"{name} (2)", f"{name} (3)"]


def chain(t, weights):
    emit = relax.BlockBuilder.current().emit
    for weight in weights:
        t = emit(convolution(t, weight, (1, 1, 1, 1)))
    return t


def test_equal_layers_are_the_same_kernels(rng):
    x = rng.normal(size=(1, 8, 8, 16)).astype("float32")
    weights = rng.normal(size=(3, 3, 3, 16, 16)).astype("float32")

    module = module_of(lambda t: chain(t, weights), x)
    free = Decisions()
    algorithms.choose_algorithms(module, hardware(), free)
    decisions = Decisions(dict.fromkeys(free.taken, "winograd4"))
    changed = fused(algorithms.choose_algorithms(module, hardware(), decisions))
    names = [str(v.name_hint) for v in changed.get_global_vars() if "winograd" in v.name_hint]
    assert len(names) == 3
