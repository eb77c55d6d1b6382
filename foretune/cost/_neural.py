"""What the neural rankers share: configuration, life cycle, model files.

Idea: a network gives every program a number, and a loss looks at how these numbers order the
programs of a list. A list holds programs of one group, so that no score is ever compared across
workloads; the published trainers cut their lists from the shuffled rows of all workloads, which
the reference variants in ``foretune_research.neural`` keep (``mixed``).

Reading order: here, ``NeuralConfig`` says what can be chosen and ``NeuralRanker`` joins the
parts; ``_examples`` holds what a network reads and what is compared, ``_networks`` the networks and
losses, ``_training`` the loop. The last two need PyTorch, which is optional, and are imported when
a ranker first trains or scores.
"""

from __future__ import annotations

import abc
import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foretune._arrays import BoolArray, Float32Array, FloatArray
from foretune._model_file import check
from foretune._options import (
    Bounds,
    Count,
    OneOf,
    Positive,
    constants,
    option_names,
    refuse_unknown,
    require_options,
    stored_options,
)
from foretune.cost._examples import Epoch, Examples, Labelled, Scaling, Weights, members_of
from foretune.cost._heads import Heads
from foretune.cost._ranker import COUNT, TEXT, Needs, Ranker, fitted_scale, fitted_strength
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost._trained import Trained
from foretune.dataset import judgeable
from foretune.errors import BadInputError, MissingDependencyError, RecordError

if TYPE_CHECKING:
    from torch import nn

    from foretune.cost._networks import Loss
    from foretune.cost._training import Training
    from foretune.dataset import Group, Program
    from foretune.hardware import Hardware


