"""The ONNX importer: what is folded, expanded, refused and cut."""

from __future__ import annotations

import numpy as np
import pytest

from foretune.errors import BadInputError, UnsupportedModelError, UnsupportedOperatorsError
from foretune.graph import compile_model
from foretune.hardware import probe
from foretune.workload import load_input

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, shape, kind=FLOAT):
    if isinstance(shape, int):  # of that rank, with sizes that the file does not say
        shape = [f"{name}{axis}" for axis in range(shape)]
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


@pytest.fixture
def save(tmp_path):
    def write(nodes, inputs, outputs, initialisers=(), opset=18, functions=(), name="model.onnx"):
        graph = helper.make_graph(nodes, "g", inputs, outputs, list(initialisers))
        opsets = [helper.make_opsetid("", opset)]
        opsets += [helper.make_opsetid(f.domain, 1) for f in functions]
        proto = helper.make_model(
            graph, opset_imports=opsets, ir_version=9, functions=list(functions)
        )
        path = tmp_path / name
        onnx.save(proto, str(path))
        return str(path)

    return write


def check(path, inputs=None, **options):
    """Imports, compiles and runs a file; the result must be the original's."""
    model = load_input(path, **options)
    artifact = compile_model(model, probe(threads=1), {})
    inputs = model.examples if inputs is None else inputs
    expected, found = model.reference(inputs), artifact.run(inputs)
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in expected]
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    return model


def branch(op, name, inputs="y"):
    return helper.make_graph([node(op, inputs, name)], name, [], [value(name, None)])


