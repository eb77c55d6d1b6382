"""Cost models that learned from other workloads before their first measurement: parts, joined.

Idea: a ranker trained on a data set says what to expect of a schedule, the *prior*
(``foretune.cost._prior``); boosted trees, grown during the run, say how the workload at hand
differs, the *correction* (``foretune.cost.gbdt``). The score of a candidate is

    a * expected + n / (n + trust) * trees

where ``expected`` is the ranker's score in log2 slow-downs (its ``scale``), ``a`` how far that
explains the ``n`` programs measured so far, shrunk towards 1 while they are few (the ranker's
``strength`` says how few). So the first batch is informed, and a ranker that misleads on a workload
is forgotten there.

The *draft* learns in the same way: where no program is read it is that score itself; else what the
default ranker expects, times an ``a`` of its own.

With ``online=False`` nothing of this is learned: ``expected`` is the score, whatever is measured.
That is how rankers are compared in a search: what one of them lacks, trees would make up for.

``InformedModel`` is what the three parts have in common with one another. ``PretrainedModel`` makes
them of a ranker; ``foretune.cost.joined_model`` and ``foretune.cost.behaviour.model`` have priors
that look closer at some candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array, Float32Array, FloatArray
from foretune._options import require_type
from foretune.cost._base import Abilities, CostModel, Prediction
from foretune.cost._opinions import illegal_last
from foretune.cost._prior import Prior, RankerPrior, RulePrior, Weighed
from foretune.cost._ranker import Ranker
from foretune.cost.gbdt import GbdtConfig, GradientBoosting
from foretune.cost.shipped import DEFAULT, is_known, shipped, trained
from foretune.errors import BadInputError
from foretune.features import machine_fit, require_source
from foretune.space import Candidate

if TYPE_CHECKING:
    from foretune.features import Extractor
    from foretune.hardware import Hardware
    from foretune.records import Trial

_ITSELF = "ranker"
"""As ``draft``: the model itself."""
TRUST = 16.0
"""``GbdtConfig.trust`` here: a trained ranker is a better belief than ``machine_fit``."""
_OF_A_RANKER = {"draft", "online"}
"""Options of ``PretrainedModel`` that trees alone do not have."""


def gbdt(
    *, rng: np.random.Generator, hardware: Hardware | None = None, **options: Any
) -> CostModel[Candidate]:
    """Boosted trees on top of a trained ranker where one comes with the package.

    Without one for the kind of hardware, or without knowing the hardware (on a CPU, its vectors and
    caches; it is an x86-64), the trees start from ``machine_fit``: ``gbdt:scratch``. So do they
    where ``extract`` replaces the features, which no trained ranker knows.

    Args:
        rng: Seeds the trees.
        hardware: What the candidates will run on.
        options: As ``GradientBoosting`` takes them.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """
    foreign = {"extract", "prior", "aggregate"} & set(options)
    ranker = options.pop("ranker", None)
    if ranker is None and hardware is not None and is_known(hardware) and not foreign:
        ranker = shipped(DEFAULT, hardware.kind)
    if ranker is not None:
        return PretrainedModel(rng=rng, hardware=hardware, ranker=ranker, **options)
    for name in sorted(_OF_A_RANKER & set(options)):
        raise BadInputError(
            f"gbdt: {name} is for a trained ranker, but none that comes with the package fits this "
            "target, so that trees start anew: leave it out, or name a file of weights (.npz) as "
            "the cost model"
        )
    return GradientBoosting(rng=rng, hardware=hardware, **options)


def _of_weights(name: str, what: str, **defaults: Any) -> Callable[..., CostModel[Candidate]]:
    """A factory of a cost model that starts from weights of the package.

    Args:
        name: Of the weights.
        what: The first line of the factory's docstring, which ``foretune cost-models`` shows.
        defaults: Options where none are given.
    """

    def create(
        *, rng: np.random.Generator, hardware: Hardware | None = None, **options: Any
    ) -> CostModel[Candidate]:
        return PretrainedModel(
            rng=rng, hardware=hardware, **{"ranker": name, **defaults, **options}
        )

    create.__doc__ = f"""{what}

    Args:
        rng: Seeds the trees of the run.
        hardware: What the candidates will run on; a CPU if None.
        options: As ``PretrainedModel`` takes them.

    Raises:
        BadInputError: There are no trained weights for the kind of hardware.
    """
    return create


mlp = _of_weights(
    "mlp", "TenSet's perceptron, trained on other workloads, with trees on top of it."
)
mlp_formulas = _of_weights(
    "mlp",
    "The same scores as ``mlp``, from formulas of the features: hardly any program is made.",
    features="formulas",
)
tlp = _of_weights(
    "tlp",
    "Self-attention over scheduling steps, trained on other workloads, with trees on top of it.",
)
world = _of_weights(
    "world", "The compiler world model, trained on other workloads, with trees on top of it."
)


class InformedModel(CostModel[Candidate]):
    """A model that knew something before the run.

    Args:
        prior: What is expected of candidates.
        correction: Scores on top of the prior, and learns from the run; None: nothing is learned,
            and the prior alone scores.
        draft: Who drafts, as far as the run's measurements have it believed; None: the model
            itself.
    """

    def __init__(
        self,
        prior: Prior,
        correction: CostModel[Candidate] | None = None,
        draft: Weighed | None = None,
    ) -> None:
        self._prior, self._correction, self._draft = prior, correction, draft

    @property
    def abilities(self) -> Abilities:
        """Ready and informed: the prior was trained on other workloads, and perhaps the draft."""
        drafts = self._draft is None or self._draft.prior.informed
        return Abilities(informed=True, informed_draft=drafts)

    def fit(self, records: Sequence[Trial[Candidate]]) -> None:
        """Forgets every record of this run, but not what was learned before."""
        if self._correction is not None:
            self._correction.fit([])
        if self._draft is not None:
            self._draft.forget()
        self.update(records)

    def update(self, records: Sequence[Trial[Candidate]]) -> None:
        """Adds records; one with a known candidate replaces the earlier measurement."""
        if self._correction is None:
            return
        self._correction.update(records)
        if self._draft is not None:
            self._draft.learn(records)

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        """Scores candidates; NaN for one that is known to be illegal."""
        if self._correction is None:
            return Prediction(self._prior.alone(candidates), np.zeros(len(candidates)))
        corrected = self._correction.predict(candidates)
        score = np.where(self._prior.refused(candidates), np.nan, corrected.score)
        return Prediction(score, corrected.spread)

    def draft(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What is expected by whoever drafts, as far as it explains the run."""
        if self._draft is None:
            return illegal_last(self.predict(candidates).score)
        return self._draft.scores(candidates)


