"""Hashes of what a finished run depends on: code by what it does, and weights that come with it.

Comments, documentation and formatting do not count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import foretune
import foretune_research
from foretune.bench import Side
from foretune.cost import DEFAULT_MODEL, rankers
from foretune.cost import split_name as split_cost_model
from foretune.search import proposers, split_name

_RESEARCH = foretune_research.__name__
_ROOTS = {
    package.__name__: Path(str(package.__file__)).parent
    for package in (foretune, foretune_research)
}
_OURS = (
    "foretune.cost.pretrained",
    "foretune.cost.joined_model",
    "foretune.cost.joined",
    "foretune.cost.gbdt_ranker",
    "foretune.cost.mlp_actions",
    "foretune.cost.behaviour.table_rankers",
    "foretune.search.evolutionary",
    "foretune.bench",
)
"""Where a run of ours begins. What is found by name only is named here: the default strategy, the
default cost model, and the rankers in its weights."""
_OURS_WITHIN = (
    "cost",
    "describe",
    "features",
    "search",
    "space",
    "symbolic",
    "tuning",
    "bench",
    "measure",
    "world",
)
_STRATEGIES = {
    "gradient": ("foretune.search.gradient",),
    "gradient-study": ("foretune_research.climbs",),
    "mcts": ("foretune.search.mcts", "foretune.search.proposers"),
    "mcts-rollouts": ("foretune_research.rollouts", "foretune.search.proposers"),
}
"""Where strategies begin that runs of the default do not depend on."""
_PROPOSERS = "foretune.search.proposers"
_LLM = "foretune.llm"
"""Where runs begin, too, in which a language model proposes; no others depend on it."""


def state_of_ours(weights: Path | None = None, more: Sequence[str] = ()) -> str:
    """Changes with whatever a tuning run of ours depends on in this checkout.

    Args:
        weights: Folder of trained weights; those of the package if None.
        more: Further modules where a run begins.

    Returns:
        16 hex digits: a hash of the weights, of the portfolio and of the code.
    """
    folder = Path(foretune.__file__).parent / "cost" / "weights" if weights is None else weights
    code = code_of(*_OURS, *more, within=_OURS_WITHIN)
    digest = hashlib.blake2b(code.encode(), digest_size=8)
    search = Path(foretune.__file__).parent / "search"
    policies = (search / "proposers" / "weights").glob("*.npz") if more else ()
    portfolios = (search / "weights").glob("*.gz")
    # A run of the default reads one file; who names something else may read any.
    trained = folder.glob("*.npz" if more else f"{DEFAULT_MODEL}-*.npz")
    for path in sorted([*trained, *portfolios, *policies]):
        digest.update(f"{path.name}:{path.stat().st_size}:".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def state_of_side(side: Side) -> str:
    """``state_of_ours`` with the modules that the names of a side lead to."""
    names = [*_strategy_modules(side.strategy), *_ranker_modules(side.cost_model)]
    return state_of_ours(more=[name for name in names if name not in _OURS])


def _strategy_modules(strategy: str) -> list[str]:
    base, options = split_name(strategy)
    asked = [_PROPOSERS] if "proposer" in options else []
    if proposers.asks_llm(options.get("proposer")):
        asked.append(_LLM)
    return list(dict.fromkeys([*_STRATEGIES.get(base, ()), *asked]))


def _ranker_modules(cost_model: str) -> list[str]:
    """Where the ranker begins that a cost model reads: one in a file, or one of its name."""
    model, _options = split_cost_model(cost_model)
    if model.endswith(".npz"):
        return [type(rankers.load_for_run(model)).__module__]
    base = model.partition(":")[0]
    return [type(rankers.create(base)).__module__] if base in rankers.names() else []


def code_of(*modules: str, within: Sequence[str]) -> str:
    """A hash of modules and of what they import, directly or not.

    Args:
        modules: Full names; a package stands for all of its modules.
        within: Rooms of the package that imports are followed into; those of the research package
            always are.

    Returns:
        16 hex digits.
    """
    waiting = [name for module in modules for name in _members(module)]
    trees: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        if name in trees:
            continue
        trees[name], imported = _read(_file(name).read_text(encoding="utf-8"))
        for found in imported:
            package, room, *_ = found.split(".")
            if package == _RESEARCH or room in within:
                waiting.append(found)
    # What modules are called makes no difference to what they do.
    text = "\n".join(sorted(trees.values()))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@functools.lru_cache(maxsize=1024)
def _read(source: str) -> tuple[str, tuple[str, ...]]:
    """What a module does, in a form that formatting does not change, and what it imports."""
    tree = ast.parse(source)
    return ast.dump(_without_documentation(tree)), tuple(_imports(tree))


def _file(module: str) -> Path:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, f"{module} has no source file"
    return Path(found.origin)


def _members(module: str) -> list[str]:
    file = _file(module)
    if file.name != "__init__.py":
        return [module]
    return [module, *(f"{module}.{p.stem}" for p in file.parent.glob("*.py") if p != file)]


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules of our packages that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            # A name inside of a module is none; a module at the top belongs to no room.
            if name.partition(".")[0] in _ROOTS and _is_module(name):
                yield name


def _is_module(name: str) -> bool:
    # By files: finding a specification would import what lies above it, PyTorch among others.
    package, *rest = name.split(".")
    if not rest:
        return False
    place = _ROOTS[package].joinpath(*rest)
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _without_documentation(tree: ast.Module) -> ast.Module:
    node: Any
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [
                statement
                for statement in body
                if not (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                )
            ]
    return tree
