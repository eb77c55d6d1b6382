"""The first stage as published: a language model with one linear output, fine-tuned by LoRA.

Idea: LLMTuner gives a causal language model (Qwen2.5-0.5B-Instruct) a role, the device, what
programs are judged by and the text of a program, puts a linear layer on the last hidden state, and
trains both to say *good* or *bad*. Any causal model of transformers serves, from a folder or from
the hub; PEFT's low-rank adapters are trained and kept, not the model.

What differs: the program stands last and everything that is the same for the programs of a device
first, so that this part is computed once (the paper has the program first); labels may also be
compared by rank, as in ``foretune.cost.behaviour.classifier``.

Transformers and PEFT are optional.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import BoolArray, FloatArray, IndexArray
from foretune._model_file import check
from foretune._options import refuse_unknown
from foretune.cost._ranker import COUNT, TEXT, Needs, Ranker, fitted_scale, fitted_strength
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost.behaviour import reading
from foretune.cost.behaviour.labels import lesson
from foretune.dataset import judgeable
from foretune.describe.text import TEXT_VERSION, criteria_text, device_text, program_text
from foretune.describe.words import Decisions, decision_words
from foretune.errors import BadInputError, MissingDependencyError, RecordError
from foretune_research.hf._adapted import NAME, AdaptedModel, HfConfig

if TYPE_CHECKING:
    from foretune.cost.behaviour.classifier import NestReader
    from foretune.cost.behaviour.reading import Batches
    from foretune.dataset import Group, Program
    from foretune.hardware import Device, Hardware

PROMPT_VERSION = 1
"""Raised whenever the prompt around a program's text changes."""

_ROLE = """\
You judge tensor programs. Say whether the schedule below is good, which means among the fastest for
its computation on this device, or bad."""


