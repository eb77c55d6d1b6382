"""Collecting training data: measure many schedules of many workloads on several hardware variants.

``Collector`` visits the groups of a ``Plan`` and keeps every record in a journal; ``pack`` writes
the journal as a data set; ``audit`` measures a part of it again, hours later; ``reread`` measures
again what something disturbed.

``plan`` says what, ``collector`` measures it, ``command`` is ``foretune collect``.
"""

from foretune.collect.audit import Audit, audit, log_ratios, measured_twice, summarise_audit
from foretune.collect.collector import COLLECT_POLICY, Collector
from foretune.collect.command import collect_command
from foretune.collect.pack import pack
from foretune.collect.plan import EVOLVED, PREDICTED, SCRATCH, UNIFORM, Plan, host_variants, plan
from foretune.collect.reread import reread

__all__ = [
    "COLLECT_POLICY",
    "EVOLVED",
    "PREDICTED",
    "SCRATCH",
    "UNIFORM",
    "Audit",
    "Collector",
    "Plan",
    "audit",
    "collect_command",
    "host_variants",
    "log_ratios",
    "measured_twice",
    "pack",
    "plan",
    "reread",
    "summarise_audit",
]
