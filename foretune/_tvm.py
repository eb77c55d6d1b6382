"""The only import seam for TVM's version-dependent names and traps.

Every other module imports TVM through here, lazily where it can, so that an upgrade of TVM is one
file's work. Verified against apache-tvm 0.27.0.post1 with apache-tvm-ffi 0.1.14.post1.

Three traps are defused on import. ``tvm_ffi`` imports torch when torch is installed, which costs
two seconds per process and serves a symbol conflict on Windows: torch is hidden while TVM loads,
and can be imported afterwards.
``TuneContext`` imports every tensor intrinsic TVM knows, which costs twenty seconds because each
one walks the interpreter's frames: ``load_intrinsics`` loads only those of the target at hand.
What a callback of TVM raises comes out as a ``RuntimeError`` unless ``tvm_ffi`` knows its class:
Ctrl-C in a pass looked like a pass that fails. ``KeyboardInterrupt`` is made known.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Hidden while TVM loads, and only then: see the first trap above.
_HIDDEN = "torch"
if _HIDDEN not in sys.modules:
    sys.modules[_HIDDEN] = None  # type: ignore[assignment]
import tvm
import tvm_ffi

if sys.modules[_HIDDEN] is None:
    del sys.modules[_HIDDEN]
from tvm import IRModule
from tvm.s_tir import Schedule, meta_schedule
from tvm.s_tir.schedule import Trace
from tvm.support.cc import get_cc
from tvm.sym import detect_linear_equation
from tvm.target import Target
from tvm.tirx import PrimFunc

from foretune._nvrtc import use_short_sources

__all__ = [
    "IRModule",
    "PrimFunc",
    "Schedule",
    "Target",
    "Trace",
    "calling_from_a_free_core",
    "children",
    "detect_linear_equation",
    "get_cc",
    "load_intrinsics",
    "load_json",
    "make_context",
    "map_programs",
    "meta_schedule",
    "register_function",
    "reset_thread_pool",
    "rooted",
    "rpc",
    "rpc_tracker",
    "same_program",
    "save_json",
    "structural_equal",
    "structural_hash",
    "structural_mutate",
    "tvm",
    "versions",
]

_INTRINSICS = "tvm.s_tir.tensor_intrin"

use_short_sources(tvm, tvm_ffi)
tvm_ffi.error.register_error(KeyboardInterrupt)


def versions() -> dict[str, str]:
    """Versions of TVM, its FFI package and the LLVM inside it, for environments of records."""
    versions = {"tvm": tvm.__version__, "tvm_ffi": tvm_ffi.__version__}
    llvm = tvm.target.codegen.llvm_version_major(allow_none=True)
    return versions if llvm is None else {**versions, "llvm": str(llvm)}


def rpc() -> Any:
    """TVM's remote procedure calls: ``connect``, and ``server`` with what serves."""
    from tvm import rpc as package

    return package


def rpc_tracker() -> Any:
    """The module of TVM's tracker."""
    from tvm.rpc import tracker

    return tracker


def register_function(name: str, function: Any) -> None:
    """Has calls of this name, from any module of this process, go to a function."""
    tvm_ffi.register_global_func(name, function, override=True)


def structural_mutate(node: Any, callbacks: Any) -> Any:
    """A copy of an object graph in which callbacks, by type, say what becomes of a node."""
    return tvm_ffi.structural_mutate(node, callbacks)


def map_programs(module: IRModule, change: Callable[[Any], Any]) -> IRModule:
    """A module whose tensor programs are changed; the module itself where none is."""
    functions = {
        variable: change(function) if isinstance(function, PrimFunc) else function
        for variable, function in module.functions.items()
    }
    if all(new.same_as(module.functions[variable]) for variable, new in functions.items()):
        return module
    return IRModule(functions, attrs=module.attrs)


def structural_equal(one: Any, other: Any) -> bool:
    """Whether two object graphs are the same but for names."""
    return bool(tvm_ffi.structural_equal(one, other))


