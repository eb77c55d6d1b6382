"""Features of schedules from their decisions or actions alone: no program is made.

- ``_columns``: the table of columns, in sections. A new one is a row there, and a line where its
  section is filled.
- ``_features``: rows of programs, put together from the sections.
- Who fills the sections: ``_sections`` (workload and decisions), ``_footprints`` (bytes that tiles
  touch), ``_generated`` (what the compiler makes of a tile), ``_machine`` (the machine, and sizes
  beside its), ``_fit`` (what is said before anything is measured), ``_foreign`` (what others ran).
- ``_decided``: decisions as columns of numbers; ``_blocks``: the untransformed program;
  ``_shared``: both, for the sections.

``_tables``: names and sizes that its sections share.
"""

from foretune.features.actions._columns import (
    ACTION_FEATURE_VERSION,
    MACHINE_FEATURE_VERSION,
    SUMMARY_COLUMNS,
    action_columns,
)
from foretune.features.actions._features import action_features
from foretune.features.actions._fit import machine_fit, schedule_summary
from foretune.features.actions._machine import machine_features

__all__ = [
    "ACTION_FEATURE_VERSION",
    "MACHINE_FEATURE_VERSION",
    "SUMMARY_COLUMNS",
    "action_columns",
    "action_features",
    "machine_features",
    "machine_fit",
    "schedule_summary",
]
