"""Self-attention over scheduling steps: TLP, and what we would change about it.

Idea: a schedule is read as a sentence. Every scheduling step is a token, the one-hot of its kind
and its arguments as numbers; self-attention relates the steps, and a decoder gives each a number,
whose sum is the score. No program is made, so that scoring costs microseconds.

Symbols: a program has rows of shape (steps, width), the tokens of ``features.action_tokens``.

The published model is in ``foretune_research.neural`` (``tlp:reference``), and so is MTL-TLP.

What is here repairs what the published one does wrong: its lists mix workloads; the zeros that fill
up a short schedule are attended to and added to the sum; nothing tells the first step from the
last; long schedules are cut off; and the rows that choose the epoch are of workloads trained on.
Hardware factors are added to every step, so that one decoder serves many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._arrays import BoolArray, Float32Array
from foretune._options import Count
from foretune.cost._examples import Examples, hardware_context
from foretune.cost._neural import NeuralConfig, NeuralRanker
from foretune.cost._ranker import Needs

if TYPE_CHECKING:
    from torch import nn

    from foretune.dataset import Program
    from foretune.hardware import Hardware

TokenReader = Callable[..., "tuple[Float32Array, BoolArray]"]
"""Called as ``action_tokens(programs, machine, steps, width, reference=...)``."""


@dataclass(frozen=True)
class TlpConfig(NeuralConfig):
    """The network and how it is trained; see ``NeuralConfig`` for what all networks have.

    Attributes:
        steps: Steps that are read, from the first.
        embed: Widths of the layers that every step passes by itself.
    """

    ranker: ClassVar[str] = "tlp"

    width: ClassVar[int] = 64
    published_kinds: ClassVar[bool] = False
    attention_heads: ClassVar[int] = 8
    decoder: ClassVar[tuple[int, ...]] = (128, 64)
    masked: ClassVar[bool] = True
    positions: ClassVar[bool] = True
    heads: ClassVar[str] = "single"

    steps: Count = 64
    embed: tuple[int, ...] = (64, 128, 128)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_widths("embed")
        self.require(
            f"attention_heads divides the last of embed, {self.embed[-1]},",
            self.embed[-1] % self.attention_heads == 0,
            self.attention_heads,
        )

    def require_widths(self, name: str) -> None:
        """Makes a tuple of widths, which a file has as a list, and refuses what are none.

        Raises:
            BadInputError: There is none, or one is less than 1.
        """
        widths = tuple(getattr(self, name))
        object.__setattr__(self, name, widths)
        self.require(f"{name}: every width >= 1", bool(widths) and min(widths) >= 1, widths)


class TlpRanker(NeuralRanker):
    """Self-attention over scheduling steps (TLP).

    Args:
        seed: Of weights, order and dropout.
        read_tokens: What is called in place of ``features.action_tokens``.
        feature_version: Version of what ``read_tokens`` gives; a saved model with another is
            refused.
        options: ``threads`` and ``device`` as of ``NeuralRanker``, and fields of ``TlpConfig``.

    Raises:
        BadInputError: Unknown option, or a value that makes no sense.
    """

    needs: Needs = replace(
        NeuralRanker.needs,
        options={**NeuralRanker.needs.options, "feature_version": None, "read_tokens": None},
    )
    config_type: ClassVar[type[NeuralConfig]] = TlpConfig
    config: TlpConfig

    def __init__(
        self,
        *,
        seed: int = 0,
        read_tokens: TokenReader | None = None,
        feature_version: int | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(seed=seed, **options)
        self._given_tokens = read_tokens
        self._feature_version = feature_version

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the tokens, the hardware's factors and how they are read."""
        from foretune import features, hardware
        from foretune.features.tokens import TOKEN_VERSION

        given = self._feature_version
        return {
            "tokens": given if given is not None else TOKEN_VERSION,
            "hardware": hardware.FEATURE_VERSION,
            "machine": features.MACHINE_FEATURE_VERSION,
        }

    def _network(self, width: int, columns: int, outputs: int) -> nn.Module:
        from foretune.cost._networks import StepNetwork

        config = self.config
        return StepNetwork(
            width,
            columns,
            outputs,
            steps=config.steps,
            embed=config.embed,
            attention_heads=config.attention_heads,
            blocks=config.blocks,
            decoder=config.decoder,
            masked=config.masked,
            positions=config.positions,
            norm=config.norm,
            dropout=config.dropout,
        )

    def _examples(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Examples, BoolArray]:
        config = self.config
        tokens, mask = self._tokens()(
            programs, machine, config.steps, config.width, reference=config.published_kinds
        )
        mask = mask.copy()
        # A schedule without a step is one empty step.
        mask[~mask.any(axis=1), 0] = True
        context = hardware_context(machine, len(programs))
        if not config.hardware:
            context = context[:, :0]
        examples = Examples(
            np.asarray(tokens, np.float32)[mask], mask.sum(axis=1, dtype=np.intp), context
        )
        return examples, np.ones(len(programs), dtype=bool)

    def _tokens(self) -> TokenReader:
        if self._given_tokens is not None:
            return self._given_tokens
        from foretune.features.tokens import action_tokens

        return action_tokens
