"""Plans: the vector of graph decisions of a whole network, searched like schedules are.

Reading order: ``links`` says which calls of different passes are one operator; ``network`` walks a
network through the passes with a plan; ``space`` is all of its plans; ``encode`` makes graphs of
TpuGraphs of them; ``kernels``, ``_worker`` and ``measurer`` time them; ``collector`` and ``pack``
collect them (``foretune graph collect``).
"""

from foretune.plans.collector import Collection, PlanCollector, seconds_of
from foretune.plans.encode import NetworkGraph, configurable, configurations, graph_of
from foretune.plans.kernels import Kernels, proposed_first
from foretune.plans.measurer import PlanMeasurer
from foretune.plans.model import LinearPlans
from foretune.plans.network import PlanNetwork
from foretune.plans.pack import pack
from foretune.plans.space import PlanCandidate, PlanSketch, PlanSpace

__all__ = [
    "Collection",
    "Kernels",
    "LinearPlans",
    "NetworkGraph",
    "PlanCandidate",
    "PlanCollector",
    "PlanMeasurer",
    "PlanNetwork",
    "PlanSketch",
    "PlanSpace",
    "configurable",
    "configurations",
    "graph_of",
    "pack",
    "proposed_first",
    "seconds_of",
]
