"""LLMTuner in a run: what is known of behaviour on any device, corrected by the run's measurements.

Idea: a trained ranker (``foretune.cost.behaviour.ranker``) says what to expect of a candidate from
how it would behave on the device at hand, and trees learn during the run how the workload differs,
as for every pretrained model (``foretune.cost.pretrained``).

With scores by formulas every candidate that is asked about is scored: that is cheap, and no program
is made. Scores of a language model cost seconds, so that candidates are ranked by formulas (the
first stage) and only those from which a batch is about to be drawn are shown to it (the second):
``look``, which strategies ask before they choose.

As in LLMTuner, the first stage may be learned, too (``first="classifier"``): then the population is
ranked by the shipped classifier, those about to be measured are scored by formulas, and then by the
language model where there is one. What was looked at stands before what was not.

Of a program that the language model says nothing usable about, the first opinion stays as it is.
Once the model is left out, there is no closer look any more, and the run goes on as with formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import FloatArray
from foretune._options import require_type
from foretune.cost import rankers
from foretune.cost._base import Abilities, CostModel
from foretune.cost._opinions import opinion
from foretune.cost._prior import RankerPrior
from foretune.cost._ranker import Ranker
from foretune.cost._ranker_file import read_name
from foretune.cost.behaviour.composition import lift
from foretune.cost.behaviour.ranker import BehaviourRanker
from foretune.cost.behaviour.scores import SOURCES, AnalyticScores, ScoreSource, open_source
from foretune.cost.pretrained import PretrainedModel, remembered
from foretune.cost.shipped import shipped
from foretune.errors import BadInputError, unknown_name

if TYPE_CHECKING:
    from foretune.hardware import Hardware
    from foretune.llm import Session
    from foretune.space import Candidate

WEIGHTS = "behaviour"
CLASSIFIER = "classifier"
FIRST = (AnalyticScores.name, CLASSIFIER)
_KEEP = 32


def behaviour(
    *,
    rng: np.random.Generator,
    hardware: Hardware | None = None,
    ranker: Ranker | Path | str = WEIGHTS,
    scores: str = "analytic",
    llm: Session | None = None,
    model: str | None = None,
    keep: int = _KEEP,
    first: str = AnalyticScores.name,
    **options: Any,
) -> CostModel[Candidate]:
    """Behaviour on the device at hand, trained on others, with trees on top of it (LLMTuner).

    Args:
        rng: Seeds the trees of the run.
        hardware: What the candidates will run on; a CPU if None.
        ranker: A trained ranker ``behaviour``, a file of one, or the name of weights that come with
            the package.
        scores: Where scores are from: ``"analytic"``, ``"llm"``, or ``"hf"`` of the
            research package.
        llm: For ``scores="llm"``, the session with the language model.
        model: For ``scores="hf"``, the folder of a tuned model.
        keep: Candidates per batch that the second stage scores.
        first: Who ranks the population: ``"analytic"``, scores by formulas, or ``"classifier"``,
            the one that comes with the package; formulas then belong to the second stage.
        options: As ``PretrainedModel`` takes them.

    Raises:
        BadInputError: There are no trained weights for the kind of hardware, or scores are asked
            for without the model that gives them.
    """
    require_type("cost model 'behaviour'", "keep", keep, int)
    if keep < 1:
        raise BadInputError(f"cost model 'behaviour': keep >= 1 must hold, but got {keep}")
    SOURCES.require(scores)
    if first not in FIRST:
        raise unknown_name("first stage of the cost model 'behaviour'", first, FIRST)
    kind = "llvm" if hardware is None else hardware.kind
    trained = _trained(ranker, kind)
    source = _source(scores, llm, model)
    before = _classifier(kind) if first == CLASSIFIER else None
    return BehaviourModel(
        rng=rng,
        hardware=hardware,
        ranker=trained,
        source=source,
        keep=keep,
        first=before,
        **options,
    )


def _classifier(kind: str) -> Ranker:
    made = shipped(CLASSIFIER, kind)
    if made is None:
        raise BadInputError(
            f"cost model 'behaviour': first={CLASSIFIER} is the one that comes with the package, "
            f"but none does for targets of kind {kind!r}: leave it out"
        )
    return made


def _trained(ranker: Ranker | Path | str, kind: str) -> BehaviourRanker:
    made: Ranker | None
    if isinstance(ranker, Ranker):
        made = ranker
    elif isinstance(ranker, Path) or ranker.endswith(".npz"):
        # The first stage would need PyTorch, and what formulas say is at hand.
        parts: dict[str, Any] = {"stage": "2", "threads": 1}
        is_study = read_name(Path(ranker)).startswith(f"{BehaviourRanker.name}:")
        made = (rankers if is_study else BehaviourRanker).load(Path(ranker), **parts)
    else:
        made = shipped(ranker, kind)
    if not isinstance(made, BehaviourRanker):
        raise BadInputError(
            f"no trained weights of 'behaviour' for targets of kind {kind!r} come with this "
            "installation: train some with `foretune train --ranker behaviour` and give the file, "
            "or choose the cost model 'gbdt'"
            if made is None
            else f"the cost model 'behaviour' is made of a ranker 'behaviour', but got {made!r}"
        )
    return made


def _source(scores: str, llm: Session | None, model: str | None) -> ScoreSource | None:
    """Where the second stage has its scores from; None: there is no other than formulas."""
    if scores == AnalyticScores.name:
        if llm is not None or model is not None:
            raise BadInputError(
                "cost model 'behaviour': a language model is asked with scores=llm or scores=hf, "
                "but scores=analytic: leave one of them out"
            )
        return None
    if scores == "llm" and llm is not None:
        from foretune.cost.behaviour.llm_scores import LlmScores

        return LlmScores(llm)
    return open_source(scores, model)


class LookedPrior(RankerPrior):
    """What a ranker says of all, and what closer looks say of some.

    Args:
        first: Says what to expect of everything.
        formulas: Asked first at a closer look; None: ``first`` is these.
        second: Asked last at a closer look; None: nobody is.
        remembered: Candidates of which it is kept what ``first`` said.
    """

    def __init__(
        self,
        first: Ranker,
        formulas: BehaviourRanker | None,
        second: BehaviourRanker | None,
        remembered: int,
    ) -> None:
        super().__init__(first, remembered)
        self._formulas, self._second = formulas, second
        self._looked: dict[tuple[str, str], float] = {}
        """What a closer look said of candidates, by workload and key."""
        self._bounds: dict[str, tuple[float, float]] = {}
        """Of those that were looked at in a workload the most that ``first`` said, and the least
        that was said after it."""

    @property
    def source(self) -> ScoreSource | None:
        """What a closer look asks last; None where there is none."""
        return None if self._second is None else self._second.source

    @property
    def looks(self) -> bool:
        """Whether there is somebody to ask at a closer look."""
        asks = self.source is not None and not self.source.left_out
        return asks or self._formulas is not None

    def look(self, candidates: Sequence[Candidate]) -> None:
        """Has what closer looks say stand for these candidates from now on."""
        if self._formulas is not None and candidates:
            self._say(candidates, opinion(self._formulas, candidates))
        if self._second is not None and candidates:
            if self._second.source.left_out:
                counts = self._second.source.counts
                counts.programs += len(candidates)
                counts.fallback += len(candidates)
            else:
                self._ask(self._second, candidates)

    def _ask(self, second: BehaviourRanker, candidates: Sequence[Candidate]) -> None:
        before, after = self._last(candidates), opinion(second, candidates)
        told = ~np.isnan(before) & ~np.isnan(after)
        if not told.any():
            return
        # Of two scales only differences count: what others were told stays comparable.
        after += (before[told] - after[told]).mean()
        self._say(candidates, np.where(told, after, np.nan))

    def _say(self, candidates: Sequence[Candidate], opinions: FloatArray) -> None:
        """Has opinions, shape (n,), stand for these candidates; NaN: there is none."""
        first = super().alone(candidates).tolist()
        for candidate, before, value in zip(candidates, first, opinions.tolist(), strict=True):
            if not math.isnan(before + value):
                workload = candidate.workload.key
                self._looked[workload, candidate.key] = value
                most, least = self._bounds.get(workload, (before, value))
                self._bounds[workload] = max(most, before), min(least, value)

    def _last(self, candidates: Sequence[Candidate]) -> FloatArray:
        """The last that was said of each, by whichever stage."""
        scores = super().alone(candidates)
        for row, candidate in enumerate(candidates):
            key = candidate.workload.key, candidate.key
            scores[row] = self._looked.get(key, scores[row])
        return scores

    def alone(self, candidates: Sequence[Candidate]) -> FloatArray:
        """The same; with ``formulas``, what was looked at before what it was chosen from."""
        scores = self._last(candidates)
        if self._formulas is not None:
            for row, candidate in enumerate(candidates):
                workload = candidate.workload.key
                if (workload, candidate.key) in self._looked:
                    scores[row] += lift(*self._bounds[workload])
        return scores


class BehaviourModel(PretrainedModel):
    """A trained ranker of behaviour, corrected by trees, with a closer look where there is one.

    Args:
        rng: Seeds the trees; drawn from once.
        hardware: What the candidates will run on. A CPU if None.
        ranker: The trained ranker; its second stage is asked about everything, unless there is a
            ``first``, then about what is looked at more closely.
        source: Scores for a closer look; None: there is none but ``ranker``.
        keep: Candidates per closer look.
        first: Ranks everything in place of ``ranker``.
        options: As ``PretrainedModel`` takes them.

    Raises:
        BadInputError: The ranker knows nothing of such scores, or an option makes no sense.
    """

    def __init__(
        self,
        *,
        rng: np.random.Generator,
        hardware: Hardware | None = None,
        ranker: BehaviourRanker,
        source: ScoreSource | None = None,
        keep: int = _KEEP,
        first: Ranker | None = None,
        **options: Any,
    ) -> None:
        formulas = ranker.staged("2")
        second = None if source is None else ranker.staged("2", source, fills=False)
        before = first or formulas
        after = None if first is None else formulas
        self._stages = LookedPrior(before, after, second, remembered(options))
        self._keep = keep
        super().__init__(rng=rng, hardware=hardware, ranker=before, prior=self._stages, **options)

    @property
    def abilities(self) -> Abilities:
        """It looks closer at ``keep`` candidates while there is somebody to ask."""
        return replace(super().abilities, closer=self._keep if self._stages.looks else 0)

    @property
    def source(self) -> ScoreSource | None:
        """What a closer look asks; None where there is none."""
        return self._stages.source

    @property
    def status(self) -> dict[str, Any]:
        """What became of the questions of closer looks."""
        return {} if self.source is None else self.source.status

    def look(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Scores after a closer look, shape (n,); they stand for these candidates from now on."""
        self._stages.look(candidates)
        return self.predict(candidates).score
