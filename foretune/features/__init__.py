"""Features of candidates: named, versioned columns with units."""

from foretune.features.actions import (
    ACTION_FEATURE_VERSION,
    MACHINE_FEATURE_VERSION,
    action_columns,
    action_features,
    machine_features,
)
from foretune.features.cache import SOURCES, Extractor, candidate_rows, program_rows, require_source
from foretune.features.per_store import (
    FEATURE_VERSION,
    PER_STORE,
    Column,
    columns,
    extract_per_store,
    extract_untransformed,
)
from foretune.features.schedule import machine_fit
from foretune.features.tokens import TOKEN_VERSION, action_tokens, token_vocabulary

__all__ = [
    "ACTION_FEATURE_VERSION",
    "FEATURE_VERSION",
    "MACHINE_FEATURE_VERSION",
    "PER_STORE",
    "SOURCES",
    "TOKEN_VERSION",
    "Column",
    "Extractor",
    "action_columns",
    "action_features",
    "action_tokens",
    "candidate_rows",
    "columns",
    "extract_per_store",
    "extract_untransformed",
    "machine_features",
    "machine_fit",
    "program_rows",
    "require_source",
    "token_vocabulary",
]
