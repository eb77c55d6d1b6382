"""Features of the stores of a scheduled program: TVM's 164 columns, one row for each store.

- ``_columns``: the columns.
- ``_extract``: reads them from programs, which are made for it.
- ``formulas``: computes them from decisions; asked for, it loads PyTorch and ``foretune.symbolic``.
- ``cache``: keeps what was read, from either source.
"""

from foretune.features.stores._columns import FEATURE_VERSION, PER_STORE, columns
from foretune.features.stores._extract import extract_per_store, extract_untransformed
from foretune.features.stores.cache import (
    SOURCES,
    Extractor,
    add_rows,
    candidate_rows,
    program_rows,
    read_rows,
    require_source,
)

__all__ = [
    "FEATURE_VERSION",
    "PER_STORE",
    "SOURCES",
    "Extractor",
    "add_rows",
    "candidate_rows",
    "columns",
    "extract_per_store",
    "extract_untransformed",
    "program_rows",
    "read_rows",
    "require_source",
]
