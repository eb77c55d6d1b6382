"""Functions as polynomials: as exact as is promised over all of float32, and where infinities,
NaN, denormals and signed zeros are. The right values are NumPy's and SciPy's in float64."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from foretune import _tvm
from foretune.codegen import finish, vector_math
from foretune.graph import extract
from foretune.hardware import Hardware, preset, probe, why_not_here
from foretune.space import default_schedule
from foretune.workload import from_object

tvm = _tvm.tvm
te, tirx = tvm.te, tvm.tirx

ROWS, COLUMNS = 2048, 64
EDGES = [0.0, 1.0, 2.0, 3.0, 0.5, 1e-45, 1e-38, 1.1754944e-38, 3.4028235e38, np.inf]
EDGES += [88.72, 88.73, 87.3, 103.9, 104.0, 149.0, 150.0, 38.5, 45.1, 1.0000001, 0.99999994]


def every_kind_of_number(seed: int = 0) -> np.ndarray:
    """Random bits, numbers around 0 and 1, up to 120, and the edges of float32."""
    rng = np.random.default_rng(seed)
    count = ROWS * COLUMNS
    edges = np.array([*EDGES, *(-e for e in EDGES), np.nan], np.float32)
    found = np.concatenate(
        [
            rng.integers(0, 1 << 32, count // 4, dtype=np.uint64).astype(np.uint32).view("f4"),
            rng.standard_normal(count // 4).astype("f4"),
            (1 + rng.standard_normal(count // 8) / 100).astype("f4"),
            rng.uniform(-12, 12, count // 8).astype("f4"),
            rng.uniform(-120, 120, count // 4).astype("f4"),
        ]
    )
    found[rng.permutation(count)[: edges.size * 40]] = np.repeat(edges, 40)
    return found.reshape(ROWS, COLUMNS)


def compiled(element: Callable, hardware: Hardware | None = None, width: int = 8, **options):
    """A function of two arrays, computed element by element in vectors of ``width``."""
    hardware = hardware or probe(threads=1)
    x, y = (te.placeholder((ROWS, COLUMNS), "float32", name=name) for name in "xy")
    result = te.compute((ROWS, COLUMNS), lambda *at: element(x[at], y[at]), name="result")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y, result]))
    _, column = schedule.get_loops(schedule.get_sblock("result"))
    if width > 1:
        schedule.vectorize(schedule.split(column, [None, width])[1])
    module = finish(schedule.mod, hardware, **options).module
    function = tvm.compile(module, hardware.code_target()).jit()["main"]

    def call(one: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
        other = one if other is None else other
        arrays = [tvm.runtime.tensor(a) for a in (one, other, np.zeros_like(one))]
        function(*arrays)
        return arrays[2].numpy()

    return call


def in_units(actual: np.ndarray, exact: np.ndarray) -> float:
    """Largest error in units in the last place; NaN, infinities and signs of zeros are equal."""
    with np.errstate(over="ignore"):
        rounded = exact.astype("float32")
    assert (np.isnan(actual) == np.isnan(rounded)).all()
    infinite = np.isinf(rounded) | np.isinf(actual)
    assert (actual[infinite] == rounded[infinite]).all()
    known = ~np.isnan(rounded)
    assert (np.signbit(actual) == np.signbit(rounded))[known].all()
    finite = np.isfinite(rounded)
    with np.errstate(over="ignore"):  # beyond the largest
        units = np.spacing(np.abs(rounded[finite])).astype("float64")
    return float((np.abs(actual[finite].astype("float64") - exact[finite]) / units).max())


FUNCTIONS = {
    "exp": (np.exp, 4),
    "exp2": (np.exp2, 4),
    "exp10": (special.exp10, 4),
    "expm1": (np.expm1, 4),
    "log": (np.log, 4),
    "log2": (np.log2, 4),
    "log10": (np.log10, 4),
    "log1p": (np.log1p, 4),
    "tanh": (np.tanh, 4),
    "sigmoid": (special.expit, 4),
    "erf": (special.erf, 4),
    "sin": (np.sin, 4),
    "cos": (np.cos, 4),
}


def function_of(name: str) -> Callable:
    """TVM's function of that name; the C library's where TVM has none."""
    own = getattr(tirx, name, None)
    return own or (lambda x: tirx.call_pure_extern("float32", f"{name}f", x))


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact_to_a_few_last_places(name: str, width: int) -> None:
    exact, most = FUNCTIONS[name]
    data = every_kind_of_number()
    with np.errstate(all="ignore"):
        wanted = exact(data.astype("float64"))
    function = compiled(lambda x, _: function_of(name)(x), width=width)
    assert in_units(function(data), wanted) <= most


@pytest.mark.parametrize("width", [4, 16, 24, 64])
def test_powers_of_two_are_exact_in_every_width_of_vectors(width: int) -> None:
    names = ("exp", "tanh", "sigmoid")
    data = every_kind_of_number(width)
    for name in names:
        exact, most = FUNCTIONS[name]
        with np.errstate(all="ignore"):
            wanted = exact(data.astype("float64"))
        function = compiled(lambda x, _, name=name: getattr(tirx, name)(x), width=width)
        assert in_units(function(data), wanted) <= most


@pytest.mark.parametrize("name", ["exp", "exp2", "exp10", "tanh", "sigmoid", "erf"])
def test_functions_are_exact_without_an_instruction_that_scales(name: str) -> None:
    older = preset("zen3", 1)
    if (why := why_not_here(older)) is not None:
        pytest.skip(why)
    exact, most = FUNCTIONS[name]
    data = every_kind_of_number(3)
    with np.errstate(all="ignore"):
        wanted = exact(data.astype("float64"))
    function = compiled(lambda x, _: getattr(tirx, name)(x), older)
    assert in_units(function(data), wanted) <= most


def test_processors_with_an_instruction_that_scales_use_it() -> None:
    x = te.placeholder((64, 64), "float32", name="x")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func([x, te.compute((64, 64), lambda *at: tirx.exp(x[at]), name="y")])
    )
    _, column = schedule.get_loops(schedule.get_sblock("y"))
    schedule.vectorize(schedule.split(column, [None, 16])[1])
    for name, uses in (("zen4", True), ("zen3", False)):
        hardware = preset(name, 1)
        module = finish(schedule.mod, hardware).module
        code = tvm.compile(module, hardware.code_target()).mod.inspect_source("ll")
        assert ("avx512.mask.scalef.ps.512" in code) == uses


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_exact_on_many_bits(name: str) -> None:
    exact, most = FUNCTIONS[name]
    function = compiled(lambda x, _: function_of(name)(x))
    for seed in range(100):
        data = every_kind_of_number(seed)
        with np.errstate(all="ignore"):
            assert in_units(function(data), exact(data.astype("float64"))) <= most


@pytest.mark.slow  # TVM takes ten seconds to lower one
def test_powers_are_those_of_the_c_library() -> None:
    edges = np.array([*EDGES, *(-e for e in EDGES), np.nan, 7, -7, 2.5, -2.5, 1e9 + 1], "f4")
    pairs = np.stack(np.meshgrid(edges, edges), -1).reshape(-1, 2)
    rng = np.random.default_rng(0)
    drawn = [every_kind_of_number(1).ravel(), rng.uniform(-9, 9, ROWS * COLUMNS).astype("f4")]
    x, y = (np.concatenate([pairs[:, at], drawn[at]])[: ROWS * COLUMNS] for at in range(2))
    x, y = (a.reshape(ROWS, COLUMNS) for a in (x, y))
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype("float64"), y.astype("float64"))
    assert in_units(compiled(tirx.pow)(x, y), wanted) <= 8


@pytest.mark.parametrize(
    "exponent",
    [0, 1, 2, 3, 5, 8, -1, -2, -4, 0.5, -0.5]
    + [pytest.param(power, marks=pytest.mark.slow) for power in (9, -5, 1.7, 0.25)],
)
def test_constant_powers_are_products_roots_or_powers(exponent: float) -> None:
    data = every_kind_of_number()
    power = tirx.const(exponent, "float32")
    with np.errstate(all="ignore"):
        # An array: NumPy takes the root for the number 0.5, which differs at -infinity.
        exponents = np.full(data.shape, np.float32(exponent), "float64")
        wanted = np.power(data.astype("float64"), exponents)
    assert in_units(compiled(lambda x, _: tirx.pow(x, power))(data), wanted) <= 8


def number(value: float):
    return tirx.const(value, "float32")


ROOT, SCALE, CUBE = math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715
GELU = {
    "erf": lambda x, _: x * number(0.5) * (number(1) + tirx.erf(x * number(ROOT))),
    "erf of halves": lambda x, _: x * (number(0.5) + tirx.erf(x * number(ROOT)) * number(0.5)),
    "erf of a quotient": lambda x, _: (
        x * ((tirx.erf(x / number(math.sqrt(2))) + number(1)) * number(0.5))
    ),
}
GELU_TANH = {
    "cube": lambda x: number(SCALE) * (x + number(CUBE) * x * x * x),
    "power": lambda x: number(SCALE) * (x + number(CUBE) * tirx.pow(x, number(3))),
    "product": lambda x: x * number(SCALE) * (number(1) + number(CUBE) * (x * x)),
}


def without_denormals(data: np.ndarray) -> np.ndarray:
    """What lies 13 standard deviations below 0 has a probability that is no normal number."""
    return np.where(data < -13, np.float32(1), data)


@pytest.mark.parametrize("form", GELU)
def test_gelu_keeps_its_places_where_its_sum_cancels(form: str) -> None:
    data = without_denormals(every_kind_of_number())
    wide = data.astype("float64")
    assert in_units(compiled(GELU[form])(data), wide * special.ndtr(wide)) <= 8


@pytest.mark.parametrize("form", GELU_TANH)
def test_gelu_by_tanh_keeps_its_places(form: str) -> None:
    data = np.clip(without_denormals(every_kind_of_number()), -9, None)
    wide = data.astype("float64")
    scale, cube = (float(np.float32(value)) for value in (SCALE, CUBE))
    with np.errstate(all="ignore"):
        wanted = wide * special.expit(2 * scale * (wide + cube * wide**3))

    def gelu(x, _):
        return number(0.5) * x * (number(1) + tirx.tanh(GELU_TANH[form](x)))

    assert in_units(compiled(gelu)(data), wanted) <= 8


@settings(max_examples=15, deadline=None)
@given(a=st.sampled_from(["x", "y", "x*x", "x*y", "pow"]), b=st.floats(-2, 2, width=32))
def test_one_plus_tanh_of_anything_is_what_it_was(a: str, b: float) -> None:
    forms = {
        "x": lambda x, y: x,
        "y": lambda x, y: y * x,
        "x*x": lambda x, y: x * x,
        "x*y": lambda x, y: x * (x + y),
        "pow": lambda x, y: tirx.pow(y, number(3)) + x,
    }
    rng = np.random.default_rng(3)
    x, y = (rng.uniform(-2, 2, (ROWS, COLUMNS)).astype("f4") for _ in range(2))

    def element(x, y):
        inner = forms[a](x, y) * number(b) + x
        return number(1) + tirx.tanh(inner) + tirx.erf(inner) * number(0.25)

    ours, plain = compiled(element), compiled(element, without=["vector-math"])
    np.testing.assert_allclose(ours(x, y), plain(x, y), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_two_bytes_are_computed_in_float32(dtype: str) -> None:
    most = {"float16": 10.0, "bfloat16": 80.0}[dtype]
    drawn = np.random.default_rng(0).uniform(-most, most, (ROWS, COLUMNS))
    # Numbers of that type: TVM takes no notice of a rounding that is widened again.
    data = drawn.astype(np.dtype(getattr(ml_dtypes, dtype, dtype))).astype("float32")

    def element(x, _):
        return tirx.exp(x.astype(dtype)).astype("float32")

    wanted = np.exp(data.astype("float64"))
    np.testing.assert_allclose(compiled(element)(data), wanted, rtol=2**-7, atol=1e-7)


@pytest.mark.parametrize("target", ["zen3", "zen4", "x86-64-v2", "graviton3", "raspberry-pi-4"])
def test_no_scalar_call_is_left_on_any_cpu(target: str) -> None:
    hardware = preset(target, 1)
    x = te.placeholder((64, 64), "float32", name="x")
    y = te.compute((64, 64), lambda *at: tirx.exp(x[at]) + tirx.erf(x[at]) + tirx.tanh(x[at]))
    module = finish(tvm.IRModule({"main": te.create_prim_func([x, y])}), hardware, ()).module
    code = tvm.compile(module, hardware.code_target())
    text = code.mod.inspect_source("ll") if hasattr(code, "mod") else code.inspect_source("ll")
    assert not any(f"@{name}" in text for name in ("expf", "erff", "tanhf"))


def test_unrolled_copies_do_not_share_names() -> None:
    hardware = probe(threads=1)
    x = te.placeholder((16,), "float32", name="x")
    y = te.compute(
        (16,), lambda i: tirx.pow(tirx.exp(x[i]), number(3)) + tirx.log1p(x[i]), name="y"
    )
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    schedule.unroll(loop)
    module = finish(schedule.mod, hardware, ()).module
    arrays = [tvm.runtime.tensor(np.linspace(0, 2, 16, dtype="f4")), tvm.runtime.empty((16,))]
    tvm.compile(module, hardware.code_target()).jit()["main"](*arrays)
    wide = arrays[0].numpy().astype("float64")
    np.testing.assert_allclose(arrays[1].numpy(), np.exp(wide) ** 3 + np.log1p(wide), rtol=1e-5)


@pytest.mark.parametrize("name", ["log1p", "log2", "log10", "exp2", "expm1"])
def test_functions_called_by_their_name_in_the_c_library(name: str) -> None:
    data = every_kind_of_number(5)
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[name][0](data.astype("float64"))

    def element(x: Any, _: Any) -> Any:
        return tirx.call_pure_extern("float32", f"{name}f", x)

    assert in_units(compiled(element)(data), wanted) <= 4


def _unrolled(element: Callable, ours: bool = True) -> np.ndarray:
    """A function of the loop's variable, whose loop is unrolled: its arguments become constants."""
    hardware = probe(threads=1)
    y = te.compute((4,), lambda i: element(i.astype("float32")), name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([y]))
    schedule.unroll(schedule.get_loops(schedule.get_sblock("y"))[0])
    module = finish(schedule.mod, hardware, () if ours else ("vector-math",)).module
    result = tvm.runtime.tensor(np.zeros(4, "f4"))
    tvm.compile(module, hardware.code_target()).jit()["main"](result)
    return result.numpy()


