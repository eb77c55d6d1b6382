"""PyTorch modules as people have them: arguments, outputs, states, cuts, refusals."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from foretune.errors import BadInputError, UnsupportedModelError, UnsupportedOperatorsError
from foretune.graph import compile_model
from foretune.hardware import probe
from foretune.workload import cut_model, from_object, graph_nodes, load_input

torch = pytest.importorskip("torch")


def check(module, inputs, name="net", seeds=(0,)):
    """Imports, compiles and compares with eager PyTorch; gives the model and its outputs."""
    torch.manual_seed(0)
    model = from_object((module, inputs), name)
    artifact = compile_model(model, probe(), {})
    drawn = [model.examples, *(model.draw_inputs(seed) for seed in seeds)]
    results = []
    for arrays in drawn:
        outputs, expected = artifact.run(list(arrays)), model.reference(arrays)
        assert [(o.shape, o.dtype) for o in outputs] == [(e.shape, e.dtype) for e in expected]
        for output, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)
        results.append(outputs)
    return model, results


class Options(torch.nn.Module):
    def forward(self, x, extra=None, flag=False, count=2, mode="sum", pair=(None, {"deep": None})):
        y = x * count + (pair[1]["deep"] if pair[1]["deep"] is not None else 0)
        return {
            "y": getattr(y, mode)(0),
            "count": count,
            "none": extra,
            "first": (y if flag else x),
        }


def test_none_numbers_flags_and_words_are_constants():
    deep = (torch.ones(4), {"deep": torch.tensor(0.5)})
    given = {"x": torch.randn(3, 4), "flag": True, "count": 3, "mode": "mean", "pair": deep}
    model, results = check(Options(), given)
    assert [spec.shape for spec in model.inputs] == [(3, 4), (4,), ()]
    assert [output.shape for output in results[0]] == [(4,), (3, 4)]


class Outputs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(24, 24)
        self.register_buffer("table", torch.arange(40.0))

    def forward(self, x, n, unused):
        y = self.head(x).relu()
        again = (y, y.contiguous(), y.view(2, 3, 8))
        return {
            "y": y,
            "again": again,
            "same": x,
            "buffer": self.table,
            "n": n + 1,
            "last": y[:, -1],
        }


def test_outputs_may_be_inputs_buffers_views_and_the_same_tensor_twice():
    model, results = check(Outputs(), (torch.randn(2, 24), torch.tensor(3), torch.ones(5)))
    assert [spec.name for spec in model.inputs] == ["x", "n", "unused"]
    assert results[0][-2] == 4


@pytest.mark.parametrize(
    "dtype",
    [
        "bfloat16",
        "float16",
        pytest.param("float64", marks=pytest.mark.slow),
        "int8",
        pytest.param("uint8", marks=pytest.mark.slow),
        pytest.param("int64", marks=pytest.mark.slow),
    ],
)
def test_element_types(dtype):
    class Net(torch.nn.Module):
        def forward(self, x):
            return x * 2 + x, x > 1, x.sum()

    value = torch.tensor([[1, 2, 3], [0, 1, 2]]).to(getattr(torch, dtype))
    model, results = check(Net(), (value,), seeds=())
    assert [spec.dtype for spec in model.inputs] == [dtype]
    assert [output.dtype.name for output in results[0]][:2] == [dtype, "bool"]


class Streaming(torch.nn.Module):
    """A cache as streaming models have it, one counter that is not saved, one buffer untouched."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.register_buffer("cache", torch.zeros(1, 2))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        joined = torch.cat([self.inner.cache, x], dim=1)
        before = self.inner.cache
        self.inner.cache = joined[:, -2:] * self.scale
        self.steps += 1
        return joined.sum(1) + self.steps + before.sum()


def test_buffers_that_a_module_writes_are_states():
    module = Streaming()
    model = from_object((module, (torch.ones(1, 3),)), "stream")
    assert model.states == ("state.steps", "state.inner.cache")
    assert [spec.name for spec in model.inputs] == ["x", "state.steps", "state.inner.cache"]
    assert [spec.name for spec in model.outputs] == ["output0", "state.steps", "state.inner.cache"]
    artifact = compile_model(model, probe(), {})
    step = np.array([[1.0, 2.0, 3.0]], "float32")
    states, fresh = list(model.examples[1:]), Streaming()
    for _ in range(3):
        wanted = model.reference([step, *states])
        result, *states = artifact.run([step, *states])
        np.testing.assert_allclose(result, fresh(torch.from_numpy(step)).numpy())
        for state, new in zip(states, wanted[1:], strict=True):
            np.testing.assert_allclose(state, new)
    assert states[0] == 3
    assert module.inner.cache.sum() == 0
    np.testing.assert_array_equal(model.reference([step, *model.examples[1:]])[0], [7])