def remembered(options: Mapping[str, Any]) -> int:
    """Of how many candidates a prior keeps what it said: as many as trees keep the features of."""
    return int(options.get("cache", GbdtConfig.cache))


def refuse_learning(given: Mapping[str, Any]) -> None:
    """Refuses options of what learns in a run where nothing does.

    Raises:
        BadInputError: There are some, but for ``cache``, which bounds what the prior said, too.
    """
    for name, value in given.items():
        if name != "cache":
            raise BadInputError(
                f"a pretrained model: {name} must be left out where online=False, but got "
                f"{value!r}: no trees are grown then, choose online=True for them"
            )


class PretrainedModel(InformedModel):
    """A trained ranker, corrected by trees as measurements arrive.

    Args:
        rng: Seeds the trees; drawn from once.
        hardware: What the candidates will run on; says which weights are meant. A CPU if None.
        ranker: A trained ranker, a file of one (``.npz``), or the name of weights that come with
            the package.
        draft: The same for ``draft``, a ranker that reads no programs; or ``"ranker"``: the model
            itself, whether its ranker reads programs (milliseconds each) or not. If None: the model
            itself where neither ``ranker`` nor ``extract`` reads any, ``ranker`` where only
            ``extract`` does, else what comes with the package, else ``machine_fit``.
        features: Where per-store features are read, by the ranker and the trees: ``"programs"`` or
            ``"formulas"``. None: where the ranker has them from, which is ``"programs"`` for files
            and names. Not for a ranker that was made by the caller or reads no programs.
        online: Whether the run's measurements are learned from. If not, the ranker alone scores and
            drafts, the same from the first batch to the last, and no options of trees are taken.
        prior: What stands in place of ``ranker`` as what is expected of candidates.
        extract: Features of the trees; per-store features where the ranker reads programs, and
            action features where it does not, unless given.
        options: Fields of ``GbdtConfig``. ``prior_strength`` is the ranker's ``strength`` unless
            given.

    Raises:
        BadInputError: There are no such weights, an option is unknown or has no effect, or the
            ranker that is to draft reads programs.
        RecordError: A file cannot be read, is damaged, or is of another version.
    """

    def __init__(
        self,
        *,
        rng: np.random.Generator,
        hardware: Hardware | None = None,
        ranker: Ranker | Path | str = DEFAULT,
        draft: Ranker | Path | str | None = None,
        features: str | None = None,
        online: bool = True,
        prior: Prior | None = None,
        extract: Extractor | None = None,
        **options: Any,
    ) -> None:
        require_type("a pretrained model", "online", online, bool)
        kind = "llvm" if hardware is None else hardware.kind
        self.ranker = trained(ranker, kind)
        if features is not None:
            _read_from(self.ranker, features, given=isinstance(ranker, Ranker))
        if "aggregate" in options and extract is None and not self.ranker.needs.programs:
            raise BadInputError(
                "a pretrained model: aggregate is for features of stores, but trees read those of "
                f"actions where {type(self.ranker).__name__} does: leave it out, or give extract"
            )
        prior = prior or RankerPrior(self.ranker, remembered(options))
        correction = None
        if online:
            read = self._features() if extract is None else {"extract": extract}
            learning = {"trust": TRUST, **read, **options}
            correction = GradientBoosting(rng=rng, hardware=hardware, prior=prior, **learning)
        else:
            refuse_learning(options if extract is None else {**options, "extract": extract})
        super().__init__(prior, correction, self._drafter(draft, kind, extract is not None))

    def _features(self) -> Mapping[str, Any]:
        """What trees read, unless it is given."""
        from foretune import features

        if self.ranker.needs.programs:
            # Read once for the ranker and the trees.
            return {"extract": partial(features.candidate_rows, source=self.ranker.store_source)}
        return ACTIONS

    def _drafter(
        self, draft: Ranker | Path | str | None, kind: str, extracts: bool
    ) -> Weighed | None:
        """Who drafts; None: the model itself.

        Args:
            draft: As the constructor takes it.
            kind: Of the target.
            extracts: Whether the trees read features of the caller's, perhaps of programs: asking
                them would take milliseconds per candidate.
        """
        itself = draft == _ITSELF or (draft is None and not self.ranker.needs.programs)
        if itself:
            return Weighed(RankerPrior(self.ranker)) if extracts else None
        if draft is None:
            default = shipped(DEFAULT, kind)
            return Weighed(RulePrior(machine_fit) if default is None else RankerPrior(default))
        drafter = trained(draft, kind)
        if drafter.needs.programs:
            raise BadInputError(
                "what drafts must not read programs, which takes milliseconds each, but "
                f"{type(drafter).__name__} does: use one of actions, for example 'gbdt_actions'"
            )
        return Weighed(RankerPrior(drafter))