def require_packages() -> None:
    """Refuses to go on without what the model needs.

    Raises:
        MissingDependencyError: PyTorch, transformers or PEFT is not installed.
    """
    for package in ("torch", "transformers", "peft"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError(
                f"ranker {NAME!r} needs the package {package!r}, which is not installed: "
                "install it with `pip install 'foretune[torch,models]'`"
            )


def prefix_text(device: Device | None, kind: str, name: bool = True) -> str:
    """What stands before every program on a device: the role, the device, what is looked at.

    Args:
        device: Its data sheet; None where nothing is known.
        kind: ``"cpu"`` or ``"gpu"``.
        name: Whether the device is named.
    """
    told = kind.upper() if device is None else device_text(device, name)
    return f"{_ROLE}\nDevice: {told}\nCriteria:\n{criteria_text(kind)}\nProgram:\n"


class HfClassifier(Ranker):
    """A language model of transformers with one output, fine-tuned by LoRA (LLMTuner's stage 1).

    Args:
        model: Folder of the model and its tokenizer, or its name on the hub.
        seed: Of adapters, order, dropout and what is sampled.
        read_nests: What is called in place of ``foretune.describe.nests_of``.
        threads: Threads PyTorch may use; None: as many as it would otherwise.
        device: PyTorch's name of a device; None: a CUDA device where there is one.
        options: Fields of ``HfConfig``.

    Raises:
        BadInputError: Unknown option, or a value that makes no sense.
        MissingDependencyError: PyTorch, transformers or PEFT is not installed.
    """

    needs: Needs = Needs(
        nests=True,
        options={"model": str, "read_nests": None, "threads": COUNT, "device": TEXT},
        in_run={"threads": 1},
    )

    def __init__(
        self,
        *,
        model: str = "",
        seed: int = 0,
        read_nests: NestReader | None = None,
        threads: int | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        refuse_unknown(NAME, options, [field.name for field in fields(HfConfig)])
        self.config = HfConfig(**options)
        require_packages()
        if not model:
            raise BadInputError(
                f"{NAME}: model must name a folder or a model on the hub, but is empty: give "
                "model=FOLDER"
            )
        self.model, self.seed = str(model), seed
        self.threads, self.device = threads, device
        self._read_nests = read_nests
        self._tuned: AdaptedModel | None = None

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the texts."""
        return {"text": TEXT_VERSION, "prompt": PROMPT_VERSION}

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        """Forgets everything and learns from these groups alone.

        Raises:
            BadInputError: Nothing can be learned from, or the model cannot be read.
        """
        from foretune import _torch

        self._tuned, self.scale, self.strength = None, Ranker.scale, Ranker.strength
        prompts: list[tuple[str, str]] = []
        targets: list[FloatArray] = []
        numbers: list[IndexArray] = []
        for group in groups:
            if not judgeable(group.seconds):
                continue
            learned, are_good = lesson(group, self.config.sampling, self.seed)
            found, legal = self._prompts(learned, reading.batches_of(learned, self._read_nests))
            if not judgeable(learned.seconds[legal]):
                continue
            of_rank = self.config.loss == "rank"
            prompts += found
            targets.append(learned.labels[legal] if of_rank else are_good[legal].astype(float))
            numbers.append(np.full(len(found), len(numbers), dtype=np.intp))
        if not prompts:
            raise BadInputError(
                f"{NAME}: a group to learn from needs two programs with different seconds that can "
                f"be described, but none of {len(groups)} has: collect more measurements"
            )
        with _torch.limited_threads(self.threads):
            tuned = AdaptedModel(
                self.model, self.config, self.seed, _torch.choose_device(self.device)
            )
            tuned.train(prompts, np.concatenate(targets), np.concatenate(numbers), self.seed)
        self._tuned = tuned
        judged = [(self.score_group(g), g.seconds) for g in validation or groups]
        self.scale = fitted_scale(judged)
        self.strength = fitted_strength(judged, self.scale)

    def score(
        self, programs: Sequence[Program], machine: Hardware | None, hardware: str = ""
    ) -> FloatArray:
        """Scores of candidates, shape (n,); NaN for one that cannot be applied."""
        if self._tuned is None or len(programs) == 0:
            return np.zeros(len(programs))
        batches = reading.batches_of_candidates(programs, self._read_nests)
        device = reading.device_of_machine(machine)
        return self._scores(*self._told(programs, batches, device))

    def score_group(self, group: Group) -> FloatArray:
        """Scores of all programs of a group, logged ones too; NaN for one that is not described.

        Raises:
            BadInputError: They are from a log, and none can be described.
        """
        if self._tuned is None or len(group) == 0:
            return np.zeros(len(group))
        batches = reading.batches_of(group, self._read_nests)
        if not batches and any(program.candidate is None for program in group.programs):
            raise BadInputError(
                f"{NAME}: programs of a group are rebuilt from its workload, but of {group.key} "
                f"({group.source or 'no source'}) none can be: choose a ranker that reads what "
                "these records hold, for example 'gbdt_actions'"
            )
        return self._scores(*self._prompts(group, batches))

    def _scores(self, prompts: Sequence[tuple[str, str]], legal: BoolArray) -> FloatArray:
        from foretune import _torch

        scores = np.full(len(legal), np.nan)
        if prompts:
            assert self._tuned is not None
            with _torch.limited_threads(self.threads):
                scores[legal] = self._tuned.scores(prompts)
        return scores

    def _prompts(self, group: Group, batches: Batches) -> tuple[list[tuple[str, str]], BoolArray]:
        return self._told(group.programs, batches, reading.device_of(group))

    def _told(
        self, programs: Sequence[Program], batches: Batches, device: Device | None
    ) -> tuple[list[tuple[str, str]], BoolArray]:
        """Of each program that is described the prefix and its text; which these are."""
        found: dict[int, tuple[str, str]] = {}
        for rows, nests in batches:
            prefix = prefix_text(device, "gpu" if nests.gpu else "cpu", self.config.name_device)
            for number, row in enumerate(rows.tolist()):
                text = program_text(nests, number, _decisions(programs[row]))
                found[row] = (prefix, text)
        legal = np.array([row in found for row in range(len(programs))], dtype=bool)
        return [found[row] for row in sorted(found)], legal

    def save(self, path: Path) -> None:
        """Writes the adapters, the output layer, the configuration and the name of the model."""
        meta = {
            "model": self.model,
            "config": asdict(self.config),
            "seed": self.seed,
            "features": self.versions,
            "scale": self.scale,
            "strength": self.strength,
            "architecture": None if self._tuned is None else self._tuned.architecture,
        }
        write_model(path, NAME, meta, {} if self._tuned is None else self._tuned.weights())

    @classmethod
    def load(cls, path: Path, **parts: Any) -> HfClassifier:
        """Reads what ``save`` wrote, and the model that it was trained on.

        Args:
            path: The file.
            parts: Arguments of the constructor that no file holds: ``threads``, ``device``..., and
                ``model``, where the model now lies elsewhere.

        Raises:
            RecordError: The file cannot be read or is not such a file.
            VersionMismatchError: Written under another schema or version of texts.
            BadInputError: The model is not there, or is another one.
            MissingDependencyError: PyTorch, transformers or PEFT is not installed.
        """
        meta, arrays = read_model(path, NAME)
        require_packages()
        try:
            given = {"model": meta["model"], "seed": meta["seed"], **meta["config"], **parts}
            ranker = cls(**given)
            ranker.scale, ranker.strength = float(meta["scale"]), float(meta["strength"])
            architecture = meta["architecture"]
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(
                f"{path} is damaged ({error}): train it again with `foretune train`"
            ) from error
        check(path, meta, features=ranker.versions)
        if architecture is not None:
            ranker._restore(path, architecture, arrays)
        return ranker

    def _restore(self, path: Path, architecture: str, arrays: Mapping[str, Any]) -> None:
        from foretune import _torch

        device = _torch.choose_device(self.device)
        tuned = AdaptedModel(self.model, self.config, self.seed, device)
        if tuned.architecture != architecture:
            raise BadInputError(
                f"{path} was trained on {architecture}, but {self.model} is "
                f"{tuned.architecture}: give the model it was trained on"
            )
        tuned.restore(arrays)
        self._tuned = tuned


def _decisions(program: Program) -> Decisions:
    if program.candidate is not None:
        return decision_words(program.candidate)
    return tuple(
        (name, str(value)) for name, value in sorted((program.configuration or {}).items())
    )
