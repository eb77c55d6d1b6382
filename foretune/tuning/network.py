"""What is known of a network as a whole, from its proof to what ships."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from foretune.tuning.contenders import Trying

if TYPE_CHECKING:
    from foretune.graph import Verification

DEFAULT, TUNED, NOTHING = "default", "tuned", ""


@dataclass(frozen=True)
class Network:
    """What is known of a network as a whole; seconds are of one call, as deployed.

    Attributes:
        original: Name of the engine that runs the original; empty if there is none.
        original_s, default_s, tuned_s: Of the original, of the network with default schedules, and
            of the tuned one; None where it was not timed.
        shipped: ``"tuned"`` or ``"default"``: which of them the artifact is; empty where neither
            computes what the original does.
        max_abs_error, max_relative_error, tolerance, inputs: How far its outputs are from the
            original's, how far they may be, and on how many inputs that was seen; None and 0 where
            it cannot run on this machine.
        judged_by: Who judged what differed by more than the tolerance; ``"tolerance"`` if nothing
            did, empty if nothing was compared.
        left_out: Names of the sets of inputs that were not compared, and why: the original refuses
            them, for example.
        passes: What became of each pass: objects of ``network.passes`` in ``foretune.tune/1``.
        plan: What passes with a choice chose: pass, then operator, to choice.
        plans: What became of the search for it; None where none was wanted.
        tried: What became of the contenders that were tried in the network.
        tried_gain: How many times as fast the network is with those that were faster, all of them,
            as without, where it ships with them; None otherwise.
        proof_s: Seconds that proving, and concluding, took.
        fault: Why a tuned network that was compiled, or nothing at all, was not shipped; empty if
            it was.
        wrong: Whether that is because it computes something else than the original.
    """

    original: str = ""
    original_s: float | None = None
    default_s: float | None = None
    tuned_s: float | None = None
    shipped: str = DEFAULT
    max_abs_error: float | None = None
    max_relative_error: float | None = None
    tolerance: float | None = None
    inputs: int = 0
    judged_by: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    passes: Sequence[Mapping[str, Any]] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)
    plans: Mapping[str, Any] | None = None
    tried: Sequence[Trying] = ()
    tried_gain: float | None = None
    proof_s: float = 0.0
    fault: str = ""
    wrong: bool = False

    @property
    def shipped_s(self) -> float | None:
        """Seconds of the one that is shipped."""
        return {TUNED: self.tuned_s, DEFAULT: self.default_s}.get(self.shipped)

    def checked(self, check: Verification) -> Network:
        """With the outcome of a comparison; NaN, which JSON has not, becomes None."""
        return replace(
            self,
            max_abs_error=_finite(check.max_abs_error),
            max_relative_error=_finite(check.max_relative_error),
            tolerance=check.tolerance,
            inputs=len(check.inputs),
            judged_by=check.judged_by,
            left_out=check.left_out,
        )

    def to_json(self) -> dict[str, Any]:
        """The object ``network`` of ``foretune.tune/1``."""
        return {
            "original": self.original or None,
            "original_s": self.original_s,
            "default_s": self.default_s,
            "tuned_s": self.tuned_s,
            "shipped": self.shipped or None,
            "max_abs_error": self.max_abs_error,
            "max_relative_error": self.max_relative_error,
            "tolerance": self.tolerance,
            "inputs": self.inputs,
            "judged_by": self.judged_by or None,
            "left_out": dict(self.left_out),
            "passes": [dict(report) for report in self.passes],
            "plan": dict(self.plan),
            "plans": None if self.plans is None else dict(self.plans),
            "tried": [each.to_json() for each in self.tried],
            "tried_gain": self.tried_gain,
            "proof_s": self.proof_s,
            "fault": self.fault or None,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
