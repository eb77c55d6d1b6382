"""Records of measured candidates: the journal, queries and interchange."""

from foretune.records._record import Record

__all__ = ["Record"]
