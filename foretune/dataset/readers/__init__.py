"""Readers for measurements that others published: every format becomes groups.

============  ================================================================================
ansor         Ansor (``auto_scheduler``) logs, one JSON record a line
autotvm       AutoTVM logs, one JSON record a line, or in columns of a Parquet file
kernel_tuner  Kernel Tuner's cache files, finished or not
metaschedule  MetaSchedule's JSON databases of any TVM: programs need not be rebuilt
miopen        MIOpen's find database in Parquet files: seconds of solvers of convolutions
tenset        TenSet's folder of Ansor logs, one folder per hardware
============  ================================================================================

Files may be compressed with gzip; the formats of lines also come in folders and tar archives,
caches and Parquet files in folders. What lies beside measurements in a folder, a licence for
example, is counted and left out. None of the readers needs TVM.

A group knows its device where the caller, the log or the file's name says one that
``foretune.hardware.device`` knows.

``_read`` is the door and finds out the format; ``ansor``, ``tenset``, ``autotvm``,
``kernel_tuner``, ``metaschedule`` and ``miopen`` read one each. ``_streams`` opens files and
archives, ``_parquet`` checks rows, ``_gathering`` is what all do alike, ``_kinds`` guesses operator
kinds.
"""

from foretune.dataset.readers._read import FORMATS, Reading, names_of, read

__all__ = ["FORMATS", "Reading", "names_of", "read"]