def test_what_depends_on_shapes_alone_is_folded(save):
    """The size of a reshape is computed from the input's shape; the `If` on its rank is decided."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "rows"),
        node("Concat", "rows minus", "sizes", axis=0),
        node("Reshape", "x sizes", "y"),
        node("Size", "shape", "rank"),
        node("Equal", "rank three", "deep"),
        node("If", "deep", "z", then_branch=branch("Relu", "t"),
             else_branch=branch("Unsqueeze", "e", "y zero")),
    ]  # fmt: skip
    initialisers = [constant("zero", [0]), constant("minus", [-1]), constant("three", 3)]
    model = check(save(nodes, [value("x", [2, 3, 4])], [value("z", 2)], initialisers))
    assert model.outputs[0].shape == (2, 12)


@pytest.mark.parametrize("flag", [False, True])
def test_both_branches_of_a_condition_of_run_time_are_computed(save, flag):
    nodes = [
        node("MatMul", "x w", "y"),
        node("If", "flag", "z", then_branch=branch("Relu", "t"), else_branch=branch("Neg", "e")),
    ]
    path = save(
        nodes,
        [value("x", [2, 3]), value("flag", [], BOOL)],
        [value("z", [2, 4])],
        [constant("w", np.arange(12, dtype="float32").reshape(3, 4) - 6)],
    )
    check(path, [np.array([[1, -2, 3], [0, 1, 0]], "float32"), np.array(flag)])


def loop(trips):
    body = helper.make_graph(
        [
            node("Cast", "i", "step", to=FLOAT),
            node("Add", "state step", "next"),
            node("Mul", "next next", "square"),
            node("Identity", "going", "still"),
        ],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), value("state", [2])],
        [value("still", [], BOOL), value("next", [2]), value("square", [2])],
    )
    return [node("Loop", "trips go x", "last rows", body=body)], [
        value("last", [2]),
        value("rows", [trips, 2]),
    ]


def test_a_loop_of_known_length_is_unrolled(save):
    nodes, outputs = loop(3)
    path = save(nodes, [value("x", [2])], outputs, [constant("trips", 3), constant("go", True)])
    assert check(path).outputs[1].shape == (3, 2)


def test_a_loop_of_unknown_length_is_refused_by_its_name(save):
    nodes, outputs = loop(None)
    path = save(
        nodes,
        [value("x", [2]), value("trips", [], INT64)],
        outputs,
        [constant("go", True)],
    )
    with pytest.raises(
        UnsupportedOperatorsError, match=r"Loop \(last\): how often it runs depends on values"
    ):
        load_input(path)
    # Its length becomes known where the caller binds it.
    check(path, [np.ones(2, "float32")], constants={"trips": np.array(2)})


def test_functions_of_the_model_and_of_onnx_are_expanded(save):
    function = helper.make_function(
        "my.domain",
        "Scaled",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["factor"]),
            node("Mul", "a factor", "b"),
        ],
        [helper.make_opsetid("", 18)],
        ["factor"],
    )
    reference = function.node[0].attribute.add()
    reference.name, reference.ref_attr_name = "value_float", "factor"
    reference.type = onnx.AttributeProto.FLOAT
    call = helper.make_node("Scaled", ["x"], ["y"], domain="my.domain", factor=2.5)
    nodes = [call, node("MeanVarianceNormalization", "y", "z", axes=[0, 1])]
    check(save(nodes, [value("x", [3, 4])], [value("z", [3, 4])], functions=[function]))


@pytest.mark.parametrize("opset", [7, 11, 13, 17, 21])
def test_operators_mean_what_their_operator_set_says(save, opset):
    """Softmax flattened to two axes before 13; Squeeze and ReduceSum have axes as attributes."""
    nodes = [node("Softmax", "x", "y", axis=1)]
    initialisers = []
    if opset < 13:
        nodes += [node("ReduceSum", "y", "z", axes=[2], keepdims=0)]
    else:
        nodes += [node("ReduceSum", "y axes", "z", keepdims=0)]
        initialisers = [constant("axes", [2])]
    check(save(nodes, [value("x", [2, 3, 4])], [value("z", 2)], initialisers, opset=opset))


def test_all_refused_operators_are_named_with_a_place_to_cut(save):
    nodes = [
        helper.make_node("Relu", ["x"], ["a/b c"]),
        helper.make_node("NonZero", ["a/b c"], ["where"], name="first"),
        helper.make_node("Neg", ["a/b c"], ["fine"]),
        helper.make_node("Unique", ["where"], ["odd"], name="second"),
    ]
    path = save(nodes, [value("x", [4])], [value("odd", 1, INT64), value("fine", [4])])
    with pytest.raises(UnsupportedOperatorsError) as error:
        load_input(path)
    assert error.value.operators == {"NonZero": ("first",), "Unique": ("second",)}
    assert error.value.reasons == {"NonZero": "the size of the result depends on values"}
    assert "NonZero (first): the size of the result depends on values; Unique" in str(error.value)
    assert error.value.until == ("a/b c", "fine")
    assert error.value.exit_code == 2
    model = check(path, until=error.value.until)
    assert model.until == ("a/b c", "fine")
    assert len(model.outputs) == 2


@pytest.mark.parametrize(
    ("made", "given", "rank", "reason"),
    [
        (
            helper.make_node("Dropout", ["x", "half", "yes"], ["y"], name="n"),
            [],
            1,
            "random numbers",
        ),
        (
            helper.make_node("Tile", ["x", "k"], ["y"], name="n"),
            [value("k", [1], INT64)],
            1,
            "",
        ),
        (
            helper.make_node("OneHot", ["k", "d", "x"], ["y"], name="n"),
            [value("k", [3], INT64), value("d", [], INT64)],
            2,
            "known at run time only",
        ),
    ],
)
def test_a_refusal_says_why(save, made, given, rank, reason):
    constants = [constant("half", np.float32(0.5)), constant("yes", np.array(True))]
    path = save([made], [value("x", [2]), *given], [value("y", rank)], constants)
    with pytest.raises(UnsupportedOperatorsError, match=rf"{made.op_type} \(n\)") as error:
        load_input(path)
    assert reason in error.value.reasons.get(made.op_type, "")
    assert reason in str(error.value)


def test_a_cut_drops_what_it_does_not_need_and_names_the_nearest(save):
    nodes = [node("MatMul", "x w", "hidden"), node("Add", "hidden other", "total")]
    path = save(
        nodes,
        [value("x", [2, 3]), value("other", [2, 4])],
        [value("total", [2, 4])],
        [constant("w", np.ones((3, 4), "float32"))],
    )
    model = check(path, until=["hidden"])
    assert [spec.name for spec in model.outputs] == ["hidden"]
    assert [spec.name for spec in model.inputs] == ["x"]
    with pytest.raises(BadInputError, match="the nearest names are hidden") as error:
        load_input(path, until=["hiden"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT8E4M3FN, TensorProto.COMPLEX64])
def test_an_input_that_no_kernel_takes_is_refused_by_its_name_unless_it_is_cut_off(
    save, kind, read
):
    nodes = [node("Relu", "x", "y"), *([node("Shape", "odd", "shape")] if read else [])]
    outputs = [value("y", [2]), *([value("shape", [1], INT64)] if read else [])]
    path = save(nodes, [value("x", [2]), value("odd", [3], kind)], outputs, opset=19)
    with pytest.raises(UnsupportedModelError, match=r"input 'odd' holds .*no operator") as error:
        load_input(path)
    assert "\n" not in str(error.value)
    assert [spec.name for spec in check(path, until=["y"]).inputs] == ["x"]


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint16", "int64", "uint64"])
def test_element_types_are_kept(save, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("Add", "x one", "y"), node("Reshape", "y shape", "z")]
    path = save(
        nodes,
        [value("x", [2, 3], kind)],
        [value("z", 1, kind)],
        [constant("one", np.ones((), dtype)), constant("shape", [6])],
    )
    assert check(path).outputs[0].dtype == dtype


def test_outputs_may_be_inputs_constants_and_the_same_twice(save):
    nodes = [node("Relu", "x", "y")]
    outputs = [value("y", [2]), value("x", [2]), value("y", [2]), value("c", [3])]
    graph_inputs = [value("x", [2]), value("unused", [5])]
    # ONNX forbids a name twice among the outputs, so that Identity stands for it.
    outputs[2] = value("y2", [2])
    nodes.append(node("Identity", "y", "y2"))
    path = save(nodes, graph_inputs, outputs, [constant("c", np.arange(3, dtype="float32"))])
    model = check(path)
    assert len(model.inputs) == 2
    assert [spec.name for spec in model.outputs] == ["y", "x", "y2", "c"]


def test_an_initialiser_that_is_also_an_input_is_a_constant(save):
    nodes = [node("MatMul", "x w", "y")]
    weights = np.ones((3, 4), "float32")
    inputs = [value("w", [3, 4]), value("x/1 a", [2, 3])]
    nodes[0].input[0] = "x/1 a"
    model = check(save(nodes, inputs, [value("y", [2, 4])], [constant("w", weights)]))
    assert [spec.name for spec in model.inputs] == ["x/1 a"]


def test_unsorted_nodes_are_sorted(save):
    nodes = [node("Relu", "hidden", "y"), node("Neg", "x", "hidden")]
    check(save(nodes, [value("x", [2, 3])], [value("y", [2, 3])]))


def test_a_weight_is_not_blown_up_at_import(save):
    """Expanding 4 bytes to 64 MiB is left to the program."""
    nodes = [node("Expand", "one sizes", "wide"), node("Add", "x wide", "y")]
    path = save(
        nodes,
        [value("x", [4096, 4096])],
        [value("y", [4096, 4096])],
        [constant("one", np.ones((1, 1), "float32")), constant("sizes", [4096, 4096])],
    )
    text = load_input(path).module.script()
    assert "broadcast_to" in text
