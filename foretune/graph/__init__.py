"""Whole graphs: simplification, extraction of workloads, compilation, artifacts."""

from foretune.graph._verify import Verification, compare_outputs, default_tolerance, verify
from foretune.graph.artifact import Artifact, require_compiler
from foretune.graph.compile import compile_model, compile_workload
from foretune.graph.extract import Extraction, extract, extract_workloads
from foretune.graph.simplify import simplify

__all__ = [
    "Artifact",
    "Extraction",
    "Verification",
    "compare_outputs",
    "compile_model",
    "compile_workload",
    "default_tolerance",
    "extract",
    "extract_workloads",
    "require_compiler",
    "simplify",
    "verify",
]
