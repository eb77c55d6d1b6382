"""Records of measured candidates: stores, the journal file above all, queries and interchange.

``_record`` is the record, and the trial: a record with its candidate. ``standings`` says which
record counts, ``history`` what was tried, ``queries`` answers questions, ``replay`` measures out of
records. ``store`` is what a store promises: ``journal`` keeps it in a file (``_framing``),
``postgres`` on a server (``migrations``), ``bounded`` forgets, ``open`` finds one by its name.
``metaschedule_import``, ``metaschedule_export`` and ``trace_form`` exchange them with TVM.
"""

from foretune.records._record import (
    ALLOWED,
    CONFIRM,
    DEFAULT,
    KNOWLEDGE,
    UNTUNED,
    Record,
    Trial,
    settings_of,
)
from foretune.records.bounded import BoundedStore
from foretune.records.history import CountedTrial, History
from foretune.records.journal import Journal
from foretune.records.metaschedule_export import ExportOutcome, export_metaschedule
from foretune.records.metaschedule_import import ImportOutcome, import_metaschedule
from foretune.records.open import is_url, open_store
from foretune.records.queries import (
    TimeSplit,
    add_missing,
    best_of_each,
    counts_by_status,
    failure_messages,
    fastest,
    merge,
    print_info,
    spent_trials,
    time_split,
    top,
    with_candidates,
)
from foretune.records.replay import ReplayMeasurer
from foretune.records.standings import Standings, in_order
from foretune.records.store import Entry, SkippedLine, Store
from foretune.records.trace_form import TraceForm, TraceMatcher, matchers_of, trace_form

__all__ = [
    "ALLOWED",
    "CONFIRM",
    "DEFAULT",
    "KNOWLEDGE",
    "UNTUNED",
    "BoundedStore",
    "CountedTrial",
    "Entry",
    "ExportOutcome",
    "History",
    "ImportOutcome",
    "Journal",
    "Record",
    "ReplayMeasurer",
    "SkippedLine",
    "Standings",
    "Store",
    "TimeSplit",
    "TraceForm",
    "TraceMatcher",
    "Trial",
    "add_missing",
    "best_of_each",
    "counts_by_status",
    "export_metaschedule",
    "failure_messages",
    "fastest",
    "import_metaschedule",
    "in_order",
    "is_url",
    "matchers_of",
    "merge",
    "open_store",
    "print_info",
    "settings_of",
    "spent_trials",
    "time_split",
    "top",
    "trace_form",
    "with_candidates",
]