@pytest.mark.parametrize(
    "element",
    [
        lambda i: tirx.exp(i * number(0.5)),
        lambda i: tirx.pow(i + number(1), i),
        lambda i: tirx.pow(number(2), i),
        lambda i: tirx.pow(i, number(3)),
        lambda i: number(1) + tirx.erf(i * number(ROOT)),
        lambda i: tirx.exp(tirx.if_then_else(i > 2, i, number(0))),
    ],
)
def test_arguments_that_become_constants_later(element: Callable) -> None:
    np.testing.assert_allclose(_unrolled(element), _unrolled(element, ours=False), rtol=1e-6)


def test_a_kernel_on_which_a_pass_fails_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(call: Any, name: str, *rest: Any) -> Any:
        if name == "tanh":
            raise ValueError("no tanh today")
        return replaced(call, name, *rest)

    replaced = vector_math._replaced
    monkeypatch.setattr(vector_math, "_replaced", failing)
    functions = {}
    for name, function in {"one": tirx.exp, "two": tirx.tanh}.items():
        x = te.placeholder((64,), "float32", name="x")
        y = te.compute((64,), partial(_of_element, function, x), "y")
        functions[name] = te.create_prim_func([x, y]).with_attr("global_symbol", name)
    finished = finish(tvm.IRModule(functions), probe(threads=1))
    assert "no tanh today" in finished.failed["vector-math"]
    assert "vector-math" in finished.changed
    assert "foretune.exp" in str(finished.module["one"])
    assert "tirx.tanh" in str(finished.module["two"]) or "T.tanh" in str(finished.module["two"])


