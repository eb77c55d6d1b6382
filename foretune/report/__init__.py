"""Reports: live progress, terminal tables and the HTML page.

``progress`` is live, ``tables`` are for the terminal, ``html`` is the page, with ``_charts``. In
words: ``_network``, ``_failures``, ``_language_model``, ``_reused``; ``_units`` writes quantities.
"""

from foretune.report.html import write_report
from foretune.report.progress import TuneProgress
from foretune.report.tables import (
    print_comparison,
    print_devices,
    print_hardware,
    print_proposal,
    print_summary,
    summary_table,
)

__all__ = [
    "TuneProgress",
    "print_comparison",
    "print_devices",
    "print_hardware",
    "print_proposal",
    "print_summary",
    "summary_table",
    "write_report",
]