def require_torch(who: str) -> None:
    """Refuses to go on without PyTorch.

    Raises:
        MissingDependencyError: It is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            f"{who} needs PyTorch, which is not installed: "
            "install it with `pip install 'foretune[torch]'`"
        )


@dataclass(frozen=True)
class NeuralConfig:
    """What a network is and how it is trained; studies change more (``foretune_research.neural``).

    Attributes:
        epochs: Passes over the data at most.
        batch: Programs per step.
        list_size: Programs of one group that are compared with one another at a time, at most.
        learning_rate: Step size, at its peak where it changes.
        members: Networks trained, each from its own seed. The score is their mean.
        precision: Of the products while training: ``"float32"``, or ``"bfloat16"``, two to three
            times as fast on processors that have it (AVX512-BF16, AMX, recent GPUs) and slower on
            others. Weights and losses stay float32, and so does scoring.
    """

    ranker: ClassVar[str] = "network"
    loss: ClassVar[str] = "lambda_rank"
    mixed: ClassVar[bool] = False
    decay: ClassVar[bool] = True
    warm_up: ClassVar[float] = 0.05
    weight_decay: ClassVar[float] = 1e-2
    coupled: ClassVar[bool] = False
    clip: ClassVar[float] = 1.0
    select: ClassVar[str] = "validation"
    patience: ClassVar[int] = 15
    storage: ClassVar[str] = "float16"
    scaling: ClassVar[str] = "standard"
    hardware: ClassVar[bool] = True
    blocks: ClassVar[int] = 2
    norm: ClassVar[bool] = True
    dropout: ClassVar[float] = 0.1

    epochs: Count = 40
    batch: Count = 512
    list_size: Annotated[int, Bounds(ge=2)] = 64
    learning_rate: Positive = 1e-3
    members: Count = 1
    precision: Annotated[str, OneOf(("float32", "bfloat16"))] = "float32"

    def __post_init__(self) -> None:
        require_options(self.ranker, self)

    def require(self, rule: str, holds: bool, value: object) -> None:
        """Refuses a value.

        Raises:
            BadInputError: The rule does not hold.
        """
        if not holds:
            raise BadInputError(f"{self.ranker}: {rule} must hold, but got {value}")


class NeuralRanker(Ranker):
    """A network, or some, trained once to order the programs of workloads it has not seen.

    A subclass says how programs are read (``_examples``) and what the network is (``_network``).

    Attributes:
        config: What was chosen.
        history: The epochs of the last ``fit``, member by member.

    Args:
        seed: Of weights, order and dropout. The same seed, data, threads and processor give the
            same scores.
        threads: Threads PyTorch may use here; as many as it would otherwise if None.
        device: PyTorch's name of a device; a CUDA device where there is one if None.
        options: Fields of ``config_type``.
    """

    config_type: ClassVar[type[NeuralConfig]] = NeuralConfig
    needs: Needs = Needs(
        options={"threads": COUNT, "device": TEXT}, in_run={"threads": 1, "device": "cpu"}
    )
    config: NeuralConfig

    def __init__(
        self,
        *,
        seed: int = 0,
        threads: int | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        kind = self.config_type
        refuse_unknown(kind.ranker, options, option_names(kind), constants(kind))
        self.config = kind(**options)
        self.config.require("threads >= 1", threads is None or threads >= 1, threads)
        self.config.require("seed >= 0", seed >= 0, seed)
        self.seed = seed
        self.threads = threads
        self.device = device
        self.history: tuple[Epoch, ...] = ()
        self._trained: Trained | None = None
        self._networks: list[nn.Module] = []

    @property
    def name(self) -> str:
        """The name by which ``foretune.cost.rankers`` makes such a ranker."""
        return self.config_type.ranker

    @property
    @abc.abstractmethod
    def versions(self) -> dict[str, Any]:
        """Versions of the features that are read: a model with others is refused."""

    @abc.abstractmethod
    def _examples(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Examples, BoolArray]:
        """The programs that can be applied, and which of all, shape (n,), these are."""

    @abc.abstractmethod
    def _network(self, width: int, columns: int, outputs: int) -> nn.Module:
        """A network for rows of a width and a number of context columns, freshly initialised.

        Called as ``network(rows, counts, context)`` it gives scores of shape (n, outputs).
        """

    def _group_examples(self, group: Group) -> tuple[Examples, BoolArray]:
        """``_examples`` of a group's programs."""
        return self._examples(group.programs, group.machine)

    def _lesson(self, group: Group) -> tuple[Group, Float32Array | None]:
        """What is learned of a group: some of its programs, and ``Labelled.targets`` of these."""
        return group, None

    def _loss(self, data: Labelled) -> Loss | None:
        """What is minimised, where that is not LambdaRank's bound."""
        return None

    def _row_scaling(self, data: Labelled) -> Scaling:
        """How rows are scaled, fitted to what is learned from."""
        return Scaling.standard(data.examples.rows)

    def _trainer(self) -> type[Training] | None:
        """What trains a network, where that is not ``foretune.cost._training.Training``."""
        return None

    def _hardware_heads(self, groups: Sequence[Group]) -> tuple[str, ...]:
        """Hardware keys that get an output of their own; empty: one output for all."""
        return ()

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Forgets everything and learns from these groups alone.

        Groups without two programs of different seconds say nothing and are left out, as are
        programs that cannot be applied.

        Raises:
            BadInputError: Nothing is left, the device is not there, or the weights grew without
                bound.
            MissingDependencyError: PyTorch is not installed.
        """
        require_torch(f"ranker {self.name!r}")
        from foretune import _torch
        from foretune.cost import _training

        self._trained, self._networks, self.history = None, [], ()
        self.scale, self.strength = Ranker.scale, Ranker.strength
        usable = [group for group in groups if judgeable(group.seconds)]
        if not usable:
            raise BadInputError(
                f"{self.name}: a group to learn from needs two programs with different seconds, "
                f"but none of {len(groups)} has: collect more measurements"
            )
        heads = Heads.of_groups(self._hardware_heads(usable), usable)
        data = self._collected(usable, heads, learn=True)
        if data is None:
            raise BadInputError(
                f"{self.name}: a group to learn from needs two programs that can be applied, but "
                f"none of {len(usable)} has: choose a ranker that reads what these records hold"
            )
        rows = self._row_scaling(data)
        context = Scaling.standard(data.examples.context)
        data = data.scaled(rows, context)
        held = self._collected(validation, heads)
        held = None if held is None else held.scaled(rows, context)
        make = partial(self._network, len(rows.shift), len(context.shift), max(1, len(heads)))
        members: list[Weights] = []
        with _torch.limited_threads(self.threads):
            for member in range(self.config.members):
                weights, epochs = _training.train(
                    make,
                    data,
                    held,
                    self.config,
                    seed=self.seed + member,
                    device=_torch.choose_device(self.device),
                    loss=self._loss(data),
                    trainer=self._trainer(),
                )
                members.append(weights)
                self.history += tuple(replace(epoch, member=member) for epoch in epochs)
        self._trained = Trained(rows, context, heads, tuple(members))
        self._build()
        with _torch.limited_threads(self.threads):
            self._weigh(data if held is None else held)

    def _weigh(self, judged: Labelled) -> None:
        """Fits ``scale`` and ``strength`` to programs that were scaled as the training data."""
        from foretune.cost import _training

        each = [_training.score(n, judged.examples, judged.head) for n in self._networks]
        scores: FloatArray = np.mean(each, axis=0)
        # Within a group, 1 / label is seconds but for a factor; a failure has label 0.
        ran = judged.labels > 0
        seconds = np.full(len(scores), np.nan)
        seconds[ran] = 1.0 / judged.labels[ran]
        pairs = [(scores[m], seconds[m]) for m in members_of(judged.group)]
        self.scale = fitted_scale(pairs)
        self.strength = fitted_strength(pairs, self.scale)

    def _collected(
        self, groups: Sequence[Group], heads: Heads, learn: bool = False
    ) -> Labelled | None:
        """The programs of all groups that can be learned from; None if there are none.

        Args:
            groups: As ``fit`` is given them.
            heads: The outputs.
            learn: Whether the programs are those of ``_lesson``; all if not.
        """
        parts: list[Examples] = []
        labels, numbers, outputs = [], [], []
        targets: list[Float32Array] = []
        for each in groups:
            if not judgeable(each.seconds):
                continue
            group, own = self._lesson(each) if learn else (each, None)
            examples, legal = self._group_examples(group)
            if not judgeable(group.seconds[legal]):
                continue
            if own is not None:
                targets.append(own[legal])
            labels.append(group.labels[legal].astype(np.float32))
            numbers.append(np.full(len(examples), len(parts), dtype=np.intp))
            head = heads.of(group.hardware, group.machine)
            outputs.append(np.full(len(examples), head, dtype=np.intp))
            parts.append(examples)
        if not parts:
            return None
        return Labelled(
            Examples.joined(parts),
            np.concatenate(labels),
            np.concatenate(numbers),
            np.concatenate(outputs),
            np.concatenate(targets) if targets else None,
        )

    def _build(self) -> None:
        """Makes networks of the weights."""
        from foretune import _torch
        from foretune.cost import _training

        assert self._trained is not None
        make = partial(self._network, *self._trained.sizes)
        device = _torch.choose_device(self.device)
        self._networks = [
            _training.with_weights(make, weights, device) for weights in self._trained.members
        ]

    def score(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """Scores of programs, shape (n,); NaN for one that cannot be applied."""
        scores: FloatArray = self.member_scores(programs, machine, hardware).mean(axis=0)
        return scores

    def member_scores(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """Scores by each network, shape (members, n): where they differ, the score is unsure."""
        if self._trained is None or len(programs) == 0:
            return np.zeros((self.config.members, len(programs)))
        examples, legal = self._examples(programs, machine)
        return self._member_scores(examples, legal, machine, hardware)

    def _member_scores(
        self,
        examples: Examples,
        legal: BoolArray,
        machine: Hardware | None,
        hardware: str,
    ) -> FloatArray:
        """Scores by each network of examples that were read, shape (members, n); NaN: illegal."""
        from foretune import _torch
        from foretune.cost import _training

        assert self._trained is not None
        scores = np.zeros((self.config.members, len(legal)))
        scores[:, ~legal] = np.nan
        if not legal.any():
            return scores
        scaled = examples.scaled(self._trained.rows, self._trained.context)
        head = np.full(len(examples), self._trained.heads.of(hardware, machine), dtype=np.intp)
        with _torch.limited_threads(self.threads):
            for member, network in enumerate(self._networks):
                scores[member, legal] = _training.score(network, scaled, head)
        return scores

    def save(self, path: Path) -> None:
        """Writes configuration, versions, scalings and weights into one file."""
        meta: dict[str, Any] = {
            "config": asdict(self.config),
            "seed": self.seed,
            "features": self.versions,
            "heads": None,
            "scale": self.scale,
            "strength": self.strength,
        }
        arrays: Weights = {}
        if self._trained is not None:
            meta["heads"] = list(self._trained.heads.keys)
            arrays = self._trained.arrays()
        write_model(path, self.name, meta, arrays)

    @classmethod
    def load(cls, path: Path, **parts: Any) -> NeuralRanker:
        """Reads what ``save`` wrote.

        Args:
            path: The file.
            parts: Arguments of the constructor that no file holds: ``threads``, ``device``...

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema or feature version.
            MissingDependencyError: PyTorch is not installed.
        """
        meta, arrays = read_model(path)
        base = str(meta.get("ranker")).partition(":")[0]
        if base not in cls._base_names():
            raise RecordError(
                f"{path} must hold one of the rankers {', '.join(cls._base_names())}, but holds "
                f"{base!r}: load it by that name"
            )
        check(path, meta, features=cls(**parts).versions)
        require_torch(f"ranker {base!r}")
        try:
            config = stored_options(constants(cls.config_type), path, meta["config"])
            ranker = cls(seed=meta["seed"], **{**config, **parts})
            ranker.scale = float(meta.get("scale", Ranker.scale))
            ranker.strength = float(meta.get("strength", Ranker.strength))
            if meta["heads"] is not None:
                members = ranker.config.members
                ranker._trained = Trained.of_arrays(meta["heads"], arrays, members)
                ranker._build()
        except (KeyError, TypeError, ValueError, RuntimeError, BadInputError) as error:
            raise RecordError(
                f"{path} is damaged or not a trained ranker ({error}): train it again with "
                "`foretune train`"
            ) from error
        return ranker

    @classmethod
    def _base_names(cls) -> tuple[str, ...]:
        """Names, without what follows a colon, of the rankers whose files this class reads."""
        return (cls.config_type.ranker,)