ACTIVATIONS = {
    "softplus": torch.nn.Softplus(),
    "mish": torch.nn.Mish(),
    "elu": torch.nn.ELU(),
    "celu": torch.nn.CELU(),
    "selu": torch.nn.SELU(),
    "log of sigmoid": torch.nn.LogSigmoid(),
    "silu": torch.nn.SiLU(),
    "gelu": torch.nn.GELU(),
    "gelu by tanh": torch.nn.GELU(approximate="tanh"),
    "hard swish": torch.nn.Hardswish(),
    "softmax": torch.nn.Softmax(-1),
    "log of softmax": torch.nn.LogSoftmax(-1),
}


class Activated(torch.nn.Module):
    """A layer before each of the activations."""

    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Sequential(torch.nn.Linear(8, 32), f) for f in ACTIVATIONS.values()]
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x) for layer in self.layers)


def test_activations_of_networks_are_no_calls_of_the_c_library() -> None:
    hardware = probe(threads=1)
    model = from_object((Activated().eval(), (torch.randn(2, 8),)), "activated", "a test")
    found = extract(model, hardware)
    assert len(found.workloads) >= len(ACTIVATIONS)
    calls = {}
    for workload in found.workloads:
        schedule = default_schedule(workload.module["main"], hardware)
        module = finish(schedule.mod, hardware).module
        text = tvm.compile(module, hardware.code_target()).mod.inspect_source("ll")
        calls[workload.name] = set(re.findall(r"call [^@\n]*@(\w+f)\(", text))
    assert not {name: called for name, called in calls.items() if called}