def test_what_is_copied_into_a_state_gets_its_type_and_shape():
    def compute(self, x):
        self.short.copy_(x)
        self.count.copy_(x.sum() * 2.5)
        self.wide.copy_(x[0])
        return x + self.short.float()

    starts = {"short": torch.zeros(3).half(), "count": torch.tensor(0), "wide": torch.zeros(2, 3)}
    x = torch.tensor([1.0, 2.0, 3.14159])
    model = from_object((Net(compute, buffers=starts), (x,)), "net")
    expected = model.reference(model.examples)
    for array, wanted in zip(
        compile_model(model, probe(), {}).run(model.examples), expected, strict=True
    ):
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(array, wanted)


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps += 1
        return x.sum() + self.steps


def test_an_archive_has_states(tmp_path):
    path = tmp_path / "count.pt2"
    torch.export.save(torch.export.export(Counting(), (torch.ones(1, 3),), strict=False), str(path))
    model = load_input(str(path))
    assert model.states == ("state.steps",)
    first, second = model.reference(model.examples), model.reference(model.examples)
    assert [array.tolist() for array in first] == [array.tolist() for array in second] == [4, 1]


class Attribute(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = torch.zeros(3)

    def forward(self, x):
        self.kept = self.kept + x
        return self.kept * 2


class InPlace(torch.nn.Module):
    def forward(self, x):
        x.add_(1)
        return x * 2


class Net(torch.nn.Module):
    """A module with attributes and a function; assigns buffers where it is told."""

    def __init__(self, compute, parts=None, buffers=None, **attributes):
        super().__init__()
        self.compute = compute
        for name, part in (parts or {}).items():
            self.add_module(name, part)
        for name, buffer in (buffers or {}).items():
            self.register_buffer(name, buffer)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.compute(self, x)


class Record:
    """Of somebody's own class."""

    n = 0


def _does(*names_and_values, then):
    """A function that sets attributes of ``self`` to what functions of ``self, x`` return."""

    def compute(self, x):
        for name, value in names_and_values:
            setattr(self, name, value(self, x))
        return then(self, x)

    return compute


def _counted(self, x):
    self.seen.append(1)
    return x * len(self.seen)


def _noted(self, x):
    self.record.n += 1
    return x * self.record.n


def _told(self, x):
    self.table["n"] = self.table.get("n", 0) + 1
    return x + self.table["n"]


def _in_place(self, x):
    self.memory.add_(x)
    return self.memory * 2


def _in_dictionary(self, x):
    self.table["m"].add_(x)
    return self.table["m"] * 2


def _filled(self, x):
    if self.k is None:
        self.k = torch.arange(3.0)
    return x + self.k


def _count(self, x):
    self.n += 1
    return x * self.n


ONE, SHARED = torch.zeros(3), torch.zeros(4)
ALIASED = {"a": ONE, "b": ONE}


def _both(self, x):
    self.a.add_(x)
    return self.b * 2


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Attribute(), r"writes its own attribute 'kept'.* register_buffer"),
        (InPlace(), r"writes its own input 'x'"),
        (Net(_count, n=0), r"own attribute 'n', .*self\.register_buffer\('n'"),
        (
            Net(lambda self, x: self.in_(x), {"in_": Net(_count, n=0)}),
            r"own attribute 'in_\.n', .*self\.in_\.register_buffer\('n'",
        ),
        (Net(_counted, seen=[]), "own attribute 'seen'"),
        (Net(_noted, record=Record()), "own attribute 'record'"),
        (Net(_told, table={}), "own attribute 'table'"),
        (Net(_in_place, memory=torch.zeros(3)), "own attribute 'memory'.* register_buffer"),
        (
            Net(lambda self, x: self.in_(x), {"in_": Net(_in_place, memory=torch.zeros(3))}),
            r"own attribute 'in_\.memory'.* register_buffer",
        ),
        (Net(_in_dictionary, table={"m": torch.zeros(3)}), "in a container .* register_buffer"),
        (Net(_filled, k=None), "own attribute 'k'.* register_buffer"),
        (
            Net(_filled, buffers={"k": None}),
            r"its buffer 'k' .*_buffer\('k', torch\.zeros\(\(3,\), dtype=torch\.float32\)\)",
        ),
        (
            Net(_does(("k", lambda s, _x: None), then=lambda s, x: x), buffers={"k": ONE}),
            "sets its buffer 'k' to None",
        ),
        (
            Net(
                _does(("k", lambda s, x: torch.cat([s.k, x])), then=lambda s, x: s.k.sum() + x),
                buffers={"k": torch.zeros(1)},
            ),
            r"its buffer 'k' another shape in a call, \(4,\) in place of \(1,\)",
        ),
        (
            Net(
                _does(("k", lambda s, x: s.k + x.double()), then=lambda s, x: s.k.sum() + x),
                buffers={"k": torch.zeros(3)},
            ),
            r"its buffer 'k' another type in a call, torch\.float64 in place of torch\.float32",
        ),
        (Net(_both, buffers=ALIASED), r"'a' and 'b' are one tensor.*clone"),
        (
            Net(_does(("a", lambda s, x: s.a + x), then=lambda s, _x: s.a + s.b), buffers=ALIASED),
            r"'a' and 'b' are one tensor.*clone",
        ),
        (Net(_both, buffers={"a": SHARED[:3], "b": SHARED[1:]}), r"'a' and 'b' are one tensor"),
    ],
)
def test_what_cannot_be_a_state_is_refused_by_name(module, message):
    with pytest.raises(UnsupportedModelError, match=message) as error:
        from_object((module, (torch.ones(3),)), "net")
    assert "\n" not in str(error.value)


