"""From a module to a program that the walk can take: export, cut, states, decomposition."""

from __future__ import annotations

import contextlib
import difflib
import functools
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from foretune.errors import BadInputError, UnsupportedModelError
from foretune.workload.importers.torch._table import IGNORED, INLINED, KEPT, LOWERINGS
from foretune.workload.importers.torch._walk import name_of
from foretune.workload.model import without_leaf_warning

_LOST_ATTRIBUTE = re.compile(r"attributes? (?:self\.)?(.*) (?:was|were) assigned during export")

_ROUNDS = 6
"""A decomposition may yield what has one itself; chains of PyTorch's are shorter than this."""


def export(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str) -> Any:
    """The program of a module in evaluation mode.

    Raises:
        UnsupportedModelError: PyTorch cannot export it.
    """
    import torch

    try:
        with (
            quiet_export(),
            torch.no_grad(),
            _writing_buffers_in_place(module),
            warnings.catch_warnings(record=True) as said,
        ):
            warnings.simplefilter("always")
            program = torch.export.export(module, args, dict(kwargs) or None, strict=False)
    except Exception as error:  # torch.export raises anything the model's own code may raise
        raise UnsupportedModelError(
            f"PyTorch could not export {name!r}: {first_line(error)}; "
            "make torch.export.export(module, inputs, strict=False) pass first"
        ) from error
    for warning in said:
        lost = _LOST_ATTRIBUTE.search(str(warning.message))
        if lost:
            raise UnsupportedModelError(
                f"model {name!r} writes its own attribute {lost.group(1)!r}, which PyTorch does "
                "not export: make it a buffer with register_buffer: an input and an output "
                "of the artifact"
            )
    return program


@contextlib.contextmanager
def _writing_buffers_in_place(module: Any) -> Iterator[None]:
    """Lets a buffer that the module assigns anew count as written, in every part of the module.

    ``torch.export`` drops the assignment silently below the outermost module. Here it becomes a
    copy into the buffer at the end, when nobody reads the old value any more.
    """
    forward, own = module.forward, "forward" in vars(module)

    @functools.wraps(forward)
    def writing(*args: Any, **kwargs: Any) -> Any:
        before = [
            (part._buffers, name, buffer)
            for part in module.modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        ]
        result = forward(*args, **kwargs)
        for buffers, name, buffer in before:
            if buffers[name] is not buffer:
                buffer.copy_(buffers[name])
                buffers[name] = buffer
        return result

    module.forward = writing
    try:
        yield
    finally:
        if own:
            module.forward = forward
        else:
            del module.forward