def test_what_has_no_function_stays_the_same_module() -> None:
    x = te.placeholder((8,), "float32", name="x")
    y = te.compute((8,), lambda i: x[i] * x[i])
    module = tvm.IRModule({"main": te.create_prim_func([x, y])})
    finished = finish(module, probe(threads=1), ())
    assert finished.module is module and not finished.changed


def test_gpus_keep_their_own_functions() -> None:
    x = te.placeholder((8,), "float32", name="x")
    y = te.compute((8,), lambda i: tirx.exp(x[i]))
    module = tvm.IRModule({"main": te.create_prim_func([x, y])})
    gpu = Hardware("a GPU", json.dumps({"kind": "cuda", "arch": "sm_80"}), 1)
    assert finish(module, gpu, ()).module is module


# The last three took TVM minutes as expressions: it put definitions in place of names.
OF_FUNCTIONS: dict[str, tuple[Callable, Callable]] = {
    "softplus": (lambda x: tirx.log1p(tirx.exp(x)), lambda x: np.log1p(np.exp(x))),
    "sigmoid of silu": (
        lambda x: tirx.sigmoid(x * tirx.sigmoid(x)),
        lambda x: special.expit(x * special.expit(x)),
    ),
    "mish": (
        lambda x: x * tirx.tanh(tirx.log1p(tirx.exp(x))),
        lambda x: x * np.tanh(np.log1p(np.exp(x))),
    ),
    "power of functions": (
        lambda x: tirx.pow(tirx.exp(tirx.sin(x)), tirx.tanh(tirx.erf(x))),
        lambda x: np.exp(np.sin(x)) ** np.tanh(special.erf(x)),
    ),
}


