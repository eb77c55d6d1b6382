"""Rules of the whole package: imports go one way, TVM has one seam, importing costs nothing."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import foretune
from tests import ROOT

PACKAGE = Path(foretune.__file__).parent
LAYERS = (
    "errors",
    "_arrays",
    "_child",
    "_code",
    "_control_groups",
    "_files",
    "_interval",
    "_pages",
    "_per_store",
    "_model_file",
    "_options",
    "_registry",
    "_store_url",
    "_torch",
    "_nvrtc",
    "_tvm",
    "hardware",
    "operators",
    "workload",
    "codegen",
    "space",
    "symbolic",
    "features",
    "graph",
    "engines",
    "cluster",
    "measure",
    "records",
    "llm",
    "dataset",
    "describe",
    "world",
    "tgraph",
    "cost",
    "search",
    "plans",
    "evaluate",
    "testing",
    "explain",
    "report",
    "tuning",
    "collect",
    "metaschedule",
    "bench",
    "cli",
    "__main__",
)
"""Rooms from the lowest to the highest; docs/design.md says what each is for."""
SEAM = "_tvm.py"
DIRECT_TVM = {
    # The front ends of TVM are as large as their frameworks: each has the one file that calls it.
    "workload/importers/onnx/_front_end.py",
    # Runs TVM's own tuner as the peer, in a process that is to have nothing of ours in it.
    "metaschedule/_child.py",
}
ENVIRONMENT = {
    # The entry: tells TVM's runtime the number of threads before it starts.
    "cli/_options.py",
    # Leaves TVM's own compiler of CUDA source alone where its variable names one.
    "_nvrtc.py",
    # Keeps TVM from binding threads to cores while it starts them.
    "graph/_threads.py",
    # The entry of a run of a benchmark: addresses and keys of language models.
    "bench/_ours.py",
    # Keeps what it measured where the user's environment says that such files go.
    "hardware/_peak.py",
    # Keeps Ray from telling its makers that it is used.
    "cluster/_ray.py",
    # Starts child processes, which inherit the environment.
    "_child.py",
}
"""Files that touch environment variables."""
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def _room(path: str) -> str:
    return path.split("/", maxsplit=1)[0].removesuffix(".py")


TOP = {_room(file) for file in FILES if "/" not in file}
"""Modules that are no rooms."""


def _is_type_checking(node: ast.If) -> bool:
    test = node.test
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run: those under ``if TYPE_CHECKING`` are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and _is_type_checking(child):
            for other in child.orelse:
                yield other
                yield from _runtime_nodes(other)
            continue
        yield child
        yield from _runtime_nodes(child)


@functools.cache
def _tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


@functools.cache
def _imports(file: str) -> list[tuple[int, str]]:
    """Line and full name of everything a file imports at run time, functions included."""
    return list(_imported(file))


def _imported(file: str) -> Iterator[tuple[int, str]]:
    for node in _runtime_nodes(_tree(file)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are written in full"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_every_room_has_its_place_in_the_order():
    rooms = {_room(file) for file in FILES} - {"__init__"}
    assert rooms <= set(LAYERS), f"rooms without a place: {sorted(rooms - set(LAYERS))}"


def test_the_product_knows_nothing_of_its_studies():
    known = [
        f"{file}:{line} imports {name}"
        for file in FILES
        for line, name in _imports(file)
        if name.split(".")[0] in ("foretune_research", "benchmarks", "tests")
    ]
    assert not known


def test_imports_go_one_way():
    upward = [
        f"{file}:{line} imports {name}"
        for file in FILES
        if file != "__init__.py"
        for line, name in _imports(file)
        if name.startswith("foretune.")
        and (room := name.split(".")[1]) in LAYERS
        and LAYERS.index(room) > LAYERS.index(_room(file))
    ]
    assert not upward


def _modules() -> dict[str, str]:
    """The modules of both packages: full names, and paths as :data:`FILES` has them or in full."""
    studies = [path.as_posix() for path in (ROOT / "foretune_research").rglob("*.py")]
    parts = {file: ("foretune", *Path(file).with_suffix("").parts) for file in FILES}
    parts |= {file: Path(file).relative_to(ROOT).with_suffix("").parts for file in studies}
    return {".".join(p for p in named if p != "__init__"): file for file, named in parts.items()}


def test_no_imports_go_in_a_circle():
    """Imports within functions count. That a module's package is loaded with it does not."""
    modules = _modules()
    graph = {
        module: {name if name in modules else name.rpartition(".")[0] for _, name in _imports(path)}
        for module, path in modules.items()
    }
    own = {module: known & modules.keys() - {module} for module, known in graph.items()}
    try:
        TopologicalSorter(own).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_every_room_begins_with_a_map():
    """It names each of its modules. That of the whole package is in docs/design.md."""
    modules = _modules()
    unnamed = []
    for module in sorted(modules):
        room, _, name = module.rpartition(".")
        if room in ("", "foretune"):
            continue
        text = ast.get_docstring(_tree(modules[room])) or ""
        if f"``{name}``" not in text:
            unnamed.append(module)
    assert not unnamed


