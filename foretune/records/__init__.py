"""Records of measured candidates: the journal, queries and interchange."""

from foretune.records._record import Record
from foretune.records.journal import Journal, SkippedLine, fastest

__all__ = ["Journal", "Record", "SkippedLine", "fastest"]
