"""The state encoder: the text of a program becomes a point on a sphere.

Idea: a transformer reads overlapping windows of the text, the mean over its tokens is projected and
brought to length 1; programs are alike as the cosine of their points says. It is trained by
``foretune_research.world.contrastive`` and frozen afterwards: the points of a program's states are
what the transition model learns to predict.

Source: Pan et al., Toward Compiler World Models, 2026, section 3.3. Two backends read the text:
``codebert`` is the paper's, and ``compact``, the default, is a small transformer with a tokenizer
of its own, both trained from scratch, which reads hundreds of programs a second on one core.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foretune._arrays import Array, Float32Array, IntArray
from foretune._model_file import Arrays, check
from foretune._options import Bounds, Count, Fraction, require_options
from foretune.errors import BadInputError, MissingDependencyError, RecordError, unknown_name
from foretune.world._part import Part, require
from foretune_research.world._tokenizer import (
    PAD,
    numbered_tokens,
    read_tokenizer,
    tokens_of,
    train_tokenizer,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from foretune_research.world._backbones import EncoderNetwork


SCHEMA = "foretune.state-encoder/1"
"""Of what ``StateEncoder.dump`` gives. Another number when weights or windows change meaning."""

_AT_ONCE = 512
"""Texts encoded before the next are cut into tokens."""


@dataclass(frozen=True)
class EncoderConfig(abc.ABC):
    """What every encoder has.

    Attributes:
        dimension: Numbers of a state's vector.
        window: Tokens that are read at once, those that mark beginning and end among them.
        stride: Tokens from the start of a window to that of the next; less than ``window``, so that
            windows overlap.
        windows: Windows of a text at most. Of a longer text, so many are read, spread evenly from
            its beginning to its end.
        dropout: Share of numbers left out at random in training.
    """

    backend: ClassVar[str]
    published: ClassVar[bool] = False
    """Whether the backbone has learned from others' texts before."""

    dimension: Count = 128
    window: int = 512
    stride: int = 256
    windows: Count = 4
    dropout: Fraction = 0.1

    def __post_init__(self) -> None:
        require_options("state encoder", self)
        rule, got = "1 <= stride <= window - 2", f"stride={self.stride}, window={self.window}"
        self._require(rule, 1 <= self.stride <= self.window - 2, got)

    def _require(self, rule: str, holds: bool, value: object) -> None:
        if not holds:
            raise BadInputError(f"state encoder: {rule} must hold, but got {value}")

    @abc.abstractmethod
    def fresh(self, texts: Sequence[str]) -> tuple[Tokenizer, dict[str, Any], EncoderNetwork]:
        """A tokenizer, what has to be known to make the network again, and the network."""

    @abc.abstractmethod
    def network(self, architecture: Mapping[str, Any]) -> EncoderNetwork:
        """The network with weights drawn from PyTorch's generator."""


@dataclass(frozen=True)
class CompactConfig(EncoderConfig):
    """A small transformer trained from scratch.

    Attributes:
        vocabulary: Tokens at most.
        layers: Of attention and feed-forward.
        width: Of the layers.
        heads: Of the attention; they divide ``width``.
    """

    backend: ClassVar[str] = "compact"

    vocabulary: Annotated[int, Bounds(ge=257)] = 1024
    layers: Count = 2
    width: Count = 128
    heads: Count = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        got = f"heads={self.heads}, width={self.width}"
        self._require("heads divides width", self.width % self.heads == 0, got)

    def fresh(self, texts: Sequence[str]) -> tuple[Tokenizer, dict[str, Any], EncoderNetwork]:
        """The tokenizer is trained on the texts."""
        tokenizer = train_tokenizer(texts, self.vocabulary)
        architecture = {"vocabulary": tokenizer.get_vocab_size(), "pad": tokenizer.token_to_id(PAD)}
        return tokenizer, architecture, self.network(architecture)

    def network(self, architecture: Mapping[str, Any]) -> EncoderNetwork:
        """A transformer over the vocabulary that the tokenizer found."""
        from foretune_research.world._backbones import CompactBackbone, EncoderNetwork

        vocabulary = architecture["vocabulary"]
        backbone = CompactBackbone(
            vocabulary, self.width, self.layers, self.heads, self.window, self.dropout
        )
        return EncoderNetwork(backbone, self, pad=architecture["pad"])