def _read_from(ranker: Ranker, source: str, given: bool) -> None:
    """Has a ranker's per-store features read elsewhere.

    Raises:
        BadInputError: No such source, a ranker that the caller owns, or one that reads no programs.
    """
    require_source("a pretrained model", source)
    if given:
        raise BadInputError(
            f"features={source!r} is for rankers that are loaded here, but one was passed that "
            f"reads {ranker.store_source}: make it with source={source!r} instead"
        )
    if not ranker.needs.programs:
        raise BadInputError(
            f"features={source!r} is for rankers that read programs, but {type(ranker).__name__} "
            "reads decisions only: leave it out, or choose the cost model 'mlp'"
        )
    ranker.store_source = source


def action_rows(candidates: Sequence[Candidate]) -> list[Float32Array]:
    """Of each candidate, shape (1, columns): action features as if each program had one store."""
    from foretune import features
    from foretune.dataset import Program

    matrix = features.action_features([Program(candidate=candidate) for candidate in candidates])
    return list(matrix[:, None, :])


def only_row(rows: Array) -> Float32Array:
    """The first of some rows, shape (columns,): there is no other."""
    return np.asarray(rows[0], dtype=np.float32)


ACTIONS: Mapping[str, Any] = {"extract": action_rows, "aggregate": only_row}
"""Features of trees that read no program: arguments of ``GradientBoosting``."""
