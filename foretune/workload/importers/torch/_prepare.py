"""From a module to a program that the walk can take: export, cut, states, decomposition."""

from __future__ import annotations

import contextlib
import difflib
import functools
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from foretune.errors import BadInputError, UnsupportedModelError
from foretune.workload.importers.torch._attributes import Attributes, derived
from foretune.workload.importers.torch._recurrent import shapes_at_once
from foretune.workload.importers.torch._refusals import (
    aliased,
    is_of_packed_sequence,
    no_buffer,
    registering,
    set_to_none,
    why_no_state,
)
from foretune.workload.importers.torch._table import IGNORED, INLINED, KEPT, LOWERINGS
from foretune.workload.importers.torch._walk import name_of
from foretune.workload.model import without_leaf_warning

_WRITTEN_CONSTANT = re.compile(r"Constant (\S+) is mutated in the forward")
_LOST_ATTRIBUTE = re.compile(r"attributes? (?:self\.)?(.*) (?:was|were) assigned during export")

_ROUNDS = 6
"""A decomposition may yield what has one itself; chains of PyTorch's are shorter than this."""


def export(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str) -> Any:
    """The program of a module in evaluation mode.

    The module is left as it was.

    Raises:
        UnsupportedModelError: PyTorch cannot export it, or it remembers from call to call what
            cannot be a state.
    """
    attributes = Attributes(module)
    try:
        program = _exported(module, args, kwargs, name, attributes)
        if not attributes.advance():
            return program
        # A first call may fill in what later ones only read: those are what is wanted.
        again = _exported(module, args, kwargs, name, attributes)
        changed = attributes.advance()
        if changed and not _are_equal(program, again):
            raise UnsupportedModelError(
                f"model {name!r} computes something else in each call, because it changes its own "
                f"attribute {changed[0]!r}, which is a constant of an artifact: keep it in a "
                f"buffer, a tensor of fixed shape: {registering(changed[0], 'torch.tensor(...)')}"
            )
        return again
    finally:
        attributes.restore()


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two programs have the same code and the same constants."""
    import torch

    def code(program: Any) -> list[str]:
        parts = program.graph_module.modules()
        return [str(part.code) for part in parts if isinstance(part, torch.fx.GraphModule)]

    held, others = one.constants, other.constants
    return (
        code(one) == code(other)
        and held.keys() == others.keys()
        and all(
            torch.equal(value, others[key]) if isinstance(value, torch.Tensor) else True
            for key, value in held.items()
        )
    )


def _exported(
    module: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    name: str,
    attributes: Attributes,
) -> Any:
    import torch

    try:
        with (
            quiet_export(),
            torch.no_grad(),
            shapes_at_once(),
            _writing_buffers_in_place(module, name, attributes),
            warnings.catch_warnings(record=True) as said,
        ):
            warnings.simplefilter("always")
            program = torch.export.export(module, args, dict(kwargs) or None, strict=False)
    except UnsupportedModelError:
        raise
    except Exception as error:  # torch.export raises anything the model's own code may raise
        unset = set_to_none(error)
        if unset:
            raise UnsupportedModelError(
                f"model {name!r} {why_no_state(unset, torch.empty(0), None)}"
            ) from error
        if is_of_packed_sequence(error):
            raise UnsupportedModelError(
                f"model {name!r} packs sequences, and the size of a packed one depends on values: "
                "give its recurrent layers padded tensors, and sequences of different lengths one "
                "in a call"
            ) from error
        raise UnsupportedModelError(
            f"PyTorch could not export {name!r}: {first_line(error)}; "
            "make torch.export.export(module, inputs, strict=False) pass first"
        ) from error
    for warning in said:
        for attribute in _lost(module, str(warning.message)):
            raise no_buffer(name, attribute)
    return program


def _lost(module: Any, message: str) -> list[str]:
    """Attributes that a call assigns, in PyTorch's words, without those that it derives anew."""
    said = _LOST_ATTRIBUTE.search(message)
    known = {
        f"{path}.{name}" if path else name
        for path, part in module.named_modules()
        for name in derived(part)
    }
    listed = re.split(r", self\.", said.group(1)) if said else []
    return [each for each in listed if each.partition("[")[0] not in known]


