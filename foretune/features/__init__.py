"""Features of candidates: named, versioned columns with units.

Three rooms, by what a row stands for; none needs another's rows:

- ``stores``: a row for each buffer that the scheduled program stores to, TVM's columns.
- ``actions``: a row for a candidate, from its decisions.
- ``tokens``: a row for each scheduling action.

``table`` has what a column is, ``memory`` keeps rows that were read once.
"""

from foretune.features.actions import (
    ACTION_FEATURE_VERSION,
    MACHINE_FEATURE_VERSION,
    action_columns,
    action_features,
    machine_features,
    machine_fit,
)
from foretune.features.stores import (
    FEATURE_VERSION,
    PER_STORE,
    SOURCES,
    Extractor,
    candidate_rows,
    columns,
    extract_per_store,
    extract_untransformed,
    program_rows,
    require_source,
)
from foretune.features.table import Column
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
