"""Bisecting: the first operator that differs is named, and what is to blame for it."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import UnsupportedModelError
from foretune.graph import first_difference
from foretune.workload import cut_model, from_object, graph_nodes
from foretune.workload.importers.onnx import import_onnx

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two branches that are joined, and an early output."""
    h = onnx.helper
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 8)).astype("float32"),
        "b": rng.standard_normal(8).astype("float32"),
        "two": np.array([2, 3], "int64"),
    }
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["product"]),
        h.make_node("Add", ["product", "b"], ["sum"]),
        h.make_node("Tanh", ["sum"], ["left"]),
        h.make_node("Sigmoid", ["sum"], ["right"]),
        h.make_node("Shape", ["two"], ["constant"]),
        h.make_node("Erf", ["left"], ["leftmost"]),
        h.make_node("Mul", ["leftmost", "right"], ["joined"]),
        h.make_node("Softmax", ["joined"], ["y"], axis=-1),
    ]
    value = h.make_tensor_value_info
    graph = h.make_graph(
        nodes,
        "branches",
        [value("x", 1, [4, 8])],
        [value("y", 1, [4, 8]), value("sum", 1, [4, 8])],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("bisect") / "branches.onnx"
    onnx.save(proto, str(path))
    return from_object(path)


def test_the_nodes_of_an_original_are_those_that_an_input_reaches(model):
    found = graph_nodes(model)
    assert [node.operator for node in found] == [
        "MatMul", "Add", "Tanh", "Sigmoid", "Erf", "Mul", "Softmax",
    ]  # fmt: skip
    assert found[5].reads == ("leftmost", "right")


def test_what_is_right_has_no_first_difference(model, hardware):
    assert first_difference(model, hardware, model.examples) is None


def _scaled_weight(proto):
    tensor = next(t for t in proto.graph.initializer if t.name == "w")
    values = onnx.numpy_helper.to_array(tensor) * np.float32(1.01)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, "w"))


def _other_operator(old, new):
    def change(proto):
        next(n for n in proto.graph.node if n.op_type == old).op_type = new

    return change


def _other_axis(proto):
    proto.graph.node[-1].attribute[0].i = 0


TAMPERED = {
    "MatMul product": _scaled_weight,
    "Sigmoid right": _other_operator("Sigmoid", "Tanh"),
    "Erf leftmost": _other_operator("Erf", "Sigmoid"),
    "Softmax y": _other_axis,
}


def _wrongly_imported(model, proto, path, until=()):
    """What an importer makes of a model that takes it for another one."""
    onnx.save(proto, str(path))
    wrong = import_onnx(path, until=until)
    right = cut_model(model, until) if until else model
    return replace(wrong, source=right.source)


@pytest.mark.parametrize("name", TAMPERED)
def test_an_operator_that_is_imported_wrongly_is_named(model, hardware, tmp_path, name):
    proto = onnx.load(model.source.path)
    TAMPERED[name](proto)
    path = tmp_path / "tampered.onnx"
    found = first_difference(
        _wrongly_imported(model, proto, path),
        hardware,
        model.examples,
        cut=lambda _model, until: _wrongly_imported(model, proto, path, until),
    )
    assert f"{found.operator} {found.output}" == name
    assert found.among == (found.output,)
    assert found.imported and not found.passes
    assert "imported as something else" in found.describe()
    assert "differs by" in found.message


def test_a_pass_that_is_wrong_is_named_with_the_operator(model, hardware, monkeypatch):
    relax = _tvm.tvm.relax

    @relax.expr_functor.mutator
    class Wrong(relax.PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            if getattr(call.op, "name", "") == "relax.tanh":
                return relax.op.sigmoid(call.args[0])
            return call

    def wrong(module):
        changed = _tvm.IRModule(dict(module.functions.items()))
        function = Wrong().visit_expr(module["main"])
        changed.update_func(module.get_global_var("main"), function)
        return changed

    # By its name in the package the module is hidden behind its function.
    simplify = sys.modules["foretune.graph.simplify"]
    tampered = [
        replace(each, changes=lambda *_: [wrong]) if each.name == "reshapes" else each
        for each in simplify.OPERATORS
    ]
    monkeypatch.setattr(simplify, "OPERATORS", tuple(tampered))
    found = first_difference(model, hardware, model.examples)
    assert (found.operator, found.output) == ("Tanh", "left")
    assert found.passes == ("reshapes",)
    assert not found.imported
    assert "'reshapes'" in found.describe()


def test_without_time_the_answer_is_an_interval(model, hardware, tmp_path):
    proto = onnx.load(model.source.path)
    _scaled_weight(proto)
    wrong = _wrongly_imported(model, proto, tmp_path / "tampered.onnx")
    found = first_difference(wrong, hardware, model.examples, seconds=0)
    assert found.among == tuple(node.outputs[0] for node in graph_nodes(model))
    assert "one of the 7 operators up to Softmax 'y'" in found.describe()


def test_a_program_without_an_original_has_no_graph_to_cut(model, hardware):
    plain = replace(model, source=None)
    assert graph_nodes(plain) == []
    assert first_difference(plain, hardware, model.examples) is None
    with pytest.raises(ValueError, match="no graph"):
        cut_model(plain, ["y"])


def test_where_the_graph_cannot_be_cut_the_search_goes_around(model, hardware, tmp_path):
    proto = onnx.load(model.source.path)
    TAMPERED["Erf leftmost"](proto)
    path = tmp_path / "tampered.onnx"

    def cut(_model, until):
        if "right" in until:
            raise UnsupportedModelError("no cut here")
        return _wrongly_imported(model, proto, path, until)

    wrong = _wrongly_imported(model, proto, path)
    found = first_difference(wrong, hardware, model.examples, cut=cut)
    # Between the tanh and the product of both branches no cut is possible.
    assert found.among == ("right", "leftmost", "joined")


class Branches(torch.nn.Module):
    """A split, of which one part is computed with a constant that importers may get wrong."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.factor = factor

    def forward(self, x):
        left, right = torch.split(self.linear(x), 4, dim=-1)
        return torch.cat([torch.tanh(left) * self.factor, torch.sigmoid(right)], -1).softmax(-1)


def _branches(factor):
    torch.manual_seed(0)
    return from_object((Branches(factor).eval(), (torch.ones(2, 8),)), "branches", "a test")


def test_a_pytorch_model_is_cut_at_the_nodes_of_its_exported_graph(hardware):
    right, wrong = _branches(1.0), _branches(1.1)

    def imported_as_another(part, until):
        return replace(cut_model(wrong, until), source=cut_model(right, until).source)

    assert first_difference(right, hardware, right.examples) is None
    found = first_difference(
        replace(wrong, source=right.source), hardware, right.examples, cut=imported_as_another
    )
    assert found.operator == "aten.mul.Tensor"
    assert found.among == (found.output,)
    assert found.imported