@dataclass(frozen=True)
class CodebertConfig(EncoderConfig):
    """CodeBERT, or another model of its architecture.

    Attributes:
        source: Folder with the model and its tokenizer, or its name on the Hugging Face hub, from
            where it is downloaded.
    """

    backend: ClassVar[str] = "codebert"
    published: ClassVar[bool] = True

    window: int = 512
    stride: int = 256
    windows: int = 16
    source: str = "microsoft/codebert-base"

    def fresh(self, texts: Sequence[str]) -> tuple[Tokenizer, dict[str, Any], EncoderNetwork]:
        """Tokenizer and backbone are those of ``source``; the projection is new."""
        require("transformers")
        from transformers import AutoTokenizer, RobertaModel

        try:
            published = AutoTokenizer.from_pretrained(self.source, use_fast=True)
            model = RobertaModel.from_pretrained(self.source, add_pooling_layer=False)
        # What the package raises on folders and names it cannot use.
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            first = str(error).strip().partition("\n")[0]
            raise BadInputError(
                f"state encoder: source must be a folder or a hub's name of a RoBERTa model with "
                f"its tokenizer, but got {self.source!r} ({first}): give a folder that holds "
                "config.json, the weights and the tokenizer's files"
            ) from error
        architecture = {
            "roberta": model.config.to_dict(),
            "pad": model.config.pad_token_id,
            "around": [[published.cls_token_id], [published.sep_token_id]],
        }
        network = self.network(architecture)
        network.backbone.load_state_dict({f"model.{k}": v for k, v in model.state_dict().items()})
        return published.backend_tokenizer, architecture, network

    def network(self, architecture: Mapping[str, Any]) -> EncoderNetwork:
        """The architecture that ``source`` has."""
        require("transformers")
        from transformers import RobertaConfig, RobertaModel

        from foretune_research.world._backbones import CodebertBackbone, EncoderNetwork

        pad = architecture["pad"]
        config = RobertaConfig.from_dict(
            {
                **architecture["roberta"],
                "hidden_dropout_prob": self.dropout,
                "attention_probs_dropout_prob": self.dropout,
            }
        )
        # RoBERTa counts positions from the number of its filler on.
        longest = config.max_position_embeddings - pad - 1
        self._require(f"window <= {longest} of {self.source}", self.window <= longest, self.window)
        before, after = architecture["around"]
        backbone = CodebertBackbone(RobertaModel(config, add_pooling_layer=False))
        return EncoderNetwork(backbone, self, pad=pad, around=(before, after))


_BACKENDS: Mapping[str, type[EncoderConfig]] = {
    kind.backend: kind for kind in (CompactConfig, CodebertConfig)
}


def encoder_config(backend: str = "compact", **options: Any) -> EncoderConfig:
    """The configuration of a backend, with some options set.

    Raises:
        BadInputError: Unknown backend or option, or a value that makes no sense.
    """
    if backend not in _BACKENDS:
        raise unknown_name("backend of a state encoder", backend, _BACKENDS)
    kind = _BACKENDS[backend]
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            raise unknown_name(f"option of the {backend} encoder", name, known)
    return kind(**options)


