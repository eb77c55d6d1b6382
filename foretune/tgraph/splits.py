"""What a model learns from and what it is judged on: parts of a set of graphs.

By *graph*, a network that is judged on was never seen, in whatever collection it occurs; networks
with the same operations, joined in the same way, count as one, whatever their sizes are. By
*configuration*, other configurations of the same networks were seen; copies of one configuration
stay together, because their run times are nearly equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foretune._arrays import FloatArray, IndexArray
from foretune.errors import BadInputError
from foretune.tgraph.configurations import distinct
from foretune.tgraph.graphs import Graph, LayoutGraph
from foretune.tgraph.prepare import family


@dataclass(frozen=True)
class Part:
    """Some configurations of a graph.

    Attributes:
        graph: The graph.
        rows: Which of its configurations.
    """

    graph: Graph
    rows: IndexArray

    @property
    def runtime(self) -> FloatArray:
        """Of each row, in the graph's unit; the graph must have been measured."""
        if self.graph.runtime is None:
            raise ValueError(f"{self.graph.name} was not measured")
        return self.graph.runtime[self.rows].astype(np.float64)

    @property
    def orderable(self) -> bool:
        """Whether there is an order to learn, or to judge: two different run times."""
        return self.graph.runtime is not None and len(np.unique(self.runtime)) > 1


def whole(graph: Graph, keep: str = "min") -> Part:
    """All different configurations of a graph; ``keep`` as for ``configurations.distinct``."""
    return Part(graph, distinct(configuration_keys(graph), graph.runtime, keep))


def configuration_keys(graph: Graph) -> npt.NDArray[np.void]:
    """Of each configuration something that is equal where configurations are, shape (c,)."""
    if isinstance(graph, LayoutGraph):
        return graph.configurations.keys
    rows = np.ascontiguousarray(graph.configurations)
    return rows.view(f"V{rows.dtype.itemsize * rows.shape[1]}")[:, 0]


def by_graph(graphs: Sequence[Graph], folds: int, rng: np.random.Generator) -> list[list[int]]:
    """Deals graphs to folds, those of one family to the same; every graph is in one fold.

    Args:
        graphs: At least two families.
        folds: How many; as many as there are families if fewer.
        rng: Shuffles.

    Raises:
        BadInputError: There is one family only.
    """
    network = np.unique([family(graph) for graph in graphs], return_inverse=True)[1]
    count = int(network.max()) + 1
    if count < 2:
        raise BadInputError(
            f"a split by graph needs two graphs with different operations, but got {count}: give "
            "more data, or --split configuration"
        )
    fold = rng.permutation(count) % min(folds, count)
    return [np.flatnonzero(fold[network] == at).tolist() for at in range(min(folds, count))]


def by_configuration(
    graph: Graph, parts: int, rng: np.random.Generator, keep: str = "min"
) -> tuple[Part, Part]:
    """Configurations to learn from, and one of ``parts`` equal parts to judge on.

    Args:
        graph: It has at least two different configurations.
        parts: At least two.
        rng: Chooses.
        keep: Which of equal configurations are learned from; one is judged on, the fastest.

    Raises:
        BadInputError: All configurations are equal.
    """
    keys = configuration_keys(graph)
    group = np.unique(keys, return_inverse=True)[1]
    count = int(group.max()) + 1
    if count < 2:
        raise BadInputError(
            f"a split by configuration needs two different ones, but {graph.name} has {count}: "
            "leave it out"
        )
    tested = np.zeros(count, dtype=bool)
    tested[rng.permutation(count)[: max(1, round(count / parts))]] = True
    held = tested[group]
    learned = distinct(keys, graph.runtime, keep)
    judged = distinct(keys, graph.runtime)
    return Part(graph, learned[~held[learned]]), Part(graph, judged[held[judged]])
