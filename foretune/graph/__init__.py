"""Whole graphs: simplification, extraction of workloads, compilation, artifacts.

The way of a network: ``simplify`` runs ``passes`` and ``_lowering``, ``extract`` cuts workloads,
``_default`` schedules what is not tuned, ``compile`` and ``_assemble`` make code, ``linker`` links
it; ``prebuilt`` and ``variants`` compile a network anew around kernels that are built. What comes
out: ``artifact``, with ``_artifact_files``, ``_manifest``, ``_inputs``, ``_arguments``,
``_memory``, ``_threads`` and its ``_sample``. Whether that is right: ``_verify`` on
``_input_sets``, by ``_compare``, ``_tolerance``, ``_steps``, ``_exact`` and ``_judge``; ``_bisect``
finds where it is not.
"""

from foretune.graph._arguments import Arguments, arguments_of
from foretune.graph._artifact_files import artifact_files, require_free
from foretune.graph._bisect import Difference, first_difference
from foretune.graph._compare import (
    OutputDifference,
    compare_outputs,
    integer_distance,
    largest_difference,
    scale_of,
)
from foretune.graph._input_sets import InputSet, verification_inputs
from foretune.graph._manifest import read_manifest
from foretune.graph._sample import Sample, pack_arrays, read_inputs
from foretune.graph._steps import output_steps
from foretune.graph._tolerance import default_tolerance
from foretune.graph._verify import (
    CHAOS,
    Examination,
    Verification,
    examine,
    judge_outputs,
    merged,
    take_sample,
    verify,
)
from foretune.graph.artifact import Artifact, require_compiler
from foretune.graph.compile import compile_model, compile_workload, failing_kernels
from foretune.graph.extract import Extraction, as_workload, cut, extract
from foretune.graph.linker import linker_for
from foretune.graph.passes import PassReport
from foretune.graph.passes import names as pass_names
from foretune.graph.passes import require as require_passes
from foretune.graph.prebuilt import compile_prebuilt, kernels_of
from foretune.graph.simplify import Begun, Plan, Simplified, begin, finish, simplify
from foretune.graph.variants import compile_variants, entry_of

__all__ = [
    "CHAOS",
    "Arguments",
    "Artifact",
    "Begun",
    "Difference",
    "Examination",
    "Extraction",
    "InputSet",
    "OutputDifference",
    "PassReport",
    "Plan",
    "Sample",
    "Simplified",
    "Verification",
    "arguments_of",
    "artifact_files",
    "as_workload",
    "begin",
    "compare_outputs",
    "compile_model",
    "compile_prebuilt",
    "compile_variants",
    "compile_workload",
    "cut",
    "default_tolerance",
    "entry_of",
    "examine",
    "extract",
    "failing_kernels",
    "finish",
    "first_difference",
    "integer_distance",
    "judge_outputs",
    "kernels_of",
    "largest_difference",
    "linker_for",
    "merged",
    "output_steps",
    "pack_arrays",
    "pass_names",
    "read_inputs",
    "read_manifest",
    "require_compiler",
    "require_free",
    "require_passes",
    "scale_of",
    "simplify",
    "take_sample",
    "verification_inputs",
    "verify",
]
