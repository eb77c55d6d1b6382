"""The first stage as published: a language model with one linear output, fine-tuned by LoRA.

Idea: LLMTuner gives a causal language model (Qwen2.5-0.5B-Instruct) a role, the device, what
programs are judged by and the text of a program, puts a linear layer on the last hidden state, and
trains both to say *good* or *bad*. Any causal model of transformers serves, from a folder or from
the hub; PEFT's low-rank adapters are trained and kept, not the model.

What differs: the program stands last and everything that is the same for the programs of a device
first, so that this part is computed once (the paper has the program first); labels may also be
compared by rank, as in ``foretune.cost.behaviour.classifier``.

The state that is looked at is that of the last token which only fills up no more: texts are filled
up behind, and the model is told the number of the filler. Transformers and PEFT are optional.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from foretune._model_file import check
from foretune._options import refuse_unknown, require_types
from foretune.cost._base import FloatArray
from foretune.cost._examples import group_batches
from foretune.cost._ranker import Ranker, fitted_scale, fitted_strength
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost.behaviour import reading
from foretune.cost.behaviour.labels import SAMPLINGS, ClassWeights, lesson
from foretune.dataset import judgeable
from foretune.describe.text import TEXT_VERSION, criteria_text, device_text, program_text
from foretune.describe.words import Decisions, decision_words
from foretune.errors import BadInputError, MissingDependencyError, RecordError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor

    from foretune.cost._networks import Loss
    from foretune.cost.behaviour.classifier import NestReader
    from foretune.cost.behaviour.reading import Batches
    from foretune.dataset import Group, Program
    from foretune.hardware import Device, Hardware

PROMPT_VERSION = 1
"""Raised whenever the prompt around a program's text changes."""

NAME = "classifier:hf"

_ROLE = """\
You judge tensor programs. Say whether the schedule below is good, which means among the fastest for
its computation on this device, or bad."""
_CHUNK = 16
"""Programs scored at once."""
_LEAST_PROGRAM = 64
"""Tokens that must be left for a program's text."""
_CHOICES: Mapping[str, Sequence[str]] = {
    "loss": ("mse", "bce", "rank"),
    "sampling": tuple(name for name in SAMPLINGS if name != "good_only"),
    "precision": ("float32", "bfloat16"),
}


@dataclass(frozen=True)
class HfConfig:
    """How a language model is fine-tuned.

    Attributes:
        loss, sampling: As in ``ClassifierConfig``.
        epochs: Passes over the data.
        batch: Programs per step.
        learning_rate: Step size of AdamW; of adapters it is larger than of whole models.
        clip: Norm of a step's gradient at most.
        rank, alpha, dropout: Of LoRA: width of the adapters, their scale over the rank, and share
            of inputs that is left out while training.
        max_length: Tokens of a prompt at most; the end of a longer one is cut off.
        precision: Of the model's weights.
        name_device: Whether the prompt says what the device is called.
    """

    loss: str = "mse"
    sampling: str = "paper"
    epochs: int = 2
    batch: int = 16
    learning_rate: float = 2e-4
    clip: float = 1.0
    rank: int = 16
    alpha: int = 32
    dropout: float = 0.05
    max_length: int = 2048
    precision: str = "float32"
    name_device: bool = True

    def __post_init__(self) -> None:
        require_types(NAME, self)
        for name in ("epochs", "rank", "alpha"):
            self._require(f"{name} >= 1", getattr(self, name) >= 1, name)
        self._require("batch >= 2", self.batch >= 2, "batch")
        for name in ("learning_rate", "clip"):
            self._require(f"{name} > 0", getattr(self, name) > 0, name)
        self._require("0 <= dropout < 1", 0 <= self.dropout < 1, "dropout")
        least = 2 * _LEAST_PROGRAM
        self._require(f"max_length >= {least}", self.max_length >= least, "max_length")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise unknown_name(f"{name} of {NAME}", getattr(self, name), known)

    def _require(self, rule: str, holds: bool, name: str) -> None:
        if not holds:
            raise BadInputError(f"{NAME}: {rule} must hold, but got {getattr(self, name)}")


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

    reads_nests: bool = True
    run_parts: ClassVar[Mapping[str, Any]] = {"threads": 1}

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
        self._tuned: _Tuned | None = None

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
        numbers: list[npt.NDArray[np.intp]] = []
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
            tuned = _Tuned(self.model, self.config, self.seed, _torch.choose_device(self.device))
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

    def _scores(
        self, prompts: Sequence[tuple[str, str]], legal: npt.NDArray[np.bool_]
    ) -> FloatArray:
        from foretune import _torch

        scores = np.full(len(legal), np.nan)
        if prompts:
            assert self._tuned is not None
            with _torch.limited_threads(self.threads):
                scores[legal] = self._tuned.scores(prompts)
        return scores

    def _prompts(
        self, group: Group, batches: Batches
    ) -> tuple[list[tuple[str, str]], npt.NDArray[np.bool_]]:
        return self._told(group.programs, batches, reading.device_of(group))

    def _told(
        self, programs: Sequence[Program], batches: Batches, device: Device | None
    ) -> tuple[list[tuple[str, str]], npt.NDArray[np.bool_]]:
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
        meta, arrays = read_model(path)
        if meta.get("ranker") != NAME:
            raise RecordError(f"{path} must hold the ranker {NAME!r}, but holds {meta['ranker']!r}")
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
        tuned = _Tuned(self.model, self.config, self.seed, device)
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


