"""The end of a run: the network that ships is compiled, compared, timed and saved."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune.tuning.contenders import contenders
from foretune.tuning.explained import explained_kernels
from foretune.tuning.proof import Proof
from foretune.tuning.result import TuneResult
from foretune.tuning.tuner import Tuner

if TYPE_CHECKING:
    from foretune.graph import Artifact

logger = logging.getLogger(__name__)


def conclude(
    proof: Proof, result: TuneResult, tuner: Tuner, output: str | Path | None
) -> TuneResult:
    """The result with the network that ships.

    Ctrl-C leaves the proven network. A tuned artifact of the same network, of an earlier run or of
    a tuner beside this one, stays in its place. A network that turns out to be wrong leaves none.

    Args:
        proof: Of the network.
        result: Of tuning its kernels.
        tuner: That has run.
        output: Where the artifact is saved; nowhere if None.
    """
    before_s = proof.network.proof_s
    shipping = _Shipping(proof, result, tuner, None if output is None else Path(output))
    # Asked before the conclusion, as when time was reserved: timing side by side changes what is
    # expected, and a step that no time was left for would begin, or one that there is would not.
    tries = proof.can_try(tuner.budget.reserve_s)
    shipping.decide()
    if tries:
        shipping.improve()
    spent_s = dict(result.spent_s)
    spent_s["proof_s"] = spent_s.get("proof_s", 0.0) + proof.network.proof_s - before_s
    return replace(
        result,
        network=proof.network,
        artifact=shipping.artifact,
        kept=shipping.kept,
        interrupted=shipping.interrupted,
        elapsed_s=tuner.spending.elapsed_s,
        spent_s=spent_s,
    )


class _Shipping:
    """What ships of a network, step by step.

    Attributes:
        artifact: What ships so far; None where nothing does.
        kept: The manifest of a tuned artifact of another run that stays in its place.
        interrupted: Whether Ctrl-C has ended the run, or one of the steps.
    """

    def __init__(self, proof: Proof, result: TuneResult, tuner: Tuner, place: Path | None) -> None:
        self.artifact: Artifact | None = None
        self.kept: Mapping[str, Any] | None = None
        self.interrupted = result.interrupted
        self._proof = proof
        self._result = result
        self._tuner = tuner
        self._place = place

    def decide(self) -> None:
        """The tuned network or the proven one, saved."""
        proof, say = self._proof, self._tuner.progress.phase
        try:
            self.artifact = proof.conclude(self._result.chosen, self.interrupted, say)
        except KeyboardInterrupt:
            self.interrupted, self.artifact = True, proof.default
        if self.artifact is None:
            if self._place is not None:
                proof.default.withdraw(self._place)
            return
        self._note_kernels(self.artifact)
        if self._place is not None:
            self.kept = _save(self.artifact, self._place, proof)

    def improve(self) -> None:
        """With contenders that are faster in the network itself, if there are any."""
        others = contenders(self._tuner.tasks)
        if self.artifact is None or not others or self.interrupted:
            return
        say = self._tuner.progress.phase
        try:
            better = self._proof.improve(self.artifact, self._result.chosen, others, say)
        except KeyboardInterrupt:
            self.interrupted, better = True, self.artifact
        if better is not self.artifact and self._place is not None:
            better.manifest["kernels"] = list(self._result.kernels)
            better.save(self._place)
            self.kept = None
        self.artifact = better

    def _note_kernels(self, artifact: Artifact) -> None:
        """What bounds its kernels goes with an artifact: those that it has."""
        if artifact is self._proof.default:
            tasks, hardware = self._tuner.tasks, self._proof.hardware
            artifact.manifest["kernels"] = explained_kernels(tasks, hardware, default=True)
        else:
            artifact.manifest["kernels"] = list(self._result.kernels)


def _save(artifact: Artifact, place: Path, proof: Proof) -> Mapping[str, Any] | None:
    """Saves what ships; the manifest of a tuned artifact of another run that stays in its place.

    Where this run's tuned network is wrong, an earlier one may be, too: the default replaces it.
    """
    if artifact.manifest["tuned"] or proof.network.wrong:
        artifact.save(place)
        return None
    kept = artifact.save_unless_tuned(place)
    if kept is not None:
        logger.warning("%s stays as another run left it: the same network, tuned", place)
    return kept
