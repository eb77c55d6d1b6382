"""Where a compiled network first differs from its original.

The original's graph is cut: everything up to its k-th node, with the tensors that later nodes read
as outputs. If these are right, the fault lies behind, if not, before: so the number of nodes is
halved with every cut, each of which is imported and compiled for itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretune import codegen
from foretune._arrays import Array
from foretune.graph._input_sets import InputSet
from foretune.graph._verify import verify
from foretune.graph.compile import compile_model
from foretune.graph.extract import extract
from foretune.workload import GraphNode, Model, cut_model, graph_nodes

if TYPE_CHECKING:
    from foretune.hardware import Hardware

Cut = Callable[[Model, Sequence[str]], Model]


@dataclass(frozen=True)
class Difference:
    """The first operator whose output differs from the original's.

    Attributes:
        operator: Its name in the original's framework.
        output: Name of its (first) output.
        among: Names of the first outputs of all nodes that it may be, in order, ending with
            ``output``; one if it is known for sure.
        passes: Passes without any one of which it is right. Empty where the program
            is wrong as it was imported, or no single pass is to blame.
        imported: Whether the program differs as it was imported, before any pass.
        message: How far it differs, in one line.
    """

    operator: str
    output: str
    among: tuple[str, ...]
    passes: tuple[str, ...]
    imported: bool
    message: str

    def describe(self) -> str:
        """Where the difference begins and what is to blame, in one line."""
        where = f"{self.operator} {self.output!r}"
        if len(self.among) > 1:
            where = f"one of the {len(self.among)} operators up to {where}"
        if self.imported:
            cause = "it was imported as something else"
        elif self.passes:
            cause = f"it is right without {' or '.join(repr(name) for name in self.passes)}"
        else:
            cause = "it is right as imported and wrong as compiled"
        return f"the first operator that differs is {where}: {cause}; {self.message}"


def first_difference(
    model: Model,
    hardware: Hardware,
    inputs: Sequence[Array],
    *,
    called: str = "given",
    nodes: Sequence[GraphNode] | None = None,
    cut: Cut = cut_model,
    seconds: float = 60.0,
) -> Difference | None:
    """The first operator of a model that, compiled with default schedules, computes otherwise.

    Args:
        model: The network.
        hardware: What it is compiled for.
        inputs: On which it differs.
        called: The name of these inputs.
        nodes: Of the original's graph, in order; read from the original by default.
        cut: Makes the model that ends at some tensors.
        seconds: After that the interval that is left is the answer.

    Returns:
        None if nothing differs, or the original has no graph that can be cut.
    """
    deadline = time.monotonic() + seconds
    nodes = graph_nodes(model) if nodes is None else nodes
    search = _Search(model, hardware, InputSet(called, tuple(inputs), model), nodes, cut)
    if not nodes or not search.message_at(model):
        return None
    first, last, smallest = -1, len(nodes) - 1, model
    while last - first > 1 and time.monotonic() < deadline:
        for middle in _from_the_middle(first, last):
            part = search.part(middle)
            if part is not None:
                break
            if time.monotonic() >= deadline:
                break
        if part is None:
            break
        if search.message_at(part):
            last, smallest = middle, part
        else:
            first = middle
    return search.explain(first, last, smallest, deadline)


def _from_the_middle(first: int, last: int) -> Iterator[int]:
    """Numbers between the two, the nearest to their middle first."""
    middle = (first + last) // 2
    return iter(sorted(range(first + 1, last), key=lambda at: abs(at - middle)))


class _Untuned:
    """A Relax program as it is, in the place of an artifact."""

    def __init__(self, model: Model) -> None:
        self.run = model.reference


class _Search:
    def __init__(
        self,
        model: Model,
        hardware: Hardware,
        inputs: InputSet,
        nodes: Sequence[GraphNode],
        cut: Cut,
    ) -> None:
        self._hardware, self._nodes, self._model, self._cut = hardware, nodes, model, cut
        self._called = inputs.name
        self._by_name = {s.name: a for s, a in zip(model.inputs, inputs.arrays, strict=True)}

    def part(self, at: int) -> Model | None:
        """The model up to a node; None where it cannot be cut there."""
        try:
            return self._cut(self._model, self._living(at))
        # A cut may end at what is no tensor, or at a constant; importers refuse it in their ways.
        except Exception:
            return None

    def _living(self, at: int) -> list[str]:
        """Tensors that nodes up to ``at`` compute and later ones read, and outputs of the model.

        What nobody reads is an output, unless it is a further result of some node.
        """
        before, after = self._nodes[: at + 1], self._nodes[at + 1 :]
        later = {name for node in after for name in node.reads}
        read = later | {name for node in before for name in node.reads}
        ends = {node.outputs[0] for node in before} - read
        return [name for node in before for name in node.outputs if name in later | ends]

    def message_at(self, part: Model, without: Collection[str] = ()) -> str:
        """What differs in a part as it is compiled; empty if it is right."""
        given = self._inputs(part)
        extraction = extract(part, self._hardware, without)
        artifact = compile_model(part, self._hardware, {}, extraction)
        return verify(artifact, part, inputs=[given]).message

    def _inputs(self, part: Model) -> InputSet:
        arrays = tuple(self._by_name[spec.name] for spec in part.inputs)
        return InputSet(self._called, arrays, part, must=True)

    def _differs_as_imported(self, part: Model) -> bool:
        """Whether the program differs before any pass of ours."""
        plain = replace(part, source=None)

        return not verify(_Untuned(plain), part, inputs=[self._inputs(part)]).ok

    def explain(self, first: int, last: int, part: Model, deadline: float) -> Difference:
        """What is to blame for the difference in ``part``, which ends at node ``last``."""
        imported = self._differs_as_imported(part)
        guilty = []
        if not imported:
            changed = [r.name for r in extract(part, self._hardware).passes if r.changed]
            for name in (*changed, *codegen.PASSES):
                if time.monotonic() >= deadline:
                    break
                if not self.message_at(part, {name}):
                    guilty.append(name)
        node = self._nodes[last]
        return Difference(
            node.operator,
            node.outputs[0],
            tuple(n.outputs[0] for n in self._nodes[first + 1 : last + 1]),
            tuple(guilty),
            imported,
            self.message_at(part),
        )
