"""A cost model that learned from other workloads before its first measurement.

Idea: a ranker trained on a data set says what to expect of a schedule; boosted trees, grown during
the run, say how the workload at hand differs. The score of a candidate is

    a * expected + n / (n + trust) * trees

where ``expected`` is the ranker's score in log2 slow-downs (its ``scale``), ``a`` how far that
explains the ``n`` programs measured so far, shrunk towards 1 while they are few (the ranker's
``strength`` says how few), and ``trees`` a correction on top of it (``foretune.cost.gbdt``). So the
first batch is informed, and a ranker that misleads on a workload is forgotten there.

The draft learns in the same way: where no program is read it is that score itself; else what the
default ranker expects, times an ``a`` of its own.

With ``online=False`` nothing of this is learned: ``expected`` is the score, whatever is measured.
That is how rankers are compared in a search: what one of them lacks, trees would make up for.

Weights that come with the package lie in ``foretune/cost/weights`` as ``NAME-KIND.npz``: ``KIND``
is the kind of target they are for, ``NAME`` one of ``joined`` (the default; its trees on decisions
are read by the cost model ``gbdt``, and draft for models that read programs), ``behaviour``,
``classifier``, ``mlp``, ``tlp`` and ``world``.
"""

from __future__ import annotations

import importlib.resources
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune._options import require_type
from foretune.cost import rankers
from foretune.cost._base import CostModel, FloatArray, Prediction
from foretune.cost._opinions import expectation, illegal_last, opinion
from foretune.cost._ranker import Ranker
from foretune.cost.gbdt import GbdtConfig, GradientBoosting, _Group, _seconds
from foretune.cost.joined import JoinedRanker
from foretune.errors import BadInputError
from foretune.features import machine_fit, require_source

if TYPE_CHECKING:
    from foretune.features import Extractor
    from foretune.hardware import Hardware
    from foretune.records import Record
    from foretune.space import Candidate

DEFAULT = "default"

_DEFAULT_MEMBER = "gbdt_actions"
"""The member of the joined ranker that the default is where it has no file of its own."""
_ITSELF = "ranker"
"""As ``draft``: the model itself."""
TRUST = 16.0
"""``GbdtConfig.trust`` here: a trained ranker is a better belief than ``machine_fit``."""
_BELIEF = 1.0
"""Slope of a draft before measurements."""
_ARCHITECTURE = "x86_64"
"""Of the processors that the weights for CPUs were trained on."""
_SUFFIX = ".npz"
_OF_A_RANKER = {"draft", "online"}
"""Options of ``PretrainedModel`` that trees alone do not have."""


def shipped(name: str, kind: str) -> Ranker | None:
    """The trained ranker called ``name`` that comes with the package; None if there is none.

    The default is read from the file of the joined ranker, so that it is there once.

    Args:
        name: ``"joined"``, ``"default"``, ``"behaviour"``, ``"mlp"``, ``"tlp"``, ``"world"``...
        kind: Kind of target that it is for, as ``Hardware.kind``.

    Raises:
        RecordError: The file is damaged or of another version.
        MissingDependencyError: The ranker needs a package that is not installed.
    """
    weights = importlib.resources.files("foretune.cost") / "weights"
    own = weights / f"{name}-{kind}{_SUFFIX}"
    if own.is_file():
        with importlib.resources.as_file(own) as path:
            return rankers.load_for_run(path)
    joined = weights / f"{JoinedRanker.name}-{kind}{_SUFFIX}"
    if name != DEFAULT or not joined.is_file():
        return None
    with importlib.resources.as_file(joined) as path:
        return JoinedRanker.load_member(path, _DEFAULT_MEMBER)


def gbdt(
    *, rng: np.random.Generator, hardware: Hardware | None = None, **options: Any
) -> CostModel:
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
    foreign = {"extract", "prior_of", "aggregate"} & set(options)
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


def is_known(hardware: Hardware) -> bool:
    """Whether a ranker finds what it looks at: with a factor unknown, 0, it would only guess."""
    factors = (hardware.simd_bits, hardware.l1_bytes, hardware.l2_bytes)
    return not hardware.has_cores or (min(factors) > 0 and of_known_architecture(hardware))


def of_known_architecture(hardware: Hardware) -> bool:
    """Whether weights of the package have learned from such processors; of GPUs there is no say."""
    triple = str(json.loads(hardware.target).get("mtriple", _ARCHITECTURE))
    return not hardware.has_cores or triple.startswith(_ARCHITECTURE)


