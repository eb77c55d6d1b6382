"""Programs and machines described: as nests of loops, in words, and by their behaviour.

``_nests`` holds what everything here is made of; ``_behaviour`` the schema of scores.

Where nests come from: ``_candidates`` (with ``_form``: no program is made), ``_programs`` (of
modules), ``logged`` (of a log); ``_joining`` makes few batches of many. What they are made of:
``_expressions``, ``_affine``, ``_conditions``. How they behave: ``_analytic`` on any device;
``cpu`` with ``_cpu_machine``, ``_cpu_loops``, ``_cpu_body``, ``_cpu_code``, ``_cpu_touched`` and
``_cpu_caches``; ``gpu`` with ``_gpu_kernel``, ``_gpu_launch``, ``_gpu_work``, ``_gpu_lanes``,
``_gpu_arrays``, ``_gpu_footprint`` and ``_gpu_traffic``. In words: ``text``, ``words``;
``data_sheet`` reads a device's.
"""

from foretune.describe._analytic import behaviours
from foretune.describe._behaviour import (
    LIMITS,
    METRICS,
    SCHEMA_VERSION,
    Behaviours,
    Metric,
)
from foretune.describe._candidates import nests_of
from foretune.describe._cpu_machine import machine_of
from foretune.describe._joining import joined
from foretune.describe._nests import (
    BLOCK,
    KIND_NAMES,
    NESTS_VERSION,
    PARALLEL,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    VTHREAD,
    Access,
    Buffer,
    Nests,
    Statement,
    Term,
    stacked,
)
from foretune.describe._programs import nests_of_program

__all__ = [
    "BLOCK",
    "KIND_NAMES",
    "LIMITS",
    "METRICS",
    "NESTS_VERSION",
    "PARALLEL",
    "SCHEMA_VERSION",
    "SERIAL",
    "THREAD",
    "UNROLLED",
    "VECTORIZED",
    "VTHREAD",
    "Access",
    "Behaviours",
    "Buffer",
    "Metric",
    "Nests",
    "Statement",
    "Term",
    "behaviours",
    "joined",
    "machine_of",
    "nests_of",
    "nests_of_program",
    "stacked",
]