class _Tuned:
    """A language model with adapters and an output, on a device."""

    def __init__(self, model: str, config: HfConfig, seed: int, device: Any) -> None:
        import torch
        import transformers

        self.config, self._device = config, device
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                model, trust_remote_code=False
            )
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                base = transformers.AutoModelForSequenceClassification.from_pretrained(
                    model,
                    num_labels=1,
                    dtype=getattr(torch, config.precision),
                    trust_remote_code=False,
                )
                self._model = _with_adapters(base, config)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise BadInputError(
                f"{NAME}: {model} must be a causal language model of transformers, but cannot be "
                f"read ({str(error).splitlines()[0][:200]}): give a folder of `save_pretrained` or "
                "a name on the hub"
            ) from error
        pad = _filler(self._tokenizer, base)
        if pad is None:
            raise BadInputError(
                f"{NAME}: the tokenizer of {model} must have a filler or an end that the model "
                "knows, but has neither"
            )
        self._pad = pad
        # Newer releases call the states that are kept otherwise.
        known = inspect.signature(type(base).forward).parameters
        self._kept = "cache" if "cache" in known else "past_key_values"
        # Without it the state of a filler would be looked at.
        base.config.get_text_config().pad_token_id = self._pad
        self._model.to(device)
        self._prefixes: dict[str, list[int]] = {}

    @property
    def architecture(self) -> str:
        """What another model of the same name would differ in."""
        config = self._model.config
        layers, width = config.num_hidden_layers, config.hidden_size
        return f"{config.model_type}, {layers} layers of {width}, {config.vocab_size} tokens"

    def train(
        self,
        prompts: Sequence[tuple[str, str]],
        targets: FloatArray,
        numbers: npt.NDArray[np.intp],
        seed: int,
    ) -> None:
        """Fine-tunes adapters and output.

        Args:
            prompts: Prefix and program, n of them.
            targets: What scores are compared with, shape (n,).
            numbers: Of each program's group, shape (n,).
            seed: Of order and dropout.
        """
        import torch

        config, rng = self.config, np.random.default_rng(seed)
        told = [self._tokens(*prompt) for prompt in prompts]
        values = torch.tensor(targets, dtype=torch.float32, device=self._device)
        loss = _loss(config.loss, targets)
        trained = [p for p in self._model.parameters() if p.requires_grad]
        optimiser = torch.optim.AdamW(trained, lr=config.learning_rate)
        self._model.train()
        with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
            torch.manual_seed(seed)
            for _ in range(config.epochs):
                for batch in group_batches(numbers, config.batch, config.batch, rng):
                    optimiser.zero_grad()
                    scores = self._outputs([told[at] for at in batch.programs.tolist()])
                    at = torch.from_numpy(batch.lists).to(self._device)
                    there, at = at >= 0, at.clamp(min=0)
                    own = values[torch.from_numpy(batch.programs).to(self._device)]
                    loss(scores[at], own[at], there).mean().backward()  # type: ignore[no-untyped-call]
                    torch.nn.utils.clip_grad_norm_(trained, config.clip)
                    optimiser.step()
        self._model.eval()
        if not all(bool(torch.isfinite(p).all()) for p in trained):
            raise BadInputError(
                f"{NAME}: the weights grew without bound: lower learning_rate, which is "
                f"{config.learning_rate}"
            )

    def scores(self, prompts: Sequence[tuple[str, str]]) -> FloatArray:
        """Scores of programs, shape (n,); the prefix of several is read once."""
        import torch

        self._model.eval()
        found = np.zeros(len(prompts))
        by_prefix: dict[str, list[int]] = {}
        for row, (prefix, _) in enumerate(prompts):
            by_prefix.setdefault(prefix, []).append(row)
        with torch.inference_mode():
            for prefix, rows in by_prefix.items():
                head = self._prefix(prefix)
                told = {row: self._tokens(*prompts[row])[len(head) :] for row in rows}
                # Like lengths together: what fills up costs as much as what is read.
                rows.sort(key=lambda row: len(told[row]))
                kept = self._model(torch.tensor([head], device=self._device), use_cache=True)
                for start in range(0, len(rows), _CHUNK):
                    chunk = rows[start : start + _CHUNK]
                    scores = self._outputs(
                        [told[row] for row in chunk], getattr(kept, self._kept), len(head)
                    )
                    found[chunk] = scores.double().cpu().numpy()
        return found

    def _outputs(self, told: Sequence[list[int]], cache: Any = None, before: int = 0) -> Tensor:
        """Scores of some texts, shape (n,), filled up behind; ``before`` tokens are in a cache."""
        import torch

        longest = max(map(len, told))
        ids = torch.full((len(told), longest), self._pad, dtype=torch.long)
        mask = torch.zeros((len(told), before + longest), dtype=torch.long)
        for row, own in enumerate(told):
            ids[row, : len(own)] = torch.tensor(own)
            mask[row, : before + len(own)] = 1
        given: dict[str, Any] = {}
        if cache is not None:
            # Running a batch adds to what is kept.
            given[self._kept] = copy.deepcopy(cache)
            given[self._kept].batch_repeat_interleave(len(told))
        outputs = self._model(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            use_cache=cache is not None,
            **given,
        )
        scores: Tensor = outputs.logits[:, 0].float()
        return scores

    def _prefix(self, prefix: str) -> list[int]:
        if prefix not in self._prefixes:
            ids = self._tokenizer(prefix, add_special_tokens=False)["input_ids"]
            room = self.config.max_length - _LEAST_PROGRAM
            if len(ids) > room:
                raise BadInputError(
                    f"{NAME}: max_length >= {len(ids) + _LEAST_PROGRAM} must hold for this prompt, "
                    f"but got {self.config.max_length}"
                )
            self._prefixes[prefix] = list(ids)
        return self._prefixes[prefix]

    def _tokens(self, prefix: str, program: str) -> list[int]:
        """A prompt's tokens; those of the prefix by themselves, so that they can be kept."""
        head = self._prefix(prefix)
        ids = self._tokenizer(program + "Answer:", add_special_tokens=False)["input_ids"]
        return [*head, *ids[: self.config.max_length - len(head)]]

    def weights(self) -> dict[str, npt.NDArray[Any]]:
        """Adapters and output by name."""
        import peft

        state = peft.get_peft_model_state_dict(self._model)
        return {name: weight.detach().float().cpu().numpy() for name, weight in state.items()}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Takes what ``weights`` gave."""
        import peft
        import torch

        state = {name: torch.from_numpy(np.asarray(weight)) for name, weight in arrays.items()}
        peft.set_peft_model_state_dict(self._model, state)
        self._model.eval()


def _filler(tokenizer: Any, base: Any) -> int | None:
    """A token that fills up: the tokenizer's own, or its end; None if the model knows neither.

    A tokenizer may name a filler that its model was never given.
    """
    known = base.get_input_embeddings().num_embeddings
    fillers = (tokenizer.pad_token_id, tokenizer.eos_token_id)
    return next((int(each) for each in fillers if each is not None and each < known), None)


def _with_adapters(base: Any, config: HfConfig) -> Any:
    import peft

    return peft.get_peft_model(
        base,
        peft.LoraConfig(
            task_type=peft.TaskType.SEQ_CLS,
            r=config.rank,
            lora_alpha=config.alpha,
            lora_dropout=config.dropout,
            target_modules="all-linear",
        ),
    )


def _loss(name: str, targets: FloatArray) -> Loss:
    from foretune.cost._networks import lambda_rank

    if name == "rank":
        return lambda_rank
    weights = ClassWeights.of(targets > 0.5)
    return weights.mse if name == "mse" else weights.bce