def _counting(self, x):
    self.calls += 1
    self.log.append(self.calls)
    return x * 2


def _lazy(self, x):
    if self.factor is None:
        self.factor = 3
    return x * self.factor


def test_what_only_looks_like_a_state_is_none():
    x = torch.ones(3)
    warmed = Net(_filled, buffers={"k": None})
    warmed(x)
    cases = [
        (Net(_counting, calls=0, log=[]), 2 * x),
        (Net(_lazy, factor=None), 3 * x),
        (Net(lambda self, x: self.a + self.b + x, buffers=ALIASED), x),
        (warmed, x + torch.arange(3.0)),
    ]
    for module, expected in cases:
        plain = {k: v for k, v in vars(module).items() if k in ("calls", "log", "factor")}
        held = [list(v) for v in plain.values() if isinstance(v, list)]
        model = from_object((module, (x,)), "net")
        assert model.states == ()
        assert {name: vars(module)[name] for name in plain} == plain
        assert [v for v in plain.values() if isinstance(v, list)] == held
        for _ in range(2):
            np.testing.assert_array_equal(model.reference(model.examples)[0], expected)
        np.testing.assert_array_equal(
            compile_model(model, probe(), {}).run(model.examples)[0], expected
        )


def test_the_remedies_that_are_named_work():
    x = torch.ones(3)
    for module, results in [
        (Net(_count, buffers={"n": torch.tensor(0)}), [1, 2, 3]),
        (Net(_in_place, buffers={"memory": torch.zeros(3)}), [2, 4, 6]),
        (Net(_both, buffers={"a": ONE, "b": ONE.clone()}), [0, 0, 0]),
    ]:
        model = from_object((module, (x,)), "net")
        artifact, states = compile_model(model, probe(), {}), []
        for result in results:
            y, *states = artifact.run([x.numpy(), *states])
            np.testing.assert_array_equal(y, np.full(3, result))


class Partly(torch.nn.Module):
    def forward(self, x):
        y = x.relu() * 2
        return torch.linalg.svdvals(y).sin(), torch.nonzero(x).float(), x.cos()


NET = """
import torch
class Partly(torch.nn.Module):
    def forward(self, x):
        y = x.relu() * 2
        return torch.linalg.svdvals(y).sin(), x.cos()
def net(): return Partly(), (torch.randn(3, 3),)
"""


def test_all_operators_that_cannot_be_compiled_are_named_with_their_nodes():
    with pytest.raises(UnsupportedOperatorsError) as error:
        from_object((Partly(), (torch.randn(3, 3),)), "net")
    assert error.value.operators == {
        "aten._linalg_svd.default": ("linalg_svdvals",),
        "aten.nonzero.default": ("nonzero",),
    }
    assert error.value.until == ("mul", "cos")
    assert "--until mul,cos" in str(error.value)


