"""Ctrl-C and SIGTERM end a run wherever they come, inside TVM's callbacks of Python, too."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

pytest.importorskip("torch")

from foretune import _tvm, codegen
from foretune import graph as networks
from foretune.graph import Artifact, _lowering, failing_kernels, passes
from foretune.hardware import Hardware
from foretune.space._default import default_schedule
from foretune.tuning.compiled import compile_default
from tests.graph.networks import block

tvm = _tvm.tvm
relax = tvm.relax


@tvm.transform.module_pass(opt_level=0)
def interrupted(_module: Any, _context: Any) -> Any:
    raise KeyboardInterrupt


def program() -> Any:
    x = tvm.te.placeholder((8,), name="x")
    y = tvm.te.compute((8,), lambda i: x[i] + 1.0, name="y")
    return tvm.IRModule({"main": tvm.te.create_prim_func([x, y])})


def network() -> Any:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.exp(x))
        builder.emit_func_output(result)
    return builder.get()


@relax.expr_functor.mutator
class Mutator(relax.PyExprMutator):
    """Interrupted while TVM walks over an expression."""

    def visit_call_(self, call: Any) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda: interrupted(network()), id="pass"),
        pytest.param(lambda: tvm.transform.Sequential([interrupted])(network()), id="passes"),
        pytest.param(lambda: Mutator().visit_expr(network()["main"].body), id="mutator"),
    ],
)
def test_an_interrupt_in_a_callback_of_tvm_is_one_outside(run: Callable[[], Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run()


def test_what_else_a_callback_raises_is_what_it_was() -> None:
    @tvm.transform.module_pass(opt_level=0)
    def failing(_module: Any, _context: Any) -> Any:
        raise ValueError("my own fault")

    with pytest.raises(ValueError, match="my own fault"):
        failing(network())


def in_a_graph_pass(_hardware: Hardware, _patch: pytest.MonkeyPatch) -> None:
    passes.Passes("a network").run("shaky", network(), interrupted)


def in_the_pass_that_joins(hardware: Hardware, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(passes, "one_function", lambda module, _inputs: interrupted(module))
    passes.join(network(), hardware, (), 1)


def in_a_last_pass(hardware: Hardware, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(codegen, "_changes", lambda _hardware: {"vector-math": interrupted})
    codegen.finish(program(), hardware)


def in_a_last_pass_over_one_program(hardware: Hardware, patch: pytest.MonkeyPatch) -> None:
    def change(module: Any) -> Any:
        if "main" in [str(variable.name_hint) for variable in module.get_global_vars()]:
            return interrupted(module)
        raise RuntimeError("fails on the module as a whole")

    patch.setattr(codegen, "_changes", lambda _hardware: {"vector-math": change})
    codegen.finish(tvm.IRModule({"other": program()["main"]}), hardware)


def while_operators_are_lowered(_hardware: Hardware, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relax.transform, "LegalizeOps", lambda: interrupted)
    _lowering.lower(network(), "a network")


def in_the_default_compile(hardware: Hardware, patch: pytest.MonkeyPatch) -> None:
    model = block()
    extraction = networks.extract(model, hardware)
    patch.setattr(networks, "compile_model", lambda *_given: interrupted(network()))
    compile_default(model, hardware, extraction)


def while_kernels_are_looked_for_that_fail(hardware: Hardware, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tvm, "compile", lambda module, _target: interrupted(module))
    failing_kernels(program(), hardware)


def while_a_default_schedule_is_made(hardware: Hardware, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("foretune.space._default._scheduled", lambda module, _: interrupted(module))
    default_schedule(program()["main"], hardware)


@pytest.mark.parametrize(
    "place",
    [
        in_a_graph_pass,
        in_the_pass_that_joins,
        in_a_last_pass,
        in_a_last_pass_over_one_program,
        while_operators_are_lowered,
        in_the_default_compile,
        while_kernels_are_looked_for_that_fail,
        while_a_default_schedule_is_made,
    ],
)
def test_an_interrupt_is_no_failure_of_a_compiler(
    place: Callable[[Hardware, pytest.MonkeyPatch], None],
    hardware: Hardware,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "foretune"), pytest.raises(KeyboardInterrupt):
        place(hardware, monkeypatch)
    assert not caplog.records


NETWORK = """
import torch


def make():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4).eval(), (torch.ones(2, 8),)
"""
SENDING = """
import os, signal, sys, time
from foretune import _tvm, cli, codegen, graph
from foretune.graph.passes import Passes

number = int(sys.argv.pop(1))


@_tvm.tvm.transform.module_pass(opt_level=0)
def sending(module, context):
    os.kill(os.getpid(), number)
    time.sleep(60)
    return module


"""
IN_A_GRAPH_PASS = """
run = Passes.run
Passes.run = lambda self, name, module, *changes: run(
    self, name, module, *changes, *([sending] if name == "rewrites" else [])
)
"""
IN_THE_TUNED_COMPILE = """
compile_model, changes = graph.compile_model, codegen._changes


def compile_tuned(model, hardware, best, *rest):
    if best:
        codegen._changes = lambda hardware: {**changes(hardware), "prefetch": sending}
    return compile_model(model, hardware, best, *rest)


graph.compile_model = compile_tuned
"""


def tune_in_a_child(
    folder: Path, number: signal.Signals, patch: str, network: str = "net.py:make"
) -> tuple[int, str]:
    """Exit code and standard error of a run that sends itself a signal within a pass."""
    (folder / "net.py").write_text(NETWORK)
    child = subprocess.run(
        [sys.executable, "-c", f"{SENDING}{patch}\ncli.entry()", str(int(number)), "tune",
         network, "--trials", "2", "--strategy", "random", "--cost-model", "random",
         "--work-dir", "run", "-o", "net.so", "--json", "out.json"],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        # A shell in the background, which may have started the tests, ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    return child.returncode, child.stderr


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM],
    ids=lambda n: n.name,
)
def test_a_signal_within_a_graph_pass_ends_the_run(
    tmp_path: Path, relu_onnx: Path, number: signal.Signals
) -> None:
    code, told = tune_in_a_child(tmp_path, number, IN_A_GRAPH_PASS, str(relu_onnx))
    assert code == 130, told
    assert told.splitlines()[-1] == "foretune: interrupted"
    assert "Traceback" not in told and "left out" not in told


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)],
    ids=lambda n: n.name,
)
def test_a_signal_within_the_tuned_compile_leaves_the_proven_network(
    tmp_path: Path, number: signal.Signals
) -> None:
    code, told = tune_in_a_child(tmp_path, number, IN_THE_TUNED_COMPILE)
    assert code == 130, told
    assert "Traceback" not in told and "left out" not in told
    data = json.loads((tmp_path / "out.json").read_text())
    assert data["interrupted"] is True and data["network"]["shipped"] == "default"
    assert len(data["tasks"][0]["trials"]) == 2
    assert Artifact.load(tmp_path / "net.so").manifest["tuned"] == []
