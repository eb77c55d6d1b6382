"""Programs and machines described: as nests of loops, in words, and by their behaviour.

``_nests`` holds what everything here is made of; ``_behaviour`` the schema of scores.
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
