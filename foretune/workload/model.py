"""The model: a whole network to tune, in Relax, with the original it came from."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array
from foretune.errors import MissingDependencyError, UnsupportedModelError
from foretune.workload._index_inputs import input_index_limits
from foretune.workload._number_inputs import number_inputs
from foretune.workload._siblings import Siblings
from foretune.workload.element_types import element_type, is_float

if TYPE_CHECKING:
    from foretune._tvm import IRModule

Run = Callable[[Sequence[Array]], list[Array]]
"""Outputs for one array per input."""

# Element types that cannot be checked, by how TVM's names for them begin: narrower than a byte, or
# without arithmetic in the compiler. Examples and references are NumPy arrays; those of bfloat16
# have the element type that ``ml_dtypes`` adds to NumPy.
_UNCHECKED = ("float8_", "float6_", "float4_", "int4", "uint4")


# Element types that ONNX Runtime computes in, but neither takes from NumPy nor gives to it.
_NO_ONNXRUNTIME_ARRAY = ("bfloat16", "float8", "float4", "int4", "int2")


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of an input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class TorchSource:
    """The PyTorch original.

    Attributes:
        module: A ``torch.nn.Module`` in evaluation mode, or the module of an exported program.
        args: Example arguments, structured as the module takes them; leaves that are no tensors
            are constants.
        kwargs: Example keyword arguments, likewise.
        states: Names of the buffers that the module writes: their values come and go with each run,
            after the ordinary inputs and outputs.
        siblings: Modules beside the file that the module is from, which its code may import.
    """

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    siblings: Siblings | None = field(default=None, repr=False, compare=False)

    def importable(self) -> contextlib.AbstractContextManager[None]:
        """The module's code runs inside: what it imports from beside its file is found."""
        return contextlib.nullcontext() if self.siblings is None else self.siblings.importable()

    def bind(self, inputs: Sequence[Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the original with ``inputs`` in place of the tensors, in their order.

        Each goes to the device of the example it stands for: where the module takes it. States
        behind them are left to ``run``.
        """
        import torch
        from torch.utils import _pytree as pytree

        leaves, structure = pytree.tree_flatten((self.args, self.kwargs))
        arrays = iter(inputs)
        leaves = [
            to_tensor(next(arrays)).to(leaf.device) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in leaves
        ]
        args, kwargs = pytree.tree_unflatten(leaves, structure)
        return tuple(args), dict(kwargs)

    def owners(self) -> list[tuple[dict[str, Any], str]]:
        """Of each state the dictionary that holds the buffer, and its key there."""
        return [_owner(self.module, name) for name in self.states]

    def start(self) -> tuple[Any, ...]:
        """Of each state the tensor that it starts from: a copy of the buffer."""
        return tuple(buffers[name].clone() for buffers, name in self.owners())

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of the original in eager mode: the tensors of its tree in their order.

        New states follow. The module's own buffers are as they were afterwards.
        """
        with self.prepare(inputs) as call:
            return [from_tensor(tensor).copy() for tensor in call()]

    @contextlib.contextmanager
    def prepare(
        self, inputs: Sequence[Array], module: Callable[..., Any] | None = None
    ) -> Iterator[Callable[[], list[Any]]]:
        """A call that runs the original on these inputs; its tensors are those of ``run``.

        Each call starts from the states among the inputs. What is timed when engines are compared.

        Args:
            inputs: One array per input.
            module: What runs in place of the module: what was compiled of it.
        """
        import torch
        from torch.utils import _pytree as pytree

        run = self.module if module is None else module
        ordinary = len(inputs) - len(self.states)
        args, kwargs = self.bind(inputs[:ordinary])
        owners = self.owners()
        held = [buffers[name] for buffers, name in owners]
        before = [buffer.clone() for buffer in held]
        pairs = zip(inputs[ordinary:], held, strict=True)
        start = [to_tensor(array).to(buffer.device) for array, buffer in pairs]

        def fill(values: Sequence[Any]) -> None:
            for (buffers, name), buffer, value in zip(owners, held, values, strict=True):
                buffer.copy_(value)
                buffers[name] = buffer  # where the module assigned another one

        def call() -> list[Any]:
            with torch.no_grad():
                fill(start)
                outputs = run(*args, **kwargs)
            leaves = [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]
            return [*leaves, *(buffers[name] for buffers, name in owners)]

        with self.importable():
            try:
                yield call
            finally:
                with torch.no_grad():
                    fill(before)


def _owner(module: Any, path: str) -> tuple[dict[str, Any], str]:
    """The dictionary that holds a buffer, and its key there."""
    where, _, name = path.rpartition(".")
    return module.get_submodule(where)._buffers, name


def from_tensor(tensor: Any) -> Array:
    """A tensor of PyTorch as an array; bfloat16 has the element type of ``ml_dtypes``."""
    import torch

    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        bits: Array = tensor.contiguous().view(torch.int16).numpy()
        return bits.view(element_type("bfloat16"))
    array: Array = tensor.numpy()
    return array


def to_tensor(array: Array) -> Any:
    """A tensor of PyTorch with a copy of the array's elements."""
    import torch

    own = np.array(array)
    if own.dtype == element_type("bfloat16"):
        return torch.from_numpy(own.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(own)


@dataclass(frozen=True)
class OnnxSource:
    """The ONNX original.

    Attributes:
        path: The file; its external data, if any, lies beside it.
        shapes: Shapes the caller fixed, by input name.
        until: Tensors that the model was cut at; empty for a whole one.
        constants: Values of inputs that the model was specialised for.
    """

    path: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    until: tuple[str, ...] = ()
    constants: dict[str, Array] = field(default_factory=dict)

    def proto(self) -> Any:
        """The ``ModelProto`` that is run: cut where the model was cut, with its constants."""
        from foretune.workload.importers.onnx._load import load
        from foretune.workload.importers.onnx._prepare import cut, specialise

        proto = load(Path(self.path))
        proto = cut(proto, Path(self.path), self.until) if self.until else proto
        return specialise(proto, self.constants) if self.constants else proto

    @property
    def changed(self) -> bool:
        """Whether what is run is something else than the file."""
        return bool(self.until or self.constants)

    def run(self, inputs: Sequence[Array], threads: int = 0) -> list[Array]:
        """Outputs in the order of the graph's outputs: see ``prepare``."""
        return self.prepare(threads)(inputs)

    def prepare(self, threads: int = 0, rewrites: bool = True) -> Run:
        """Loads the model once, and returns what runs it on inputs.

        Without ``rewrites`` the runtime computes the operators as they stand in the graph.
        Outputs are ONNX Runtime's, or of ONNX's reference where the runtime lacks an operator or
        its type.
        """
        return self.load(threads, rewrites) or self._evaluate

    def load(self, threads: int = 0, rewrites: bool = True) -> Run | None:
        """What runs the model in ONNX Runtime; None where that lacks an operator or its type."""
        onnxruntime = require_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4  # what it raises, it need not print as well
        if not rewrites:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        with tempfile.TemporaryDirectory(prefix="foretune-") as folder:
            path = self.path
            if self.changed:
                path = str(Path(folder, "cut.onnx"))
                write_onnx(self.proto(), Path(path))
            try:
                session = onnxruntime.InferenceSession(
                    path, options, providers=["CPUExecutionProvider"]
                )
                names = [i.name for i in session.get_inputs()]
                kinds = [v.type for v in (*session.get_inputs(), *session.get_outputs())]
            except Exception:  # raised in several kinds for an operator or type it lacks
                return None
        if any(name in kind for kind in kinds for name in _NO_ONNXRUNTIME_ARRAY):
            return None

        def run(inputs: Sequence[Array]) -> list[Array]:
            outputs = session.run(None, dict(zip(names, inputs, strict=True)))
            return [np.asarray(output) for output in outputs]

        return run

    def _evaluate(self, inputs: Sequence[Array]) -> list[Array]:
        from onnx.reference import ReferenceEvaluator

        proto = self.proto()
        held = {tensor.name for tensor in proto.graph.initializer}
        names = [value.name for value in proto.graph.input if value.name not in held]
        with np.errstate(all="ignore"):
            feed = dict(zip(names, inputs, strict=True))
            outputs = ReferenceEvaluator(proto).run(None, feed)
        return [np.asarray(output) for output in outputs]


@dataclass(frozen=True)
class Model:
    """A network with static shapes, ready to be simplified and cut into workloads.

    Attributes:
        name: What people call it.
        module: Relax ``IRModule`` whose ``main`` takes the inputs and holds the parameters as
            constants. Treat as read-only.
        inputs: Specification of each input, in order.
        outputs: Specification of each output, flattened, in order.
        examples: One array per input, seeded, of the values the model expects.
        source: The original, for reference outputs and for other engines; None when the model was
            written in Relax.
        states: Names of what the model remembers from call to call: its last inputs and its last
            outputs, in this order, called ``state.NAME``; their examples are the initial values.
        until: Names of the tensors that the model was cut at; empty for a whole one.
    """

    name: str
    module: IRModule = field(repr=False)
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    examples: tuple[Array, ...] = field(repr=False)
    source: TorchSource | OnnxSource | None = field(default=None, repr=False)
    states: tuple[str, ...] = ()
    until: tuple[str, ...] = ()

    def reference(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of the original: eager PyTorch, ONNX Runtime, or the untuned Relax program."""
        return self.prepare_reference()(inputs)

    def prepare_reference(self) -> Run:
        """What ``reference`` is, for many inputs: loaded or compiled only once."""
        if isinstance(self.source, OnnxSource):
            return self.source.prepare()
        if self.source is not None:
            return self.source.run
        return _prepare_relax(self.module)

    def require_reference(self) -> None:
        """Refuses to go on where ``reference`` could not run.

        Raises:
            MissingDependencyError: The original is an ONNX file, and ONNX Runtime is not installed.
        """
        if isinstance(self.source, OnnxSource):
            require_onnxruntime()

    def beside(self, siblings: Siblings | None) -> Model:
        """The same model, whose original in PyTorch is from a file beside these modules."""
        if not isinstance(self.source, TorchSource):
            return self
        return replace(self, source=replace(self.source, siblings=siblings))

    def draw_inputs(self, seed: int) -> tuple[Array, ...]:
        """Inputs like the examples: floats from a standard normal distribution, the rest from
        the range of the example (so that an index stays legal and a mask of ones stays one).
        """
        rng = np.random.default_rng(seed)
        return tuple(_draw(example, rng) for example in self.examples)

    @functools.cached_property
    def key(self) -> str:
        """Hash of what it computes: its program with the weights, and the first values of states.

        The same in every process; another one after training on.
        """
        from foretune import _tvm

        state = hashlib.blake2b(f"{_tvm.structural_hash(self.module):016x}".encode(), digest_size=8)
        for value in self.examples[len(self.examples) - len(self.states) :]:
            state.update(np.ascontiguousarray(value).tobytes())
        return state.hexdigest()

    @functools.cached_property
    def index_limits(self) -> dict[int, int]:
        """Position of each integer input that ends up as an index: what it must stay below.

        An upper bound: what is calculated on the way is not looked at.
        """
        return input_index_limits(self.module)

    @functools.cached_property
    def number_inputs(self) -> frozenset[int]:
        """Positions of integer inputs that may be any number.

        What becomes a float and is 0 or 1 in the examples counts as a mask.
        """
        numbers = number_inputs(self.module, lambda: self.index_limits)
        return frozenset(
            at
            for at, converted in numbers.items()
            if not (converted and np.isin(self.examples[at], (0, 1)).all())
        )

    @classmethod
    def from_relax(
        cls,
        module: IRModule,
        name: str,
        source: TorchSource | OnnxSource | None = None,
        examples: Sequence[Array] | None = None,
        seed: int = 0,
        until: Sequence[str] = (),
        states: Sequence[str] = (),
        outputs: Sequence[str] = (),
    ) -> Model:
        """Wraps a Relax module with static shapes and bound parameters.

        Args:
            module: Holds a Relax function ``main``.
            name: What people call it.
            source: The original, if there is one.
            examples: One array per input; drawn from ``seed`` when absent.
            seed: For drawn examples.
            until: Tensors that the model was cut at.
            states: Names of its last inputs and last outputs, which are states.
            outputs: Names of the other outputs, ``output0``, ``output1``... by default. One that
                is there twice gets a number.

        Raises:
            UnsupportedModelError: There is no ``main``, a shape is dynamic, or an element type is
                one that NumPy lacks.
        """
        inputs, results = _signature(module, name)
        ordinary = results[: len(results) - len(states)]
        named = _unique(outputs or [spec.name for spec in ordinary], states)
        results = tuple(
            replace(spec, name=called)
            for spec, called in zip(results, [*named, *states], strict=True)
        )
        _refuse_types(module, name)
        if examples is None:
            rng = np.random.default_rng(seed)
            numbers = _numbers(module)
            examples = [
                _any_integers(spec, rng) if at in numbers else _draw(_blank(spec), rng)
                for at, spec in enumerate(inputs)
            ]
        return cls(
            name, module, inputs, results, tuple(examples), source, tuple(states), tuple(until)
        )


def _unique(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Each name once: the second ``y`` is called ``y.1``."""
    unique: list[str] = []
    for name in names:
        called, number = name, 0
        while called in unique or called in taken or (number and called in names):
            number += 1
            called = f"{name}.{number}"
        unique.append(called)
    return unique


def write_onnx(proto: Any, path: Path) -> None:
    """Writes a model, with its weights beside it where one file could not hold them."""
    import onnx

    large = sum(len(tensor.raw_data) for tensor in proto.graph.initializer) > 1 << 30
    onnx.save_model(
        proto,
        str(path),
        save_as_external_data=large,
        location=f"{path.name}.data" if large else None,
    )


def require_onnxruntime() -> Any:
    """The ONNX Runtime package, or the command that installs it."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingDependencyError(
            "checking an ONNX model needs ONNX Runtime: pip install onnxruntime"
        ) from None
    return onnxruntime


@contextlib.contextmanager
def without_leaf_warning() -> Iterator[None]:
    """Keeps one warning of PyTorch to itself: the one about how it copies its own tree of inputs.

    It comes whenever an exported program is copied, pickled or loaded, and nobody but PyTorch
    could do anything about it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
        yield


def _numbers(module: IRModule) -> Mapping[int, bool]:
    try:
        return number_inputs(module, lambda: input_index_limits(module))
    # TVM lowers the operators to find indices, and raises what it likes where it cannot; those that
    # nothing lowers are refused with their names later.
    except Exception:
        return {}


def _any_integers(spec: TensorSpec, rng: np.random.Generator) -> Array:
    """From -9 to 9, but none that a mask has, and no 0, by which nothing can be divided."""
    dtype = element_type(spec.dtype)
    drawn = rng.integers(2, 10, spec.shape)
    signs = rng.choice([-1, 1], spec.shape) if dtype.kind == "i" else 1
    return np.asarray(drawn * signs).astype(dtype)


def _blank(spec: TensorSpec) -> Array:
    """Integers that may be indices or masks are drawn from 0 and 1: legal as either."""
    blank: Array = np.zeros(spec.shape, dtype=element_type(spec.dtype))
    if not is_float(blank.dtype) and blank.size:
        blank.flat[0] = 1
    return blank


def _draw(example: Array, rng: np.random.Generator) -> Array:
    if is_float(example.dtype):
        return rng.standard_normal(example.shape, dtype=np.float32).astype(example.dtype)
    if example.dtype.kind == "b":
        drawn: Array = rng.choice(np.unique(example), example.shape)
        return drawn
    if not example.size:
        return example
    low, high = int(example.min()), int(example.max())
    integers = rng.integers(low, high + 1, example.shape)
    if low < 0 < high and (example != 0).all():
        integers = np.where(integers == 0, high, integers)
    return integers.astype(example.dtype)


def _signature(
    module: IRModule, name: str
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    from foretune import _tvm

    relax = _tvm.tvm.relax
    mains = [
        g
        for g, f in module.functions.items()
        if isinstance(f, relax.Function) and g.name_hint == "main"
    ]
    if not mains:
        raise UnsupportedModelError(
            f"model {name!r} has no Relax function 'main': name the entry function main"
        )
    function = module[mains[0]]
    inputs = tuple(_input_spec(parameter) for parameter in function.params)
    outputs = tuple(_spec(f"output{i}", ty, name) for i, ty in enumerate(_leaves(function.ret_ty)))
    return inputs, outputs


def _refuse_types(module: IRModule, name: str) -> None:
    from foretune import _tvm

    relax, main = _tvm.tvm.relax, module["main"]
    unchecked: list[tuple[str, str]] = []

    def note(what: str, ty: Any) -> None:
        dtypes = [str(getattr(leaf, "dtype", "")) for leaf in _leaves(ty)]
        unchecked.extend((what, dtype) for dtype in dtypes if dtype.startswith(_UNCHECKED))

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call):
            note(str(getattr(node.op, "name", "a call")), node.ty)

    for parameter in main.params:
        note(f"input {str(parameter.name)!r}", parameter.ty)
    relax.analysis.post_order_visit(main, visit)
    if unchecked:
        what, dtype = unchecked[0]
        raise UnsupportedModelError(
            f"results are checked in NumPy, which has no {dtype}, but model {name!r} computes in "
            f"it ({what}): convert the model to float32"
        )


def _leaves(ty: Any) -> list[Any]:
    from foretune import _tvm

    if isinstance(ty, _tvm.tvm.relax.TupleType):
        return [leaf for part in ty.fields for leaf in _leaves(part)]
    return [ty]


def _input_spec(parameter: Any) -> TensorSpec:
    shape = list(getattr(parameter.ty, "shape", None) or [])
    for axis, extent in enumerate(shape):
        if _static(extent) is None:
            example = ",".join("1" if _static(e) is None else str(_static(e)) for e in shape)
            raise UnsupportedModelError(
                f"input {parameter.name!r} dimension {axis} is dynamic ({extent}): fix the shape, "
                f"for example --shape {parameter.name}={example}"
            )
    return _spec(str(parameter.name), parameter.ty, str(parameter.name))


def _spec(name: str, ty: Any, model: str) -> TensorSpec:
    shape = getattr(ty, "shape", None)
    extents = None if shape is None else [_static(extent) for extent in shape]
    if extents is None or any(extent is None for extent in extents):
        raise UnsupportedModelError(
            f"{name} of {model!r} has no static tensor shape ({ty}): its size depends on data, "
            "which cannot be tuned; cut that part off the model"
        )
    return TensorSpec(
        name, tuple(int(extent) for extent in extents if extent is not None), str(ty.dtype)
    )


def _static(extent: Any) -> int | None:
    value = getattr(extent, "value", None)
    return None if value is None else int(value)


def _prepare_relax(module: IRModule) -> Run:
    from foretune import _tvm

    tvm = _tvm.tvm
    executable = tvm.compile(module, tvm.target.Target("llvm"))
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())

    def run(inputs: Sequence[Array]) -> list[Array]:
        outputs = machine["main"](*[tvm.runtime.tensor(np.asarray(a, order="C")) for a in inputs])
        return [tensor.numpy() for tensor in leaves(outputs)]

    return run


def leaves(outputs: Any) -> list[Any]:
    """Tensors of a (nested) tuple of TVM tensors, in order."""
    if hasattr(outputs, "numpy"):
        return [outputs]
    return [tensor for part in outputs for tensor in leaves(part)]
