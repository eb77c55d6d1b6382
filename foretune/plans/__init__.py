"""Plans: the vector of graph decisions of a whole network, searched like schedules are.

Reading order: ``links`` says which calls of different passes are one operator; ``network`` walks a
network through the passes with a plan; ``space`` is all of its plans; ``encode`` makes graphs of
TpuGraphs of them; ``kernels``, ``_worker`` and ``measurer`` time them; ``loop`` is the loop over
them, which learns by ``model``; ``standings`` says what all measurements make of a plan, and
``provenance`` what they were made with. ``collector`` and ``pack`` collect them (``foretune graph
collect``); ``prior`` is what a graph network learned of them, and ``choose`` searches the one that
ships (``foretune tune --plan-trials``).

Besides: ``_timing`` reads whole networks, ``files`` are what a collection is packed into,
``opcodes`` names operators as TpuGraphs does, ``command`` is the command line's.
"""

from foretune.plans.choose import PlanOutcome, search_plans
from foretune.plans.collector import Collection, PlanCollector
from foretune.plans.encode import NetworkGraph, configurable, configurations, graph_of
from foretune.plans.kernels import Kernels, proposed_first
from foretune.plans.loop import JOURNAL
from foretune.plans.measurer import PlanMeasurer
from foretune.plans.model import LinearPlans, Prior
from foretune.plans.network import PlanNetwork
from foretune.plans.pack import pack
from foretune.plans.prior import GraphPrior, calibrated, read_plan_model
from foretune.plans.space import PlanCandidate, PlanSketch, PlanSpace
from foretune.plans.standings import seconds_of

__all__ = [
    "JOURNAL",
    "Collection",
    "GraphPrior",
    "Kernels",
    "LinearPlans",
    "NetworkGraph",
    "PlanCandidate",
    "PlanCollector",
    "PlanMeasurer",
    "PlanNetwork",
    "PlanOutcome",
    "PlanSketch",
    "PlanSpace",
    "Prior",
    "calibrated",
    "configurable",
    "configurations",
    "graph_of",
    "pack",
    "proposed_first",
    "read_plan_model",
    "search_plans",
    "seconds_of",
]