@pytest.mark.parametrize("width", [1, 4, 64])
@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_functions_of_functions(name: str, width: int) -> None:
    element, exact = OF_FUNCTIONS[name]
    data = np.random.default_rng(4).uniform(-9, 9, (ROWS, COLUMNS)).astype("f4")
    found = compiled(lambda x, _: element(x), width=width)(data)
    np.testing.assert_allclose(found, exact(data.astype("float64")), rtol=3e-6, atol=1e-7)


@pytest.mark.parametrize("extents", [(5, 3), (2, 7), (3, 12), (1, 100), (4, 1)])
def test_vectors_of_any_width(extents: tuple[int, int]) -> None:
    x = te.placeholder(extents, "float32", name="x")
    y = te.compute(extents, lambda *at: tirx.exp(x[at]) + tirx.pow(x[at], tirx.const(3.0)), "y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("y"))[-1])
    hardware = probe(threads=1)
    module = finish(schedule.mod, hardware).module
    data = np.random.default_rng(5).standard_normal(extents).astype("f4")
    arrays = [tvm.runtime.tensor(data), tvm.runtime.tensor(np.zeros_like(data))]
    tvm.compile(module, hardware.code_target()).jit()["main"](*arrays)
    wide = data.astype("float64")
    np.testing.assert_allclose(arrays[1].numpy(), np.exp(wide) + wide**3, rtol=1e-6, atol=1e-6)


def _of_element(function: Callable, x, i):
    return function(x[i])


def test_several_programs_of_one_module_have_their_own_functions() -> None:
    """Also where two use the same: LLVM links one module out of all."""
    functions = {}
    for name, function in {"one": tirx.exp, "two": tirx.exp, "three": tirx.tanh}.items():
        x = te.placeholder((64,), "float32", name="x")
        y = te.compute((64,), partial(_of_element, function, x), "y")
        functions[name] = te.create_prim_func([x, y]).with_attr("global_symbol", name)
    hardware = probe(threads=1)
    module = finish(tvm.IRModule(functions), hardware).module
    library = tvm.compile(module, hardware.code_target()).jit()
    data = np.linspace(-2, 2, 64, dtype="f4")
    for name, exact in (("one", np.exp), ("two", np.exp), ("three", np.tanh)):
        arrays = [tvm.runtime.tensor(data), tvm.runtime.tensor(np.zeros_like(data))]
        library[name](*arrays)
        np.testing.assert_allclose(arrays[1].numpy(), exact(data.astype("float64")), rtol=1e-6)
