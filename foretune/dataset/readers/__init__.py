"""Readers for measurements that others published: every format becomes groups.

============  ================================================================================
ansor         Ansor (``auto_scheduler``) logs, one JSON record a line
autotvm       AutoTVM logs, one JSON record a line
kernel_tuner  Kernel Tuner's cache files, finished or not
metaschedule  MetaSchedule's JSON databases of any TVM: programs need not be rebuilt
tenset        TenSet's folder of Ansor logs, one folder per hardware
============  ================================================================================

Files may be compressed with gzip; the formats of lines also come in folders and tar archives. None
of the readers needs TVM.
"""

from foretune.dataset.readers._read import FORMATS, Reading, names_of, read

__all__ = ["FORMATS", "Reading", "names_of", "read"]
