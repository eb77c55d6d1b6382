"""Training data: measured programs in groups, our own and those that others published.

Our own data set is a directory of Parquet files with a schema version, units and environment:

=====================  ===========================================================================
``dataset.json``       schema, units, hardware, environments (versions and measurement policy)
``workloads.parquet``  one row per workload: key, name, operator kind, flops, program
``sketches.parquet``   one row per sketch of a workload on a hardware, so that candidates are made
                       without asking TVM for the space again
``records-*.parquet``  one row per measurement; decisions as one flat list of integers
=====================  ===========================================================================

``foretune.dataset.readers`` reads what others wrote.

``_group`` is the one interface of all training data. ``_schema`` has the layout, ``_read``,
``_write`` and ``_place`` the directory, ``_dataset`` makes groups of it; ``readers`` is a room.
"""

from foretune.dataset._dataset import AUDIT, Dataset, StoredWorkload, is_valid
from foretune.dataset._group import Group, Program, judgeable
from foretune.dataset._read import is_dataset, load, read_dataset
from foretune.dataset._write import write_dataset

__all__ = [
    "AUDIT",
    "Dataset",
    "FloatArray",
    "Group",
    "Program",
    "StoredWorkload",
    "is_dataset",
    "is_valid",
    "judgeable",
    "load",
    "read_dataset",
    "write_dataset",
]
