"""Importers: every form of input, and every way an input can be wrong."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from foretune.errors import BadInputError, MissingDependencyError, UnsupportedModelError
from foretune.workload import (
    Model,
    TorchSource,
    Workload,
    catalog,
    from_object,
    graph_nodes,
    load_input,
)

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, image):
        return self.head(self.convolution(image).relu().mean((2, 3)))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


def _onnx_file(path, *, shape=(1, 4), op="Relu", domain=""):
    node = onnx.helper.make_node(op, ["x"], ["y"], domain=domain)
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "g", [tensor("x", 1, list(shape))], [tensor("y", 1, list(shape))]
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    if domain:
        opsets.append(onnx.helper.make_opsetid(domain, 1))
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


def _is_one_line(error):
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


def _python(tmp_path, text):
    path = tmp_path / "given.py"
    path.write_text(text)
    return path


TIR = """
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def kernel(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("B"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] + T.float32(1)
"""


def test_an_archive_becomes_a_model(net, tmp_path):
    example = torch.randn(1, 3, 8, 8)
    torch.export.save(torch.export.export(net, (example,)), str(tmp_path / "net.pt2"))
    model = load_input(str(tmp_path / "net.pt2"))
    assert isinstance(model, Model)
    assert [(s.name, s.shape, s.dtype) for s in model.inputs] == [
        ("image", (1, 3, 8, 8), "float32")
    ]
    assert [s.shape for s in model.outputs] == [(1, 2)]
    np.testing.assert_array_equal(model.examples[0], example.numpy())
    np.testing.assert_allclose(
        model.reference(model.examples)[0], net(example).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_an_onnx_file_becomes_a_model(tmp_path):
    pytest.importorskip("onnxruntime")
    model = load_input(str(_onnx_file(tmp_path / "relu.onnx")))
    assert isinstance(model, Model)
    assert [(s.name, s.shape) for s in model.inputs] == [("x", (1, 4))]
    inputs = model.draw_inputs(3)
    np.testing.assert_array_equal(model.reference(inputs)[0], np.maximum(inputs[0], 0))


def test_external_data_is_read_and_missed(tmp_path):
    weight = onnx.numpy_helper.from_array(np.ones((4, 512), "float32"), "w")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", 1, [1, 4])],
        [value("y", 1, [1, 512])],
        [weight],
    )
    proto = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    path = tmp_path / "external.onnx"
    onnx.save(proto, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    assert load_input(str(path)).outputs[0].shape == (1, 512)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(BadInputError, match="external data") as error:
        load_input(str(path))
    _is_one_line(error)


def test_a_prim_func_becomes_a_workload(tmp_path):
    path = _python(tmp_path, TIR + "\ndef make():\n    return kernel\n")
    workload = load_input(f"{path}:make")
    assert isinstance(workload, Workload)
    assert workload.name == "make"
    assert workload.flops == 8


MODULE = """
from tvm.script import ir as I, tirx as T

@I.ir_module
class Program:
    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("B"):
                v = T.axis.spatial(8, i)
                B[v] = A[v] + T.float32(1)
"""


def test_a_program_is_named_without_a_function_around_it(tmp_path):
    (tmp_path / "elsewhere.py").write_text(TIR + "\ndef make():\n    return kernel\n")
    text = "import functools\nfrom elsewhere import kernel, make\nbound = functools.partial(make)\n"
    path = _python(tmp_path, MODULE + text)
    loaded = {name: load_input(f"{path}:{name}") for name in ("Program", "kernel", "make", "bound")}
    assert [workload.name for workload in loaded.values()] == list(loaded)
    assert {workload.flops for workload in loaded.values()} == {8}


def test_objects_become_workloads_and_models(tmp_path):
    path = _python(tmp_path, MODULE + TIR)
    workload = load_input(f"{path}:kernel")
    module = workload.module
    assert from_object(module["main"], "mine") == workload
    assert from_object(module["main"], "mine").name == "mine"
    assert from_object(module["main"]).name == "main"
    assert from_object(module).key == workload.key
    assert from_object(workload) is workload
    pair = (torch.nn.Linear(4, 2).eval(), (torch.ones(1, 4),))
    model = from_object(pair)
    assert isinstance(model, Model)
    assert model.name == "model"
    assert from_object(model.module, "relax").outputs[0].shape == (1, 2)


def test_paths_become_models(tmp_path):
    path = _onnx_file(tmp_path / "relu.onnx")
    assert from_object(path).name == "relu"
    assert from_object(str(path), name="mine").name == "mine"


def test_an_object_that_is_no_program_is_refused():
    with pytest.raises(BadInputError, match="the object given is int, but must be a PrimFunc"):
        from_object(3)
    with pytest.raises(BadInputError, match="my net is a torch module without inputs"):
        from_object(torch.nn.ReLU(), where="my net")


@pytest.mark.parametrize("spec", ["given.py:make", "matmul:8x8x8", "FIRST"])
def test_shapes_are_for_onnx_files(tmp_path, monkeypatch, spec):
    monkeypatch.chdir(tmp_path)
    _python(tmp_path, TIR + "\ndef make():\n    return kernel\n")
    spec = spec.replace("FIRST", catalog.names("kernel")[0])
    with pytest.raises(BadInputError, match=r"--shape x is for \.onnx files") as error:
        load_input(spec, shapes={"x": [1, 4]})
    _is_one_line(error)


def test_a_module_with_inputs_becomes_a_model(tmp_path):
    text = """
        import torch
        class Doubler(torch.nn.Module):
            def forward(self, x, scale):
                return {"a": x * scale, "b": x + 1}
        def positional(): return Doubler(), (torch.ones(2, 3), torch.ones(3))
        def by_name(): return Doubler(), {"scale": torch.ones(3), "x": torch.ones(2, 3)}
    """
    path = _python(tmp_path, "\n".join(line[8:] for line in text.splitlines()))
    for function in ("positional", "by_name"):
        model = load_input(f"{path}:{function}")
        assert [s.shape for s in model.outputs] == [(2, 3), (2, 3)]
        assert {s.shape for s in model.inputs} == {(2, 3), (3,)}
        inputs = model.draw_inputs(0)
        named = dict(zip([s.name for s in model.inputs], inputs, strict=True))
        np.testing.assert_allclose(model.reference(inputs)[0], named["x"] * named["scale"])


def test_drawn_inputs_are_seeded_and_stay_in_range(tmp_path):
    text = """
        import torch
        class Lookup(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(10, 4)
            def forward(self, tokens, mask): return self.table(tokens) * mask[..., None]
        def make(): return Lookup(), (torch.tensor([[0, 9, 5]]), torch.ones(1, 3))
    """
    path = _python(tmp_path, "\n".join(line[8:] for line in text.splitlines()))
    model = load_input(f"{path}:make")
    first, again, other = (model.draw_inputs(seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])
    tokens = np.concatenate([model.draw_inputs(seed)[0] for seed in range(30)])
    assert tokens.min() >= 0
    assert tokens.max() <= 9
    assert model.reference(first)[0].shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("absent.onnx", "absent.onnx does not exist"),
        ("absent.pt2", "absent.pt2 does not exist"),
        ("absent.py:f", "absent.py does not exist"),
        ("some.py", "names no function: say some.py:FUNCTION"),
        ("model.tflite", "no known extension"),
        ("no-such-name", "no workload of the catalog is called 'no-such-name'"),
        ("no-such-name", r"Sizes can be chosen in matmul:MxNxK, .*conv2d:NxHxW"),
    ],
)
def test_an_input_that_is_not_there_is_named(spec, message):
    with pytest.raises(BadInputError, match=message) as error:
        load_input(spec)
    _is_one_line(error)


def test_a_mistyped_catalog_name_lists_close_ones():
    name = next(iter(catalog.names()))
    with pytest.raises(BadInputError, match=f"did you mean .*{name}"):
        load_input(name + "x")


def test_a_directory_is_no_file(tmp_path):
    (tmp_path / "model.onnx").mkdir()
    with pytest.raises(BadInputError, match="is a directory"):
        load_input(str(tmp_path / "model.onnx"))


@pytest.mark.parametrize("content", [b"", b"not a protobuf at all", b"\x08\x09" * 40])
def test_what_is_no_onnx_file_is_refused(tmp_path, content):
    (tmp_path / "bad.onnx").write_bytes(content)
    with pytest.raises(BadInputError, match=r"bad\.onnx is not") as error:
        load_input(str(tmp_path / "bad.onnx"))
    _is_one_line(error)


def test_a_truncated_onnx_file_is_refused_wherever_it_ends(tmp_path):
    whole = _onnx_file(tmp_path / "whole.onnx").read_bytes()
    for length in range(1, len(whole) - 1, 7):
        (tmp_path / "cut.onnx").write_bytes(whole[:length])
        with pytest.raises(BadInputError) as error:
            load_input(str(tmp_path / "cut.onnx"))
        _is_one_line(error)


def test_an_unsupported_onnx_operator_is_named(tmp_path):
    path = _onnx_file(tmp_path / "odd.onnx", op="FancyOp", domain="my.domain")
    with pytest.raises(UnsupportedModelError, match="FancyOp") as error:
        load_input(str(path))
    _is_one_line(error)


def test_a_dynamic_onnx_dimension_is_named_and_can_be_fixed(tmp_path):
    path = str(_onnx_file(tmp_path / "dynamic.onnx", shape=("batch", 4)))
    with pytest.raises(
        UnsupportedModelError, match=r"input 'x' dimension 0 is dynamic \(batch\).*--shape x=1,4"
    ) as error:
        load_input(path)
    _is_one_line(error)
    assert load_input(path, shapes={"x": [3, 4]}).inputs[0].shape == (3, 4)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": [1, 4]}, "has no input 'z': its inputs are x"),
        ({"x": [1, 4, 1]}, "has 2 dimensions, but the shape given has 3"),
        ({"x": [1, 5]}, "dimension 1 is 4 in the model, but the shape given says 5"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(tmp_path, shapes, message):
    path = str(_onnx_file(tmp_path / "relu.onnx"))
    with pytest.raises(BadInputError, match=message):
        load_input(path, shapes=shapes)


def test_a_broken_archive_is_refused(net, tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(b"not a zip file")
    with pytest.raises(BadInputError, match=r"not a readable torch\.export archive") as error:
        load_input(str(path))
    _is_one_line(error)
    torch.export.save(torch.export.export(net, (torch.randn(1, 3, 8, 8),)), str(path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(BadInputError, match=r"not a readable torch\.export archive") as error:
        load_input(str(path))
    _is_one_line(error)


def test_a_dynamic_archive_names_the_dimension(net, tmp_path):
    program = torch.export.export(
        net, (torch.randn(2, 3, 8, 8),), dynamic_shapes={"image": {0: torch.export.Dim("batch")}}
    )
    torch.export.save(program, str(tmp_path / "net.pt2"))
    with pytest.raises(
        UnsupportedModelError,
        match=r"input 'image' dimension 0 is dynamic .*without dynamic_shapes",
    ) as error:
        load_input(str(tmp_path / "net.pt2"))
    _is_one_line(error)


def test_an_unsupported_torch_operator_is_named(tmp_path):
    text = """
        import torch
        class Odd(torch.nn.Module):
            def forward(self, x): return torch.linalg.svdvals(x)
        def make(): return Odd(), (torch.ones(3, 3),)
    """
    path = _python(tmp_path, "\n".join(line[8:] for line in text.splitlines()))
    with pytest.raises(UnsupportedModelError, match="svd") as error:
        load_input(f"{path}:make")
    _is_one_line(error)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("absent", r"has no function 'absent': it defines fails, inputless, leaves, net, nothing"),
        ("fails", r"fails\(\) of .* raised ValueError: on purpose"),
        ("nothing", r"what nothing\(\) of .* returned is NoneType, but must be a PrimFunc"),
        ("number", r"what number\(\) of .* returned is int, but must be a PrimFunc"),
        ("inputless", r"without inputs: give \(module, example_inputs\)"),
        ("leaves", r"leaves\(\) of .* raised SystemExit: 3"),
        ("LIMIT", r"LIMIT of .* is int, but must be a PrimFunc"),
        ("net", r"net of .* is a torch module without inputs"),
    ],
)
def test_a_wrong_function_is_explained(tmp_path, function, message):
    path = _python(
        tmp_path,
        "import torch\n"
        "from os.path import join\n"
        "def fails():\n    raise ValueError('on purpose\\nwith more lines')\n"
        "def nothing(): pass\n"
        "def number(): return 3\n"
        "def inputless(): return torch.nn.ReLU()\n"
        "def leaves(): raise SystemExit(3)\n"
        "def _private(): pass\n"
        "LIMIT = 3\n"
        "net = torch.nn.ReLU()\n",
    )
    with pytest.raises(BadInputError, match=message) as error:
        load_input(f"{path}:{function}")
    _is_one_line(error)


@pytest.mark.parametrize(
    "text", ["def broken(:\n", "import no_such_package_at_all\n", "import sys\nsys.exit(2)\n"]
)
def test_a_file_that_cannot_be_run_is_explained(tmp_path, text):
    path = _python(tmp_path, text)
    with pytest.raises(BadInputError, match="cannot be run") as error:
        load_input(f"{path}:f")
    _is_one_line(error)


def test_a_module_with_two_functions_is_no_workload(tmp_path):
    path = _python(
        tmp_path,
        TIR + "\nimport tvm\ndef make():\n"
        "    return tvm.IRModule({'a': kernel.with_attr('global_symbol', 'a'),"
        " 'b': kernel.with_attr('global_symbol', 'b')})\n",
    )
    with pytest.raises(BadInputError, match="holds 2"):
        load_input(f"{path}:make")


class Rounded(torch.nn.Module):
    """Takes and returns float32, and computes in another type in between."""

    def __init__(self, dtype):
        super().__init__()
        self.head = torch.nn.Linear(4, 2, dtype=dtype)

    def forward(self, x):
        return self.head(x.to(self.head.weight.dtype)).float()


@pytest.mark.parametrize(
    "pair",
    [
        (torch.nn.Linear(4, 2, dtype=torch.bfloat16), (torch.ones(1, 4, dtype=torch.bfloat16),)),
        (Rounded(torch.bfloat16), (torch.ones(1, 4),)),
    ],
    ids=["outside", "inside"],
)
def test_a_module_that_computes_in_bfloat16_is_imported(pair):
    model = from_object(pair, "net")
    inside = pair[0](*pair[1]).detach().float().numpy()
    result = model.reference(model.examples)[0]
    assert result.dtype.name == model.outputs[0].dtype
    np.testing.assert_array_equal(result.astype("float32"), inside)


def _relax(dtype):
    from foretune import _tvm

    relax = _tvm.tvm.relax
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            inner = builder.emit(relax.op.astype(x, dtype))
            result = builder.emit_output(builder.emit(relax.op.add(inner, inner)))
        builder.emit_func_output(result)
    return builder.get()


def test_a_relax_module_of_a_type_that_numpy_lacks_is_refused():
    assert from_object(_relax("float16"), "half").outputs[0].dtype == "float16"
    bfloat16 = from_object(_relax("bfloat16"), "half")
    assert bfloat16.reference([np.ones((2, 3), "float32")])[0].dtype.name == "bfloat16"
    with pytest.raises(UnsupportedModelError, match=r"no float8_e4m3fn, but model") as error:
        from_object(_relax("float8_e4m3fn"), "half")
    _is_one_line(error)


def test_inputs_go_to_the_device_of_the_examples():
    source = TorchSource(torch.nn.ReLU(), (torch.ones(2, device="meta"), 3), {"y": torch.ones(2)})
    args, kwargs = source.bind([np.ones(2, "float32"), np.ones(2, "float32")])
    assert [args[0].device.type, args[1], kwargs["y"].device.type] == ["meta", 3, "cpu"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_a_module_on_a_gpu_is_imported_and_run_where_it_is():
    module = torch.nn.Linear(4, 2).cuda()
    model = from_object((module, (torch.ones(1, 4),)), "net")
    assert module.weight.is_cuda
    (result,) = model.reference(model.examples)
    expected = module(torch.ones(1, 4, device="cuda")).detach().cpu().numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_model_says_beforehand_that_its_reference_cannot_run(tmp_path, monkeypatch):
    model = load_input(str(_onnx_file(tmp_path / "relu.onnx")))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match="pip install onnxruntime") as error:
        model.require_reference()
    _is_one_line(error)
    from_object((torch.nn.ReLU(), (torch.ones(2),)), "relu").require_reference()


def test_a_file_that_must_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = str(_onnx_file(tmp_path / "secret.onnx"))
    with monkeypatch.context() as patched:
        patched.setattr(onnx, "load", refuse)
        with pytest.raises(BadInputError, match=r"secret\.onnx cannot be read \(Perm") as error:
            load_input(path)
        _is_one_line(error)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_file", refuse)
        with pytest.raises(BadInputError, match=r"secret\.onnx cannot be read \(Perm") as error:
            load_input(path)
        _is_one_line(error)


def test_what_pytorch_tells_itself_is_not_told_to_users(net, tmp_path):
    example = torch.randn(1, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (example,)), str(tmp_path / "net.pt2"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        load_input(str(tmp_path / "net.pt2"))
        from_object((net, (example,)), "net")
    assert not [warning for warning in told if "LeafSpec" in str(warning.message)]


LATE = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        from activation import act  # when it is called
        return act(x)
"""

MAKING = """
def make():
    import torch
    from parts.net import Net
    return Net().eval(), torch.ones(2, 3)
"""


def _folder_with_siblings(folder, factor):
    """A file whose function, module and forward each import something from beside it."""
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "__init__.py").write_text("")
    (folder / "parts" / "net.py").write_text(LATE)
    (folder / "activation.py").write_text(f"def act(x):\n    return x * {factor}\n")
    (folder / "net.py").write_text(MAKING)
    return f"{folder / 'net.py'}:make"


def test_what_lies_beside_a_file_is_imported_when_it_is_needed(tmp_path):
    path, modules = list(sys.path), set(sys.modules)
    specs = {n: _folder_with_siblings(tmp_path / str(n), n) for n in (2, 3)}
    models = {n: load_input(spec) for n, spec in specs.items()}
    for n in (2, 3, 2):
        x = models[n].draw_inputs(n)
        np.testing.assert_allclose(models[n].reference(x)[0], x[0] * n, rtol=1e-6)
        assert [node.operator for node in graph_nodes(models[n])] == ["aten.mul.Tensor"]
    assert sys.path == path
    assert not {"activation", "parts", "parts.net"} & set(sys.modules) - modules


def test_files_of_one_folder_share_what_lies_beside_them(tmp_path):
    _folder_with_siblings(tmp_path, 2)
    (tmp_path / "other.py").write_text(MAKING)
    one, other = (load_input(f"{tmp_path / name}:make") for name in ("net.py", "other.py"))
    assert type(one.source.module) is type(other.source.module)


def test_modules_of_the_process_stay_its_own(tmp_path, monkeypatch):
    spec = _folder_with_siblings(tmp_path / "input", 2)
    (tmp_path / "elsewhere.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import elsewhere

    (tmp_path / "input" / "elsewhere.py").write_text("x = 2\n")
    text = (tmp_path / "input" / "net.py").read_text()
    (tmp_path / "input" / "net.py").write_text("import elsewhere, xml.dom.minidom\n" + text)
    load_input(spec)
    assert sys.modules["elsewhere"] is elsewhere
    assert "xml.dom.minidom" in sys.modules
    monkeypatch.delitem(sys.modules, "elsewhere")


def test_what_lies_beside_a_file_that_fails_is_gone_again(tmp_path):
    path = list(sys.path)
    (tmp_path / "beside.py").write_text("x = 1\n")
    given = _python(tmp_path, "import beside\ndef make():\n    raise ValueError('no')\n")
    with pytest.raises(BadInputError, match="raised ValueError"):
        load_input(f"{given}:make")
    assert sys.path == path and "beside" not in sys.modules


DRAWING = """
import random
import numpy
import torch

early = float(torch.rand(())) + random.random() + numpy.random.rand()

def make():
    net = torch.nn.Linear(3, 2)
    net.register_buffer("drawn", torch.tensor([early, random.random(), numpy.random.rand()]))
    return net, torch.randn(1, 3)
"""

SHOWN = """
import sys
from foretune.workload import load_input
assert "torch" not in sys.modules
model = load_input(sys.argv[1])
held = {**model.source.module.state_dict(), "x": model.source.args[0]}
print({name: tensor.tolist() for name, tensor in sorted(held.items())})
"""


def test_random_weights_are_the_same_in_every_process(tmp_path):
    path = _python(tmp_path, DRAWING)
    command = [sys.executable, "-c", SHOWN, f"{path}:make"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for seed in (0, 7):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = load_input(f"{path}:make")
        held = {**model.source.module.state_dict(), "x": model.source.args[0]}
        shown = {name: tensor.tolist() for name, tensor in sorted(held.items())}
        assert told == f"{shown}\n"
    assert told.count("drawn") == 1


def test_a_seed_of_the_file_holds_and_draws_of_the_process_go_on(tmp_path):
    fixed = _python(tmp_path, DRAWING.replace("early =", "torch.manual_seed(5)\nearly ="))
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    model = load_input(f"{fixed}:make")
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert random.getstate() == states[2]
    with torch.random.fork_rng():
        torch.manual_seed(5)
        torch.rand(())
        expected = torch.nn.Linear(3, 2)
    assert torch.equal(model.source.module.weight, expected.weight)