@contextlib.contextmanager
def quiet_export() -> Iterator[None]:
    """Keeps torch.export's own warnings to itself: what is wrong is said once, by us."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        logger.setLevel(level)


def cut(program: Any, until: Sequence[str], name: str) -> Any:
    """A module that ends at the named nodes of an exported program and returns their values.

    A buffer is still written where the value written does not lie behind the cut.

    Raises:
        BadInputError: No node that computes a tensor is called so.
    """
    import torch
    from torch.utils import _pytree as pytree

    module = program.module(check_guards=False)
    graph = module.graph
    computed = [n for n in graph.nodes if n.op == "call_function" and _is_tensor(n.meta.get("val"))]
    nodes = {str(node.name): node for node in computed}
    for wanted in until:
        if wanted not in nodes:
            close = difflib.get_close_matches(wanted, nodes, n=3, cutoff=0.4)
            hint = f"did you mean {', '.join(close)}?" if close else f"the last is {[*nodes][-1]}"
            raise BadInputError(f"{name!r} has no node {wanted!r} to cut at: {hint}")
    ends = [nodes[wanted] for wanted in until]
    kept = _ancestors(ends)
    output = next(iter(graph.find_nodes(op="output")))
    output.args = (tuple(ends),)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and node not in kept:
            writes = getattr(node.target, "_schema", None)
            if writes is None or not writes.is_mutable or not _ancestors([node]) <= kept | {node}:
                graph.erase_node(node)
    _, structure = pytree.tree_flatten(tuple(torch.empty(0) for _ in ends))
    info = graph._codegen.pytree_info
    graph._codegen.pytree_info = info._replace(out_spec=structure)
    module.recompile()
    return module


def _ancestors(nodes: Sequence[Any]) -> set[Any]:
    found: set[Any] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def states_of(program: Any, name: str) -> dict[str, str]:
    """Buffers that a program writes: the placeholder of each -> the buffer's own name.

    Raises:
        UnsupportedModelError: It writes an input or a parameter.
    """
    signature = program.graph_signature
    inputs = list(signature.user_inputs_to_mutate.values())
    if inputs:
        raise UnsupportedModelError(
            f"model {name!r} writes its own input {inputs[0]!r}: an artifact leaves its inputs as "
            "they are; let the model write a copy (x.clone()) and return it"
        )
    parameters = list(getattr(signature, "parameters_to_mutate", {}).values())
    if parameters:
        raise UnsupportedModelError(
            f"model {name!r} writes its own parameter {parameters[0]!r}: make it a buffer "
            "(register_buffer), which becomes an input and an output of the artifact"
        )
    written = set(signature.buffers_to_mutate.values())
    return {
        placeholder: buffer
        for placeholder, buffer in signature.inputs_to_buffers.items()
        if buffer in written
    }


def decompose(program: Any, name: str) -> Any:
    """Takes operators apart by PyTorch's own rules until our table has them, or no rule is left.

    Raises:
        UnsupportedModelError: PyTorch cannot.
    """
    import torch._refs  # registers its rules  # noqa: F401
    from torch._decomp import decomposition_table
    from torch.export import default_decompositions

    from foretune.workload.importers.torch._rules import own_rules

    rules: dict[Any, Any] = dict(default_decompositions())
    for target in [known for known in rules if name_of(known) in KEPT]:
        del rules[target]
    rules |= own_rules()
    # Each round traces the whole program anew: what has no rule in PyTorch's default table stays as
    # it is in the first one, so that its rule from the other table is taken at once.
    more = _missing(program, set(rules), decomposition_table)
    tried = set(more)
    with quiet_export(), without_leaf_warning():
        try:
            program, rules = _taken_apart(program, rules, more)
        except Exception as error:  # PyTorch asserts and raises many kinds, of its own and others
            raise UnsupportedModelError(
                f"PyTorch could not take {name!r} apart ({first_line(error)}): make "
                "torch.export.export(module, inputs).run_decompositions() pass first"
            ) from error
        for _ in range(_ROUNDS):
            more = _missing(program, tried, decomposition_table)
            if not more:
                break
            tried |= set(more)
            program, rules = _taken_apart(program, rules, more)
    return program


def _taken_apart(
    program: Any, rules: dict[Any, Any], more: dict[Any, Any]
) -> tuple[Any, dict[Any, Any]]:
    """The program after rules that work and further ones, and all those that do not fail.

    The operator of a rule that fails stays whole.
    """
    try:
        return program.run_decompositions(rules | more), rules | more
    except Exception:  # a rule of PyTorch may raise anything
        if not more:
            raise
    for target, rule in more.items():
        try:
            program.run_decompositions(rules | {target: rule})
        except Exception:
            continue
        rules = rules | {target: rule}
    return program.run_decompositions(rules), rules


def _missing(program: Any, known: Set[Any], table: Mapping[Any, Any]) -> dict[Any, Any]:
    """Rules of a table for what a program holds and neither our table nor ``known`` does."""
    unknown = {t for t in _targets(program) if not _is_known(name_of(t))} - known
    return {target: table[target] for target in unknown if target in table}


def _is_known(name: str) -> bool:
    return name in LOWERINGS or name in IGNORED or name in INLINED or name == "getitem"


def _targets(program: Any) -> set[Any]:
    return {node.target for node in program.graph.nodes if node.op == "call_function"}


def on_host(program: Any) -> Any:
    """The program with its parameters in the host's memory, where TVM reads them."""
    import torch
    from torch.export.passes import move_to_device_pass

    held = (*program.state_dict.values(), *program.constants.values())
    if all(t.device.type == "cpu" for t in held if isinstance(t, torch.Tensor)):
        return program
    return move_to_device_pass(program, "cpu")


def first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
