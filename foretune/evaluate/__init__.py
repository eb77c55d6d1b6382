"""Judging learned models: splits that do not flatter, metrics with intervals, floors.

``evaluate`` cross-validates a ranker and gives the ``foretune.eval/1`` object; ``train`` makes
weights that know what they were trained on.

``offline`` is the loop; ``data`` and ``exclusions`` say what may be read, ``splits`` and
``families`` who is tested on what, ``metrics``, ``floors`` and ``summary`` what comes of it.
``weights`` trains what ships, ``fingerprints`` says of which data, ``_print`` is for the terminal.
"""

from foretune.evaluate._print import print_evaluation
from foretune.evaluate.data import (
    MeasuredData,
    called,
    keep_judgeable,
    measured_everywhere,
    read_data,
    select,
    thinned,
)
from foretune.evaluate.exclusions import refuse_excluded
from foretune.evaluate.families import families, family
from foretune.evaluate.floors import random_order
from foretune.evaluate.metrics import PICKS, GroupMetrics, judge
from foretune.evaluate.offline import NONE, SCHEMA, check_request, evaluate
from foretune.evaluate.splits import Split, carve, cross_validation
from foretune.evaluate.summary import Bootstrap, curve, summarise
from foretune.evaluate.weights import (
    Provenance,
    check_output,
    provenance_path,
    read_provenance,
    train,
)

__all__ = [
    "NONE",
    "PICKS",
    "SCHEMA",
    "Bootstrap",
    "GroupMetrics",
    "MeasuredData",
    "Provenance",
    "Split",
    "called",
    "carve",
    "check_output",
    "check_request",
    "cross_validation",
    "curve",
    "evaluate",
    "families",
    "family",
    "judge",
    "keep_judgeable",
    "measured_everywhere",
    "print_evaluation",
    "provenance_path",
    "random_order",
    "read_data",
    "read_provenance",
    "refuse_excluded",
    "select",
    "summarise",
    "thinned",
    "train",
]