class Calling(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("turn", torch.polar(torch.ones(3), torch.arange(3.0)))

    def forward(self, x):
        return torch.view_as_real(torch.view_as_complex(x) * self.turn)


@pytest.mark.parametrize(
    ("function", "example", "operator", "reason"),
    [
        (lambda x: x[x > 0], torch.randn(4), "aten.index.Tensor", "depends on values"),
        (torch.fft.fft, torch.randn(4), "aten._fft_r2c.default", "complex numbers"),
        (lambda z: z * 2, torch.randn(4, dtype=torch.complex64), None, "complex numbers"),
        (lambda z: z, torch.randn(4, dtype=torch.complex64), None, "complex numbers"),
        (Table(), torch.randn(3, 2), "aten.view_as_complex.default", "complex numbers"),
    ],
)
def test_a_refusal_says_why(function, example, operator, reason):
    module = function if isinstance(function, torch.nn.Module) else Calling(function)
    with pytest.raises(UnsupportedOperatorsError) as error:
        from_object((module, (example,)), "net")
    named = operator or next(iter(error.value.operators))
    assert named in error.value.operators
    assert reason in error.value.reasons[named]
    assert len(str(error.value).splitlines()) == 1
    for why in error.value.reasons.values():
        assert f": {why}" in str(error.value)


class Twice(torch.nn.Module):
    def forward(self, x, y):
        return 2 * x - y


class Nested(torch.nn.Module):
    def forward(self, first, rest):
        return first + 2 * rest["a"] - 3 * rest["more"][0] * rest["more"][1]


class Attending(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, query, key, value):
        return self.attention(query, key, value, need_weights=False)[0]


class Weighted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("table", torch.randn(4))

    def forward(self, x, weight, table):
        return self.layer(x) - 2 * x @ weight + self.table * table


def _same_tensor_twice():
    x, tokens = torch.randn(2, 4), torch.randn(1, 3, 8)
    weighted = Weighted()
    return {
        "arguments": (Twice(), (x, x)),
        "words": (Twice(), {"x": x, "y": x}),
        "an argument and a view of it": (Twice(), (x, x[:])),
        "nested": (Nested(), (x, {"a": x, "more": [x, x.clone()]})),
        "attention": (Attending(), (tokens, tokens, tokens)),
        "a parameter and a buffer": (
            weighted,
            (x, weighted.layer.weight, weighted.table),
        ),
    }


@pytest.mark.parametrize("form", list(_same_tensor_twice()))
def test_a_tensor_that_is_given_twice_is_two_inputs(form):
    torch.manual_seed(0)
    module, inputs = _same_tensor_twice()[form]
    model, _ = check(module, inputs)
    drawn = model.draw_inputs(3)
    assert len(drawn) == len({array.tobytes() for array in drawn})
    again = from_object((module, inputs), "net").reference(drawn)
    (outputs,) = compile_model(model, probe(), {}).run(list(drawn))
    np.testing.assert_allclose(outputs, again[0], rtol=1e-5, atol=1e-5)


def test_one_tensor_for_two_inputs_is_cut_like_two():
    x = torch.randn(2, 4)
    whole = from_object((Twice(), (x, x)), "net")
    cut = cut_model(whole, [graph_nodes(whole)[-1].outputs[0]])
    drawn = whole.draw_inputs(1)
    (outputs,) = compile_model(cut, probe(), {}).run(list(drawn))
    np.testing.assert_allclose(outputs, 2 * drawn[0] - drawn[1], rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x,
        lambda x: x.permute(2, 0, 1),
        lambda x: x[:, ::2, 1:],
        lambda x: x[1, 1].expand(3, 4, 6),
        lambda x: x[:0],
    ],
)
def test_examples_keep_their_values_and_strides(make):
    given = make(torch.randn(4, 6, 6, requires_grad=True))
    model = from_object((Twice(), (given, given)), "net")
    one, other = model.source.args
    assert one is not other and one is not given
    assert one.stride() == other.stride() == given.stride()
    assert torch.equal(one, given) and torch.equal(other, given)
    assert not one.numel() or one.data_ptr() != other.data_ptr() != given.data_ptr()


class Split(torch.nn.Module):
    def forward(self, x, n):
        return torch.tensor_split(x, n, dim=1)


def test_a_refusal_is_all_that_is_said(capfd):
    # PyTorch prints the graph that it could not take apart.
    with pytest.raises(UnsupportedOperatorsError, match=r"aten\..*depends on values"):
        from_object((Split(), (torch.randn(5, 5), torch.tensor([1, 2]))), "net")
    assert capfd.readouterr().err == ""


