"""The first stage: which of many programs are worth a closer look (LLMTuner's classifier).

Idea: the paper fine-tunes a language model of half a billion parameters to answer *good* or *bad*
for the text of a program and a device. Here a small transformer, trained from scratch, reads the
same program as at most 64 tokens (``foretune.cost.behaviour.tokens``), so that a program costs
a fraction of a millisecond and none has to be made. ``foretune_research.hf`` has the language
model.

Labels, sampling and weights are the paper's (``foretune.cost.behaviour.labels``). Its loss is a
square of the score itself (``"mse"``); ``"bce"`` is the cross entropy of the same labels, and
``"rank"`` LambdaRank within a group, which knows how much faster a program is than another. Only
the order of scores is used: after down-sampling they are no probabilities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._arrays import BoolArray, Float32Array, FloatArray
from foretune._options import Count
from foretune.cost._examples import Examples, Labelled
from foretune.cost._neural import NeuralConfig, NeuralRanker
from foretune.cost._ranker import TEXT, Needs
from foretune.cost.behaviour import reading
from foretune.cost.behaviour.labels import ClassWeights, lesson
from foretune.cost.behaviour.tokens import COLUMNS, TOKEN_VERSION, tokens_of
from foretune.describe import NESTS_VERSION
from foretune.errors import BadInputError
from foretune.features.stores import add_rows, read_rows

if TYPE_CHECKING:
    from torch import nn

    from foretune.cost._networks import Loss
    from foretune.cost.behaviour.reading import Batches
    from foretune.dataset import Group, Program
    from foretune.hardware import Device, Hardware

NestReader = Callable[[Sequence[Any]], "Batches"]
"""Called with candidates as ``foretune.describe.nests_of`` is."""


@dataclass(frozen=True)
class ClassifierConfig(NeuralConfig):
    """The network and how it is trained; see ``NeuralConfig`` for what all networks have.

    Attributes:
        width: Of the network's states.
    """

    ranker: ClassVar[str] = "classifier"
    loss: ClassVar[str] = "rank"
    sampling: ClassVar[str] = "paper"
    attention_heads: ClassVar[int] = 4
    decisions: ClassVar[bool] = False

    width: Count = 64
    batch: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            f"attention_heads divides width, {self.width},",
            self.width % self.attention_heads == 0,
            self.attention_heads,
        )


class Classifier(NeuralRanker):
    """A small transformer over loops, statements and the device (LLMTuner's first stage).

    Args:
        seed: Of weights, order, dropout and what is sampled.
        read_nests: What is called in place of ``foretune.describe.nests_of``.
        cache: Folder in which tokens of groups are kept; None: they are read anew.
        options: ``threads`` and ``device`` as of ``NeuralRanker``, and fields of
            ``ClassifierConfig``.

    Raises:
        BadInputError: Unknown option, or a value that makes no sense.
    """

    needs: Needs = replace(
        NeuralRanker.needs,
        nests=True,
        options={**NeuralRanker.needs.options, "cache": TEXT, "read_nests": None},
    )
    config_type: ClassVar[type[NeuralConfig]] = ClassifierConfig
    config: ClassifierConfig

    def __init__(
        self,
        *,
        seed: int = 0,
        read_nests: NestReader | None = None,
        cache: Path | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(seed=seed, **options)
        self._read_nests = read_nests
        self._cache = None if cache is None else Path(cache)

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of tokens and of what they are made of."""
        return {"tokens": TOKEN_VERSION, "nests": NESTS_VERSION}

    def score_group(self, group: Group) -> FloatArray:
        """Scores of all programs of a group, logged ones too; NaN for one that is not described.

        Raises:
            BadInputError: None can be described.
        """
        if self._trained is None or len(group) == 0:
            return np.zeros(len(group))
        examples, legal = self._group_examples(group)
        if not legal.any() and any(program.candidate is None for program in group.programs):
            raise BadInputError(
                f"{self.name}: programs of a group are rebuilt from its workload, but of "
                f"{group.key} ({group.source or 'no source'}) none can be: choose a ranker that "
                "reads what these records hold, for example 'gbdt_actions' (programs of logs are "
                "rebuilt by the package foretune_research)"
            )
        scores: FloatArray = self._member_scores(
            examples, legal, group.machine, group.hardware
        ).mean(axis=0)
        return scores

    def _network(self, width: int, columns: int, outputs: int) -> nn.Module:
        from foretune.cost.behaviour.compact import CompactNetwork

        config = self.config
        return CompactNetwork(
            width, config.width, config.blocks, config.attention_heads, config.dropout
        )

    def _examples(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Examples, BoolArray]:
        batches = reading.batches_of_candidates(programs, self._read_nests)
        return self._tokens(programs, batches, reading.device_of_machine(machine))

    def _group_examples(self, group: Group) -> tuple[Examples, BoolArray]:
        if self._cache is None:
            return self._read(group)
        keys = [program.key for program in group.programs]
        path = self._cache / self._file(group)
        known = read_rows(path)
        missing = [row for row, key in enumerate(keys) if key not in known]
        if missing:
            examples, legal = self._read(group.subset(missing))
            rows = iter(np.split(examples.rows, np.cumsum(examples.counts)[:-1]))
            made = {
                keys[row]: next(rows) if here else None
                for row, here in zip(missing, legal.tolist(), strict=True)
            }
            add_rows(path, made)
            known = {**known, **made}
        found = [known[key] for key in keys]
        legal = np.array([each is not None for each in found], dtype=bool)
        return _examples_of([each for each in found if each is not None]), legal

    def _read(self, group: Group) -> tuple[Examples, BoolArray]:
        batches = reading.batches_of(group, self._read_nests)
        return self._tokens(group.programs, batches, reading.device_of(group))

    def _file(self, group: Group) -> str:
        """Where tokens of a group are kept, by what they depend on."""
        device = reading.device_of(group) if self.config.hardware else None
        factors = None if device is None else sorted(device.factors.items())
        text = repr((group.key, factors, self.config.decisions, sorted(self.versions.items())))
        return f"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}.npz"

    def _tokens(
        self, programs: Sequence[Program], batches: Batches, device: Device | None
    ) -> tuple[Examples, BoolArray]:
        legal = np.zeros(len(programs), dtype=bool)
        if not batches:
            return _examples_of([]), legal
        rows = np.concatenate([own for own, _ in batches])
        decisions = [_decisions(programs[row]) for row in rows] if self.config.decisions else ()
        nests = [each for _, each in batches]
        tokens = tokens_of(nests, device if self.config.hardware else None, decisions)
        # Batches are by structure; back into the order that was asked for.
        order = np.argsort(rows, kind="stable")
        mask = tokens.mask[order]
        legal[rows] = True
        context = np.zeros((len(rows), 0), np.float32)
        return Examples(tokens.rows[order][mask], mask.sum(axis=1), context), legal

    def _lesson(self, group: Group) -> tuple[Group, Float32Array | None]:
        learned, targets = lesson(group, self.config.sampling, self.seed)
        return learned, None if self.config.loss == "rank" else targets.astype(np.float32)

    def _loss(self, data: Labelled) -> Loss | None:
        from foretune.cost._networks import lambda_rank

        if data.targets is None:
            return lambda_rank
        weights = ClassWeights.of(data.targets > 0.5)
        return weights.mse if self.config.loss == "mse" else weights.bce


def _examples_of(tokens: Sequence[Float32Array]) -> Examples:
    """Programs by their tokens, one array of shape (tokens, len(COLUMNS)) each."""
    rows = np.concatenate([np.zeros((0, len(COLUMNS)), np.float32), *tokens])
    counts = np.array([len(each) for each in tokens], dtype=np.intp)
    return Examples(rows, counts, np.zeros((len(tokens), 0), np.float32))


def _decisions(program: Program) -> tuple[Any, ...]:
    return () if program.candidate is None else tuple(program.candidate.decisions)
