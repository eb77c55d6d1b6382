"""What is tuned: workloads, models, importers and the catalog.

``_base`` is the workload, ``model`` the network, ``importers`` and ``catalog`` make them.
``element_types``, ``_roles``, ``_indices``, ``_index_inputs`` and ``_number_inputs`` say what
parameters are, ``_signature`` what is computed, ``_siblings`` what a user's file may import.
``training`` (``_training_families``, ``_training_operators``, ``_training_sizes``) is what models
learn from.
"""

from foretune.workload._base import ColdWeights, Workload, cold_weights, mark_cold
from foretune.workload._indices import index_limits, walk
from foretune.workload._roles import parameter_position, parameter_roles
from foretune.workload._siblings import INPUT_PREFIX
from foretune.workload.importers import from_object, load_input
from foretune.workload.importers._cut import GraphNode, cut_model, graph_nodes
from foretune.workload.model import Model, OnnxSource, TensorSpec, TorchSource

__all__ = [
    "INPUT_PREFIX",
    "ColdWeights",
    "GraphNode",
    "Model",
    "OnnxSource",
    "TensorSpec",
    "TorchSource",
    "Workload",
    "cold_weights",
    "cut_model",
    "from_object",
    "graph_nodes",
    "index_limits",
    "load_input",
    "mark_cold",
    "parameter_position",
    "parameter_roles",
    "walk",
]
