"""Fixtures that every room's tests share."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import inspect
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from foretune import _registry
from foretune.hardware import Hardware, probe
from foretune_research import plugin
from tests import ROOT

# Kernels take their thread count from the environment when TVM's pool starts; it has to be there
# before the first test of any room imports TVM.
os.environ.setdefault("TVM_NUM_THREADS", str(len(os.sched_getaffinity(0))))

# TVMScript's decorators ask for the whole stack, and Python looks for the module of every frame of
# it: among the thousands of modules that the tests load, that is a quarter of a second each time.
_module_of = inspect.getmodule
inspect.getmodule = lambda of, name=None: None if inspect.isframe(of) else _module_of(of, name)

# Tests that run beside each other have a core each: threads of OpenMP (PyTorch, XGBoost) would wait
# for each other there, and burn what the test beside them could use.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test, and no process that one starts, reads or writes what is the user's own. Those that run
# beside each other share a cache, so that the machine's peaks are measured once.
os.environ["FORETUNE_STORE"] = "none"
if "PYTEST_XDIST_WORKER" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="foretune-tests-")
    os.environ["XDG_CACHE_HOME"] = _cache.name


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files without a test for the whole machine unread where only those tests are run.

    Reading all of them takes half a minute.
    """
    words = config.option.markexpr.replace("not machine", "").split()
    if "machine" not in words or not collection_path.match("test_*.py"):
        return None
    return "mark.machine" not in collection_path.read_text(encoding="utf-8") or None


def pytest_configure() -> None:
    """Imports make no garbage to speak of, and millions of objects to look through."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What was imported stays, so that no collection of garbage looks through it again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def no_pass_fails(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which a graph pass was left out: a user gets a warning and no fault."""
    left_out: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.addFilter(lambda record: "is left out for this network" in record.msg)
    handler.emit = lambda record: left_out.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("foretune.graph")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    if not request.node.get_closest_marker("passes_may_fail"):
        assert not left_out


@pytest.fixture(autouse=True, scope="session")
def studies() -> Iterator[None]:
    """What the research package adds, also where it was installed before it added anything.

    What else is installed is looked up once, not at every name of a part.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_registry, "plugin_tables", lambda: plugin.TABLES)
        found = functools.cache(importlib.metadata.entry_points)
        patch.setattr(importlib.metadata, "entry_points", found)
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A seeded source of randomness."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def hardware() -> Hardware:
    """The machine the tests run on, unmeasured."""
    return probe()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Recorded data that lies beside the checkout; tests that read it skip where it is absent."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"recorded data is not on this machine: {path}")
    return path


@pytest.fixture
def relu_onnx(tmp_path: Path) -> Path:
    """A file with an ONNX model of one operator."""
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [value("x", 1, [1, 4])],
        [value("y", 1, [1, 4])],
    )
    proto = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.save(proto, str(tmp_path / "relu.onnx"))
    return tmp_path / "relu.onnx"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny language model of transformers, with random weights."""
    from tests.llm.tiny_model import save_tiny_model

    folder = tmp_path_factory.mktemp("tiny-model")
    save_tiny_model(folder)
    return folder
