"""What bounds a kernel, how far from that limit it is, and what to try.

``of_journal``, ``of_artifact`` and ``of_source`` find the kernels of a work directory, an artifact
or a model, ``explain`` says what is to be said of one, ``print_explanations`` shows it.

``_sources`` finds kernels, ``_explain`` goes from one to its explanation (``_explanation``), with
``_counters`` (by ``_calls``, in a child process), ``_assumed`` figures, ``_changes`` that would pay
and ``_advice`` in words. ``_print`` shows it.
"""

from foretune.explain._assumed import MEASURABLE, assumed
from foretune.explain._counters import NoCountersError, counted
from foretune.explain._explain import Kernel, explain, explain_each, hardware_called
from foretune.explain._explanation import SCHEMA, Advice, Explanation
from foretune.explain._print import bound_in_words, print_explanations
from foretune.explain._sources import of_artifact, of_journal, of_source

__all__ = [
    "MEASURABLE",
    "SCHEMA",
    "Advice",
    "Explanation",
    "Kernel",
    "NoCountersError",
    "assumed",
    "bound_in_words",
    "counted",
    "explain",
    "explain_each",
    "hardware_called",
    "of_artifact",
    "of_journal",
    "of_source",
    "print_explanations",
]