def same_program(one: IRModule, other: IRModule) -> bool:
    """Whether two modules are the same but for names and the values of constants."""
    return bool(tvm_ffi.structural_equal(one, other, skip_tensor_content=True))


def structural_hash(node: Any) -> int:
    """TVM's structural hash as an unsigned 64-bit integer, equal in every process."""
    return int(tvm_ffi.structural_hash(node)) & 0xFFFFFFFFFFFFFFFF


def children(node: Any) -> list[Any]:
    """The statements and expressions directly below a node, in the order of the program.

    Variables have none. TVM offers no visitor for these programs here: its nodes' reflected fields
    are read instead.
    """
    if isinstance(node, tvm.ir.Var):
        return []
    info = getattr(type(node), "__tvm_ffi_type_info__", None)
    values: list[Any] = []
    for field in info.fields if info is not None else ():
        value = getattr(node, field.name)
        if type(value).__name__ in ("Array", "List"):
            values += list(value)
        elif isinstance(value, (tvm.tirx.Stmt, tvm.ir.Expr)):
            values.append(value)
    return [child for child in values if hasattr(type(child), "__tvm_ffi_type_info__")]


def rooted(function: Any) -> Any:
    """A PrimFunc with the block ``root`` around everything, where it lacks one.

    TVM's own programs have it, and schedules and passes take it for granted; loops written by hand
    may have none, or one block of another name.
    """
    body = function.body
    if isinstance(body, tvm.s_tir.SBlockRealize):
        block = body.block
        if str(block.name_hint) == "root" and not block.iter_vars:
            return function
    root = tvm.s_tir.SBlock([], [], [], "root", body)
    realized = tvm.s_tir.SBlockRealize([], True, root)
    return PrimFunc(function.params, realized, function.ret_type, function.attrs)


def save_json(node: Any) -> str:
    """Serialises a TVM object graph."""
    return str(tvm.ir.save_json(node))


def load_json(text: str) -> Any:
    """Reads what ``save_json`` wrote."""
    return tvm.ir.load_json(text)


@contextlib.contextmanager
def calling_from_a_free_core() -> Iterator[None]:
    """Keeps the calling thread on the cores that TVM bound no worker thread to.

    TVM binds its worker threads but not the caller, who computes a share as well. When the
    scheduler leaves the caller on a worker's core the two take turns, and a kernel on two threads
    takes twice its time. Only kernels run inside: a compilation should use every core.
    """
    own = os.sched_getaffinity(0)
    masks = [_affinity(int(task)) for task in os.listdir("/proc/self/task")]
    free = own.difference(*(mask for mask in masks if len(mask) == 1))
    if not free:
        yield
        return
    os.sched_setaffinity(0, free)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def _affinity(task: int) -> set[int]:
    try:
        return os.sched_getaffinity(task)
    except ProcessLookupError:  # the thread ended meanwhile
        return set()


def reset_thread_pool() -> None:
    """Ends the workers of the calling thread's pool and starts new ones.

    TVM's runtime exports this function to C++ alone; Python finds it by its mangled name.
    """
    tvm.base._LOADED_LIBS["tvm_runtime"]._ZN3tvm7runtime9threading15ResetThreadPoolEv()


_DOT_16X4 = """
@T.prim_func(s_tir=True)
def dot_16x4(
    A: T.Buffer((4,), "uint8", offset_factor=1),
    B: T.Buffer((16, 4), "int8", offset_factor=1),
    C: T.Buffer((16,), "int32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        group = T.reinterpret(A.vload([0], "uint8x4"), dtype="int32")
        C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
            C.vload([0], dtype="int32x16"),
            T.reinterpret(T.broadcast(group, 16), dtype="int8x64"),
            B.vload([0, 0], dtype="int8x64"),
            dtype="int32x16",
        )
"""