def _of_weights(name: str, what: str, **defaults: Any) -> Callable[..., CostModel]:
    """A factory of a cost model that starts from weights of the package.

    Args:
        name: Of the weights.
        what: The first line of the factory's docstring, which ``foretune cost-models`` shows.
        defaults: Options where none are given.
    """

    def create(
        *, rng: np.random.Generator, hardware: Hardware | None = None, **options: Any
    ) -> CostModel:
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


class PretrainedModel(CostModel):
    """A trained ranker, corrected by trees as measurements arrive.

    Always ``ready`` and ``informed``.

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
        extract: Extractor | None = None,
        **options: Any,
    ) -> None:
        require_type("a pretrained model", "online", online, bool)
        kind = "llvm" if hardware is None else hardware.kind
        self.ranker = _trained(ranker, kind)
        if features is not None:
            _read_from(self.ranker, features, given=isinstance(ranker, Ranker))
        self._online = online
        self._refuse_unused(extract, options)
        self._drafter = self._choose_drafter(draft, kind)
        # With features of programs, asking the trees would take milliseconds per candidate.
        itself = draft == _ITSELF or (draft is None and not self.ranker.reads_programs)
        self._drafts_itself = itself and extract is None
        self._drafted: dict[str, _Group] = {}
        self._asked: OrderedDict[tuple[str, str], float] = OrderedDict()
        own = self._own_features() if extract is None else {"extract": extract}
        learning = {"prior_strength": self.ranker.strength, "trust": TRUST, **options}
        self._trees = GradientBoosting(
            rng=rng, hardware=hardware, prior_of=self._expected, **own, **learning
        )

    def _refuse_unused(self, extract: Extractor | None, options: Mapping[str, Any]) -> None:
        """Refuses what would have no effect.

        Args:
            extract: Features of the trees, if given.
            options: Of the trees; ``cache`` also bounds what the ranker said.
        """
        if "prior_of" in options:
            raise BadInputError(
                "a pretrained model: prior_of is for trees alone, but here the ranker "
                f"{type(self.ranker).__name__} says what to expect: leave it out, or choose the "
                "cost model 'gbdt:scratch'"
            )
        if "aggregate" in options and extract is None and not self.ranker.reads_programs:
            raise BadInputError(
                "a pretrained model: aggregate is for features of stores, but trees read those of "
                f"actions where {type(self.ranker).__name__} does: leave it out, or give extract"
            )
        given = {k: v for k, v in options.items() if k != "cache"}
        if extract is not None:
            given["extract"] = extract
        if not self._online and given:
            name, value = next(iter(given.items()))
            raise BadInputError(
                f"a pretrained model: {name} must be left out where online=False, but got "
                f"{value!r}: no trees are grown then, choose online=True for them"
            )

    def _choose_drafter(self, draft: Ranker | Path | str | None, kind: str) -> Ranker | None:
        if draft == _ITSELF:
            return self.ranker
        if draft is None:
            return shipped(DEFAULT, kind) if self.ranker.reads_programs else self.ranker
        drafter = _trained(draft, kind)
        if drafter.reads_programs:
            raise BadInputError(
                "what drafts must not read programs, which takes milliseconds each, but "
                f"{type(drafter).__name__} does: use one of actions, for example 'gbdt_actions'"
            )
        return drafter

    def _own_features(self) -> dict[str, Any]:
        from foretune import features

        if self.ranker.reads_programs:
            # Read once for the ranker and the trees.
            return {"extract": partial(features.candidate_rows, source=self.ranker.source)}
        return {"extract": action_rows, "aggregate": only_row}

    @property
    def informed(self) -> bool:
        """True: the ranker was trained on other workloads."""
        return True

    @property
    def informed_draft(self) -> bool:
        """Whether a trained ranker drafts, and not ``machine_fit``."""
        return self._drafter is not None

    def fit(self, records: Sequence[Record]) -> None:
        """Forgets every record of this run, but not what the ranker was trained on."""
        self._trees.fit([])
        self._drafted = {}
        self.update(records)

    def update(self, records: Sequence[Record]) -> None:
        """Adds records; one with a known candidate replaces the earlier measurement."""
        if self._online:
            self._trees.update(records)
            self._judge_draft(records)

    def predict(self, candidates: Sequence[Candidate]) -> Prediction:
        """Scores candidates; NaN for one that cannot be applied, where programs are read."""
        if self._online:
            return self._trees.predict(candidates)
        return Prediction(self._opinion(candidates), np.zeros(len(candidates)))

    def draft(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What the ranker of actions expects, or ``machine_fit``, as far as it explains the run.

        Where the model drafts itself, the score: then the trees correct the draft, too.
        """
        if self._drafts_itself:
            return illegal_last(self.predict(candidates).score)
        strength = GbdtConfig.prior_strength if self._drafter is None else self._drafter.strength
        workloads = [candidate.workload.key for candidate in candidates]
        slopes = {
            key: self._drafted.get(key, _Group()).slope(_BELIEF, strength) for key in set(workloads)
        }
        slope: FloatArray = np.array([slopes[key] for key in workloads], dtype=np.float64)
        return slope * self._guessed(candidates)

    def _judge_draft(self, records: Sequence[Record]) -> None:
        """Keeps what was drafted of measured candidates beside their seconds."""
        known = [(record, record.candidate) for record in records if record.candidate is not None]
        if self._drafts_itself or not known:
            return
        guessed = self._guessed([candidate for _, candidate in known])
        for (record, candidate), guess in zip(known, guessed.tolist(), strict=True):
            group = self._drafted.setdefault(candidate.workload.key, _Group())
            group.seconds[record.candidate_key] = _seconds(record)
            group.fits[record.candidate_key] = guess

    def _guessed(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What drafts, before it is weighed."""
        if self._drafter is None:
            return machine_fit(candidates)
        return expectation(self._drafter, candidates)

    def _expected(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What the ranker expects, 0 of one that it cannot judge."""
        expected: FloatArray = np.nan_to_num(self._opinion(candidates), nan=0.0)
        return expected

    def _opinion(self, candidates: Sequence[Candidate]) -> FloatArray:
        """What the ranker says: always the same of a candidate, so that it is asked once."""
        keys = [(candidate.workload.key, candidate.key) for candidate in candidates]
        known = {key: self._asked[key] for key in keys if key in self._asked}
        missing = {k: c for k, c in zip(keys, candidates, strict=True) if k not in known}
        if missing:
            found = opinion(self.ranker, list(missing.values())).tolist()
            known.update(zip(missing, found, strict=True))
        for key, value in known.items():
            self._asked[key] = value
            self._asked.move_to_end(key)
        while len(self._asked) > self._trees.config.cache:
            self._asked.popitem(last=False)
        return np.array([known[key] for key in keys], dtype=np.float64)


def _trained(ranker: Ranker | Path | str, kind: str) -> Ranker:
    if isinstance(ranker, Ranker):
        return ranker
    if isinstance(ranker, Path) or ranker.endswith(_SUFFIX):
        return rankers.load_for_run(ranker)
    found = shipped(ranker, kind)
    if found is None:
        raise BadInputError(
            f"no trained weights {ranker!r} for targets of kind {kind!r} come with this "
            "installation: train some with `foretune train` and give the file, or choose the cost "
            "model 'gbdt'"
        )
    return found


def _read_from(ranker: Ranker, source: str, given: bool) -> None:
    """Has a ranker's per-store features read elsewhere.

    Raises:
        BadInputError: No such source, a ranker that the caller owns, or one that reads no programs.
    """
    require_source("a pretrained model", source)
    if given:
        raise BadInputError(
            f"features={source!r} is for rankers that are loaded here, but one was passed that "
            f"reads {ranker.source}: make it with source={source!r} instead"
        )
    if not ranker.reads_programs:
        raise BadInputError(
            f"features={source!r} is for rankers that read programs, but {type(ranker).__name__} "
            "reads decisions only: leave it out, or choose the cost model 'mlp'"
        )
    ranker.source = source


def action_rows(candidates: Sequence[Candidate]) -> list[npt.NDArray[np.float32]]:
    """Of each candidate, shape (1, columns): action features as if each program had one store."""
    from foretune import features
    from foretune.dataset import Program

    matrix = features.action_features([Program(candidate=candidate) for candidate in candidates])
    return list(matrix[:, None, :])


def only_row(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The first of some rows, shape (columns,): there is no other."""
    return np.asarray(rows[0], dtype=np.float32)
