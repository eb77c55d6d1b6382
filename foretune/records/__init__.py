"""Records of measured candidates: the journal, queries and interchange."""

from foretune.records._record import Record
from foretune.records.journal import Journal, SkippedLine
from foretune.records.queries import (
    CONFIRM,
    UNTUNED,
    TimeSplit,
    best_of_each,
    counts_by_status,
    failure_messages,
    fastest,
    is_trial,
    merge,
    print_info,
    spent_trials,
    time_split,
    top,
)

__all__ = [
    "CONFIRM",
    "UNTUNED",
    "Journal",
    "Record",
    "SkippedLine",
    "TimeSplit",
    "best_of_each",
    "counts_by_status",
    "failure_messages",
    "fastest",
    "is_trial",
    "merge",
    "print_info",
    "spent_trials",
    "time_split",
    "top",
]