def load_intrinsics(target: Target) -> None:
    """Registers the tensor intrinsics that the schedule rules of ``target`` look up.

    TVM's own ``dot_16x4_vnni`` hands LLVM sixteen 32-bit words where its LLVM wants 64 bytes, so
    that no program with it compiles: it is registered anew, with the operands as bytes.
    """
    known = _INTRINSICS + ".x86" in sys.modules
    _load_intrinsics(target)
    x86 = sys.modules.get(_INTRINSICS + ".x86")
    if x86 is not None and not known:
        tvm.s_tir.TensorIntrin.register(
            x86.VNNI_DOT_16x4_INTRIN,
            x86.dot_product_16x4_u8i8i32_desc,
            tvm.script.from_source(_DOT_16X4),
            override=True,
        )


def _load_intrinsics(target: Target) -> None:
    """Imports the intrinsics of ``target``.

    For an x86 CPU only the x86 ones are loaded (0.2 s) in place of all (20 s); any other target
    gets the whole package.
    """
    if _INTRINSICS in sys.modules and not getattr(
        sys.modules[_INTRINSICS], "__foretune_partial__", False
    ):
        return
    if str(target.kind) == "llvm" and _is_x86(target):
        if _INTRINSICS not in sys.modules:
            # A package object with the real search path but without running its __init__.
            package = types.ModuleType(_INTRINSICS)
            spec = importlib.util.find_spec("tvm.s_tir")
            assert spec is not None and spec.origin is not None
            package.__path__ = [str(Path(spec.origin).parent / "tensor_intrin")]
            package.__foretune_partial__ = True  # type: ignore[attr-defined]
            sys.modules[_INTRINSICS] = package
        with _frames_without_sources():
            importlib.import_module(_INTRINSICS + ".x86")
        return
    _load_all_intrinsics()


def _is_x86(target: Target) -> bool:
    import platform

    triple = str(target.attrs.get("mtriple", "") or platform.machine())
    return any(name in triple for name in ("x86_64", "amd64", "i686"))


def _load_all_intrinsics() -> None:
    loaded = [m for m in sys.modules if m.startswith(_INTRINSICS + ".")]
    partial = sys.modules.pop(_INTRINSICS, None)
    with _frames_without_sources():
        if partial is not None:
            # The x86 intrinsics are registered already; registering twice raises.
            x86 = {name: sys.modules[name] for name in loaded}
            package = types.ModuleType(_INTRINSICS)
            package.__path__ = list(partial.__path__)
            sys.modules[_INTRINSICS] = package
            for path in sorted(Path(package.__path__[0]).glob("*.py")):
                name = f"{_INTRINSICS}.{path.stem}"
                if path.stem != "__init__" and name not in x86:
                    importlib.import_module(name)
        else:
            importlib.import_module(_INTRINSICS)


@contextlib.contextmanager
def _frames_without_sources() -> Iterator[None]:
    """Lets TVMScript's decorator read frames only, not the sources of all that called it.

    ``inspect.stack()`` searches every loaded module for the source of every frame, twice for each
    of hundreds of intrinsics: that is what makes their import take 20 s instead of 2. The decorator
    wants the variables of the frames around it, and no source: no intrinsic stands in a class.
    """
    stack, getmodule = inspect.stack, inspect.getmodule

    def frames(context: int = 1) -> list[inspect.FrameInfo]:
        del context
        frame: types.FrameType | None = sys._getframe(1)
        kept = []
        while frame is not None:
            code = frame.f_code
            kept.append(
                inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None)
            )
            frame = frame.f_back
        return kept

    inspect.stack, inspect.getmodule = frames, lambda *_args, **_kwargs: None  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.stack, inspect.getmodule = stack, getmodule


def make_context(mod: IRModule, target: Target, **kwargs: Any) -> Any:
    """A MetaSchedule ``TuneContext`` without the twenty-second import of every intrinsic."""
    load_intrinsics(target)
    return meta_schedule.TuneContext(mod=mod, target=target, **kwargs)
