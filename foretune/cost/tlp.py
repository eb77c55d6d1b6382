"""Self-attention over scheduling steps: TLP, MTL-TLP, and what we would change about them.

Idea: a schedule is read as a sentence. Every scheduling step is a token, the one-hot of its kind
and its arguments as numbers; self-attention relates the steps, and a decoder gives each a number,
whose sum is the score. No program is made, so that scoring costs microseconds. MTL-TLP has one
decoder per hardware on one trunk.

Symbols: a program has rows of shape (steps, width), the tokens of ``features.action_tokens``.

``variant="reference"`` is the published model (Zhai et al., TLP, ASPLOS 2023; ``tlp_train.py`` and
``mtl_tlp_train.py`` of its repository): 25 steps of 22 numbers for a CPU (40 of 20 for a GPU, as
options), 64 -> 128 -> 256 -> 256, 8-head attention, two residual blocks, decoder 256 -> 128 -> 64
-> 1; LambdaRank over 1,024 shuffled programs, Adam at a constant 7e-4, 50 epochs, the best of them
by the loss on a tenth of the rows. The layer ``l0`` of the published code is left out: nothing uses
it. What differs: numbers are logarithms, see ``foretune.features.tokens``; and weights are rounded
to 16 bits when training ends.

The default repairs what the reference does wrong: its lists mix workloads; the zeros that fill up
a short schedule are attended to and added to the sum; nothing tells the first step from the last;
long schedules are cut off; and the rows that choose the epoch are of workloads trained on. Hardware
factors are added to every step, so that one decoder serves many machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from foretune.cost._examples import Examples, hardware_context
from foretune.cost._neural import PUBLISHED, NeuralConfig, NeuralRanker
from foretune.errors import unknown_name

if TYPE_CHECKING:
    from torch import nn

    from foretune.dataset import Group, Program
    from foretune.hardware import Hardware

TokenReader = Callable[..., "tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]"]
"""Called as ``action_tokens(programs, machine, steps, width, reference=...)``."""

_HEADS = ("single", "hardware")


@dataclass(frozen=True)
class TlpConfig(NeuralConfig):
    """The network and how it is trained; see ``NeuralConfig`` for what all networks have.

    Attributes:
        steps: Steps that are read, from the first.
        width: Numbers per step.
        published_kinds: One-hot over TLP's eleven primitives instead of all kinds of actions.
        embed: Widths of the layers that every step passes by itself.
        attention_heads: Heads; they divide the last of ``embed``.
        decoder: Widths of the decoder but for its last layer, which is 1.
        masked: Whether steps that only fill up are left out.
        positions: Whether a learned vector per position is added.
        heads: ``"single"``: one decoder; ``"hardware"``: one per hardware of the training data
            (MTL-TLP). On other hardware the decoder of the nearest answers, by its factors; where
            these are unknown, the score is the mean of all decoders.
    """

    ranker: ClassVar[str] = "tlp"
    published: ClassVar[Mapping[str, Any]] = {
        **PUBLISHED,
        "batch": 1024,
        "select": "rows",
        "scaling": "none",
        "steps": 25,
        "width": 22,
        "published_kinds": True,
        "embed": (64, 128, 256, 256),
        "decoder": (256, 128, 64),
        "masked": False,
        "positions": False,
    }

    steps: int = 64
    width: int = 64
    published_kinds: bool = False
    embed: tuple[int, ...] = (64, 128, 128)
    attention_heads: int = 8
    decoder: tuple[int, ...] = (128, 64)
    masked: bool = True
    positions: bool = True
    heads: str = "single"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("embed", "decoder"):
            # Read from a file, they are lists.
            widths = tuple(getattr(self, name))
            object.__setattr__(self, name, widths)
            self.require(f"{name}: every width >= 1", bool(widths) and min(widths) >= 1, widths)
        for name in ("steps", "width", "attention_heads"):
            self.require(f"{name} >= 1", getattr(self, name) >= 1, getattr(self, name))
        self.require(
            f"attention_heads divides the last of embed, {self.embed[-1]},",
            self.embed[-1] % self.attention_heads == 0,
            self.attention_heads,
        )
        # What fills up has no position of its own.
        self.require(
            "masked, where there are positions,", self.masked or not self.positions, self.masked
        )
        if self.heads not in _HEADS:
            raise unknown_name(f"heads of {self.ranker}", self.heads, _HEADS)


class TlpRanker(NeuralRanker):
    """Self-attention over scheduling steps (TLP, and MTL-TLP with a head per hardware).

    Args:
        seed: Of weights, order and dropout.
        variant: ``"default"``, or ``"reference"`` for the published model.
        read_tokens: What is called in place of ``features.action_tokens``.
        feature_version: Version of what ``read_tokens`` gives; a saved model with another is
            refused.
        threads: Threads PyTorch may use; None: as many as it would otherwise.
        device: PyTorch's name of a device; None: a CUDA device where there is one.
        options: Fields of ``TlpConfig``.

    Raises:
        BadInputError: Unknown variant or option, or a value that makes no sense.
    """

    reads_programs: bool = False
    config_type: ClassVar[type[NeuralConfig]] = TlpConfig
    config: TlpConfig

    def __init__(
        self,
        *,
        seed: int = 0,
        variant: str = "default",
        read_tokens: TokenReader | None = None,
        feature_version: int | str | None = None,
        threads: int | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(seed=seed, variant=variant, threads=threads, device=device, **options)
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

    @classmethod
    def _base_names(cls) -> tuple[str, ...]:
        return ("tlp", "mtl_tlp")

    def _base_name(self) -> str:
        return "tlp" if self.config.heads == "single" else "mtl_tlp"

    def _hardware_heads(self, groups: Sequence[Group]) -> tuple[str, ...]:
        if self.config.heads == "single":
            return ()
        return tuple(sorted({group.hardware for group in groups}))

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
    ) -> tuple[Examples, npt.NDArray[np.bool_]]:
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