@contextlib.contextmanager
def _writing_buffers_in_place(module: Any, name: str, attributes: Attributes) -> Iterator[None]:
    """Lets a buffer that the module assigns anew count as written, in every part of the module.

    ``torch.export`` drops the assignment silently below the outermost module. Here it becomes a
    copy into the buffer at the end, when nobody reads the old value any more. One that cannot hold
    what it is given is refused by its name.
    """
    forward, own = module.forward, "forward" in vars(module)

    @functools.wraps(forward)
    def writing(*args: Any, **kwargs: Any) -> Any:
        before = [(path, part, dict(part._buffers)) for path, part in module.named_modules()]
        result = forward(*args, **kwargs)
        attributes.note()
        faults = []
        for path, part, buffers in before:
            for key in dict.fromkeys((*buffers, *part._buffers)):
                old: Any = buffers.get(key)
                new: Any = part._buffers.get(key)
                if new is old:
                    continue
                fault = why_no_state(f"{path}.{key}" if path else key, old, new)
                if fault:
                    faults.append(fault)
                else:
                    old.copy_(new)
            part._buffers.clear()
            part._buffers.update(buffers)
        if faults:
            raise UnsupportedModelError(f"model {name!r} {faults[0]}")
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
    """Keeps PyTorch's own words to itself: what is wrong is said once, by us.

    It logs tracebacks of operators that refuse a shape, and prints graphs on standard error where
    the size of something depends on values.
    """
    levels = [(logger, logger.level) for logger in _loggers()]
    for logger, _ in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    """PyTorch's loggers with a level of their own, and the one that others have theirs from."""
    known = [*logging.Logger.manager.loggerDict.items()]
    own = [logger for name, logger in known if name.startswith("torch.")]
    loggers = [logger for logger in own if isinstance(logger, logging.Logger) and logger.level]
    return [logging.getLogger("torch"), *loggers]


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
    ancestors: set[Any] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in ancestors:
            ancestors.add(node)
            waiting += node.all_input_nodes
    return ancestors


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def states_of(program: Any, name: str) -> dict[str, str]:
    """Buffers that a program writes: the placeholder of each -> the buffer's own name.

    Raises:
        UnsupportedModelError: It writes an input, a parameter, or a buffer that shares its memory.
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
    for shared in _shared_memory(program):
        if written.intersection(shared):
            raise aliased(name, shared)
    return {
        placeholder: buffer
        for placeholder, buffer in signature.inputs_to_buffers.items()
        if buffer in written
    }


def _shared_memory(program: Any) -> list[list[str]]:
    """Names of parameters and buffers that lie in the same memory, by group."""
    import torch

    places: dict[int, list[str]] = {}
    for held in (program.state_dict, program.constants):
        for name, tensor in held.items():
            if isinstance(tensor, torch.Tensor) and tensor.numel():
                names = places.setdefault(tensor.untyped_storage().data_ptr(), [])
                names += [name] if name not in names else []
    return [names for names in places.values() if len(names) > 1]


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
    with quiet_export(), without_leaf_warning(), _operators_listed_once(), shapes_at_once():
        try:
            program, rules = _taken_apart(program, rules, more)
        except Exception as error:  # PyTorch asserts and raises many kinds, of its own and others
            attribute = _WRITTEN_CONSTANT.search(str(error))
            if attribute:
                raise no_buffer(name, attribute.group(1)) from error
            shared = _shared_memory(program)
            if shared:
                raise aliased(name, shared[0]) from error
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


@contextlib.contextmanager
def _operators_listed_once() -> Iterator[None]:
    """Lets PyTorch ask its dispatcher for all operators once in place of 48 times for a program.

    It asks for every namespace, since operators may be added at any time: not while a program is
    taken apart, though. That was a quarter of the time of taking apart a small one.
    """
    from torch._export import utils

    listed = getattr(utils, "_materialize_cpp_cia_ops", None)
    if listed is None:  # Another release of PyTorch, which is only slower.
        yield
        return
    utils._materialize_cpp_cia_ops = functools.cache(listed)
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = listed


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
