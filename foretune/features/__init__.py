"""Features of candidates: named, versioned columns with units."""

from foretune.features.per_store import (
    FEATURE_VERSION,
    PER_STORE,
    Column,
    columns,
    extract_per_store,
)

__all__ = ["FEATURE_VERSION", "PER_STORE", "Column", "columns", "extract_per_store"]