def test_types_of_arrays_are_said_once():
    again = [
        f"{file}:{node.lineno}"
        for file in FILES
        if file != "_arrays.py"
        for node in _tree(file).body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and node.value is not None
        and ast.unparse(node.value).startswith("npt.NDArray")
    ]
    assert not again, "they are in foretune/_arrays.py"


def test_tvm_is_imported_by_its_seam_alone():
    direct = [
        f"{file}:{line} imports {name}"
        for file in FILES
        if file != SEAM and file not in DIRECT_TVM
        for line, name in _imports(file)
        if name.split(".")[0] in ("tvm", "tvm_ffi")
    ]
    assert not direct


def test_the_list_of_direct_imports_is_not_longer_than_needed():
    using = {f for f in FILES if any(n.split(".")[0] == "tvm" for _line, n in _imports(f))}
    assert using >= DIRECT_TVM


def test_private_modules_stay_in_their_room():
    """A module that starts with an underscore is imported by its own room only.

    Those at the top, in no room, are for all of the package and for nobody else.
    """
    foreign = [
        f"{file}:{line} imports {name}"
        for file in FILES
        for line, name in _imports(file)
        if name.startswith("foretune.")
        and name.split(".")[1] not in (_room(file), *TOP)
        and any(
            part.startswith("_")
            and (PACKAGE / "/".join(name.split(".")[1 : i + 2])).with_suffix(".py").is_file()
            for i, part in enumerate(name.split(".")[1:])
        )
    ]
    assert not foreign


def _environment_uses(tree: ast.Module) -> list[int]:
    """Lines that read, change or pass on environment variables, in whatever way."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found = node.attr in names and ast.unparse(node.value).endswith("os")
        elif isinstance(node, ast.ImportFrom):
            found = node.module == "os" and any(alias.name in names for alias in node.names)
        else:
            continue
        if found:
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    "use",
    [
        "os.environ['A']",
        "os.environ['A'] = '1'",
        "del os.environ['A']",
        "'A' in os.environ",
        "os.environ.get('A')",
        "os.environ.setdefault('A', '1')",
        "{**os.environ}",
        "dict(os.environ)",
        "for name in os.environ: pass",
        "os.getenv('A')",
        "os.putenv('A', '1')",
        "from os import environ",
        "from os import getenv as g",
    ],
)
def test_every_use_of_the_environment_is_seen(use):
    assert _environment_uses(ast.parse(use)) == [1]


def test_environment_variables_are_used_at_the_entries_only():
    """Below the command line and the entry of a child process, configuration is an argument."""
    uses = {file: lines for file in FILES if (lines := _environment_uses(_tree(file)))}
    assert not {file: lines for file, lines in uses.items() if file not in ENVIRONMENT}
    assert set(uses) == ENVIRONMENT


def test_tests_find_the_checkout_by_its_name():
    """A count of parents is wrong as soon as a test moves to another room."""
    counted = [
        file.relative_to(ROOT).as_posix()
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if ".parents" in (text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr == "parents"
        and "__file__" in ast.unparse(node)
    ]
    assert counted == ["tests/__init__.py"]


def _loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return set(json.loads(done.stdout))


def test_symbolic_programs_are_loaded_by_who_asks_for_them():
    """By formulas, models of behaviour and gradient search, not by what has them as a choice."""
    choosing = (
        "features",
        "describe",
        "cost.joined",
        "cost.gbdt",
        "search",
        "explain",
        "tuning.api",
    )
    loaded = _loaded_by("import " + ", ".join(f"foretune.{room}" for room in choosing))
    assert "foretune.describe" in loaded
    assert not [name for name in loaded if name.startswith("foretune.symbolic")]


@pytest.mark.parametrize("statement", ["import foretune", "import foretune.cli"])
def test_importing_loads_nothing_heavy(statement):
    heavy = {"tvm", "tvm_ffi", "torch", "xgboost", "transformers", "onnx", "matplotlib", "pandas",
             "httpx", "httpx2", "psycopg", "sqlalchemy", "alembic"}  # fmt: skip
    assert not {name.split(".")[0] for name in _loaded_by(statement)} & heavy


def test_every_public_name_loads():
    for name in foretune.__all__:
        assert getattr(foretune, name) is not None
    assert set(foretune.__all__) <= set(dir(foretune))


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        foretune.no_such_name  # noqa: B018
