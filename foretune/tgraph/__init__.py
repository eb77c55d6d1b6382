"""TGraph: a graph network that ranks the configurations of a whole network.

Idea: a network compiled for an accelerator has thousands of configurations (layouts of the tensors
of some nodes, or the tile of one kernel), and measuring one takes seconds. A graph network scores
many of them in one pass, and compares them with one another on the way.

Reading order: ``graphs`` says what is learned from, ``raw`` where it is from; ``configurations``
packs it; ``prepare`` and ``splits`` ready it; ``config`` has all switches and the two named
configurations; ``_networks`` is equation 7 with the layers of ``_layers``; ``_losses`` and
``_training`` make one member, ``model`` the ensemble; ``metrics`` and ``evaluate`` judge it.

Source: Tatarkhanov et al., TGraph: a tensor compiler that ranks configurations of TpuGraphs (2025);
what is measured on our own data, and where we deviate, is in docs/tgraph.md.

Besides: ``reading`` reads files (``_npz``; raw ones by ``_hlo_messages`` and ``_hlo_features``),
``opcodes`` are XLA's operations.
"""

from foretune.tgraph._hlo_features import COLUMNS
from foretune.tgraph.config import TGraphConfig, named, names
from foretune.tgraph.evaluate import NONE, SCHEMA, SPLITS, evaluate, judge, judge_all, judgeable
from foretune.tgraph.graphs import (
    Graph,
    LayoutGraph,
    Nodes,
    TileGraph,
)
from foretune.tgraph.model import TGraph, fold_figures, load, require_torch, train
from foretune.tgraph.prepare import family, graph_key
from foretune.tgraph.reading import read_graph, read_graphs
from foretune.tgraph.splits import Part, by_configuration, by_graph, whole

__all__ = [
    "COLUMNS",
    "NONE",
    "SCHEMA",
    "SPLITS",
    "Graph",
    "LayoutGraph",
    "Nodes",
    "Part",
    "TGraph",
    "TGraphConfig",
    "TileGraph",
    "by_configuration",
    "by_graph",
    "evaluate",
    "family",
    "fold_figures",
    "graph_key",
    "judge",
    "judge_all",
    "judgeable",
    "load",
    "named",
    "names",
    "read_graph",
    "read_graphs",
    "require_torch",
    "train",
    "whole",
]