REFUSED = """
import logging, sys, torch
from foretune.errors import UnsupportedModelError
from foretune.workload import from_object

class Sized(torch.nn.Module):
    def forward(self, x):
        return torch.zeros(int(x.sum().item())) + x[: int(x.sum().item())].sum()

for module in (torch.nn.Linear(8, 4), torch.nn.Conv2d(3, 4, 3), Sized()):
    try:
        from_object((module, torch.randn(2, 5)), "net")
    except UnsupportedModelError as error:
        print(error)
logging.getLogger("torch._subclasses.fake_tensor").error("heard again")
"""


def test_what_pytorch_logs_of_a_wrong_shape_is_not_heard():
    # PyTorch's logger keeps the standard error that it was loaded with, which is not pytest's.
    command = [sys.executable, "-c", REFUSED]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    said = told.stdout.splitlines()
    assert len(said) == 3 and all("PyTorch could not export 'net'" in line for line in said)
    (line,) = told.stderr.splitlines()
    assert line.endswith("heard again")


def test_a_model_is_cut_at_nodes(tmp_path):
    path = tmp_path / "partly.py"
    path.write_text(NET)
    model = load_input(f"{path}:net", until=["cos", "mul"])
    assert model.until == ("cos", "mul")
    assert [spec.name for spec in model.outputs] == ["cos", "mul"]
    twice = load_input(f"{path}:net", until=["cos", "cos"])
    assert [spec.name for spec in twice.outputs] == ["cos", "cos.1"]
    x = model.examples[0]
    cosine, double = compile_model(model, probe(), {}).run([x])
    np.testing.assert_allclose(cosine, np.cos(x), rtol=1e-5)
    np.testing.assert_allclose(double, np.maximum(x, 0) * 2, rtol=1e-6)
    for array, wanted in zip((cosine, double), model.reference([x]), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-5)
    with pytest.raises(BadInputError, match=r"no node 'mull' to cut at: did you mean mul"):
        load_input(f"{path}:net", until=["mull"])


def test_indices_are_counted_from_the_end_while_the_network_runs():
    class Lookup(torch.nn.Module):
        def forward(self, x, i, j):
            return x[i], x[:, i], torch.gather(x, 1, j), torch.take(x, i), x[i, i]

    model, _ = check(Lookup(), (torch.randn(4, 4), torch.tensor([0, 3]), torch.tensor([[1], [0]])))
    x = np.arange(16, dtype="float32").reshape(4, 4)
    indices = [np.array([-1, -4]), np.array([[0], [3]])]
    outputs = compile_model(model, probe(), {}).run([x, *indices])
    for output, wanted in zip(outputs, model.reference([x, *indices]), strict=True):
        np.testing.assert_array_equal(output, wanted)


class Pools(torch.nn.Module):
    def forward(self, x):
        pool = torch.nn.functional
        return {
            "up": pool.max_pool2d(x, 2, 2, 1, ceil_mode=True),
            "positions": pool.max_pool2d(x, 2, return_indices=True),
            "adaptive": pool.adaptive_max_pool2d(x, 2, return_indices=True),
        }


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.slow
def test_largest_of_windows_and_where_it_is(dtype):
    check(Pools(), (torch.randn(1, 2, 5, 5).to(getattr(torch, dtype)),))


class Signs(torch.nn.Module):
    def forward(self, x, y):
        return x >> 1, x << 2, x & 5, x | y, x ^ y, x >> y, x << y


@pytest.mark.parametrize(
    "dtype",
    [
        torch.int64,
        pytest.param(torch.int32, marks=pytest.mark.slow),
        pytest.param(torch.int16, marks=pytest.mark.slow),
        torch.uint8,
    ],
)
def test_operators_of_bits(dtype):
    check(Signs(), (torch.arange(12).to(dtype), torch.arange(12).remainder(3).to(dtype)))


class InDouble(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(2, affine=False)
        self.layer = torch.nn.LayerNorm(5, elementwise_affine=False)
        self.group = torch.nn.GroupNorm(2, 2, affine=False)

    def forward(self, x):
        larger = torch.nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear")
        return self.norm(x), self.layer(x), self.group(x), larger


def test_constants_of_lowerings_have_the_type_of_the_data():
    check(InDouble().double().eval(), (torch.randn(2, 2, 5, 5).double(),))
