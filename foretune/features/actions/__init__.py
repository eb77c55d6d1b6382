"""Features of schedules from their decisions or actions alone: no program is made.

- ``_schedule``: decisions as columns of numbers, and what they say before anything is measured.
- ``_features``: the columns, section by section; what a section needs for itself stands in a file
  of its own: ``_footprints`` (bytes that tiles touch), ``_generated`` (what the compiler makes of a
  tile), ``_foreign`` (programs of others).
- ``_blocks``: the untransformed program; ``_shared``: what all sections of a sketch read.
"""

from foretune.features.actions._features import (
    ACTION_FEATURE_VERSION,
    MACHINE_FEATURE_VERSION,
    action_columns,
    action_features,
    machine_features,
)
from foretune.features.actions._schedule import SUMMARY_COLUMNS, machine_fit, schedule_summary

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