class StateEncoder(Part):
    """Texts to vectors; made by ``fresh`` or ``load``, trained by ``contrastive.train_encoder``.

    Attributes:
        config: What was chosen.
        tokenizer: Cuts texts into tokens.
        network: Reads them; its weights are those that are asked.
        threads: Threads PyTorch may use here; None: as many as it would otherwise.
    """

    def __init__(
        self,
        config: EncoderConfig,
        tokenizer: Tokenizer,
        architecture: Mapping[str, Any],
        network: EncoderNetwork,
        *,
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        from foretune._torch import choose_device

        self.config = config
        self.tokenizer = tokenizer
        self.network = network.to(choose_device(device)).eval()
        self.threads = threads
        self._architecture = dict(architecture)

    @classmethod
    def fresh(
        cls,
        texts: Sequence[str],
        config: EncoderConfig | None = None,
        *,
        seed: int = 0,
        device: str | None = None,
        threads: int | None = None,
    ) -> StateEncoder:
        """An encoder that has learned nothing but what its backbone was published with.

        Args:
            texts: What a tokenizer is trained on, for the backend that has its own.
            config: What it is; the compact one if None.
            seed: Of the weights. The same seed and texts give the same encoder.
            device: PyTorch's name of a device; None: a CUDA device where there is one.
            threads: See the class.

        Raises:
            BadInputError: The device or the published model cannot be used.
            MissingDependencyError: An optional package is not installed.
        """
        require("torch", "tokenizers")
        from foretune._torch import seeded
        from foretune.world._weights import finished

        config = CompactConfig() if config is None else config
        with seeded(seed):
            tokenizer, architecture, network = config.fresh(texts)
        finished(network, 0.0)
        return cls(config, tokenizer, architecture, network, device=device, threads=threads)

    @property
    def width(self) -> int:
        """Numbers of what ``pooled`` gives."""
        return self.network.backbone.width

    @property
    def longest(self) -> int:
        """Tokens of a text that are all read; of a longer one, windows are spread over it."""
        return self.network.longest

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """The states of programs, float32 of shape (n, dimension) and length 1.

        The same text gives the same vector, but for rounding where others are encoded beside it.

        Raises:
            BadInputError: A text is empty.
        """
        return self._asked(texts, self.config.dimension, project=True)

    def pooled(self, texts: Sequence[str]) -> Float32Array:
        """What the backbone alone says of texts, float32 of shape (n, width).

        The mean over the tokens, before the projection: for texts that are no programs, such as
        actions (paper, 3.4).

        Raises:
            BadInputError: A text is empty.
        """
        return self._asked(texts, self.width, project=False)

    def tokens(self, texts: Sequence[str]) -> list[IntArray]:
        """The tokens of texts as the network reads them."""
        cut = tokens_of if self.config.published else numbered_tokens
        return cut(self.tokenizer, texts)

    def _asked(self, texts: Sequence[str], columns: int, project: bool) -> Float32Array:
        import torch

        from foretune._torch import limited_threads

        distinct = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        known, found = list(distinct), np.zeros((len(distinct), columns), np.float32)
        with limited_threads(self.threads), torch.inference_mode():
            for start in range(0, len(known), _AT_ONCE):
                tokens = self.tokens(known[start : start + _AT_ONCE])
                out = self.network(tokens) if project else self.network.pooled(tokens)
                found[start : start + len(tokens)] = out.cpu().numpy()
        return found[[distinct[text] for text in texts]]

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        """All of the encoder as a JSON object and arrays, to be stored in a file of one's own."""
        from foretune.world._weights import weights_of

        meta = {
            "schema": SCHEMA,
            "backend": self.config.backend,
            "config": asdict(self.config),
            "tokenizer": self.tokenizer.to_str(),
            "architecture": self._architecture,
        }
        return meta, weights_of(self.network)

    @classmethod
    def restore(
        cls,
        meta: Mapping[str, Any],
        arrays: Mapping[str, Array],
        *,
        device: str | None = None,
        threads: int | None = None,
    ) -> StateEncoder:
        """What ``dump`` gave becomes an encoder that answers alike.

        Raises:
            VersionMismatchError: Written under another schema.
            RecordError: Something is missing or does not fit.
            MissingDependencyError: An optional package is not installed.
        """
        check("the state encoder", meta, schema=SCHEMA)
        require("torch", "tokenizers")
        from foretune._torch import seeded
        from foretune.world._weights import with_weights

        try:
            config = encoder_config(meta["backend"], **meta["config"])
            architecture = meta["architecture"]
            with seeded(0):
                network = config.network(architecture)
            with_weights(network, arrays)
            tokenizer = read_tokenizer(meta["tokenizer"])
        except MissingDependencyError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError, BadInputError) as error:
            raise RecordError(
                f"a stored state encoder is damaged ({error}): train it again"
            ) from error
        return cls(config, tokenizer, architecture, network, device=device, threads=threads)
