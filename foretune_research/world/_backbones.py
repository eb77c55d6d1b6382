"""The networks that read programs, in PyTorch.

Imported when an encoder is made, never earlier: PyTorch is optional. A backbone takes token numbers
and a mask, both of shape (windows, longest), and gives a vector per token, shape (windows, longest,
width); its ``width`` says how wide. ``EncoderNetwork`` makes one vector of all of a program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from foretune._arrays import IntArray
from foretune_research.world._tokenizer import batches, windows

if TYPE_CHECKING:
    from foretune_research.world.encoder import EncoderConfig

_BUDGET = 8192
"""Tokens that go through a backbone at once."""
_PRIMES = (2, 3, 5, 7)
_POWERS = 10
_FREQUENCIES = (0.125, 0.25, 0.5, 1.0, 2.0)
"""Of waves over the logarithm of a number."""


def number_features(values: Tensor) -> Tensor:
    """What is read of whole numbers, so that like ones are alike; float32 of shape (n, 15).

    ``log2(1 + x)``, how often 2, 3, 5 and 7 divide x (10 times at most), and sine and cosine of
    ``log2(1 + x)`` at five frequencies, which tell near numbers apart.

    Args:
        values: At least 0, int64 of shape (n,).
    """
    size = torch.log2(1.0 + values.double())
    columns = [size / 8.0]
    for prime in _PRIMES:
        divides = [values % prime**power == 0 for power in range(1, _POWERS + 1)]
        count = torch.stack(divides).sum(dim=0) * (values > 0)
        columns.append(count.double() / 4.0)
    for frequency in _FREQUENCIES:
        angle = 2.0 * math.pi * frequency * size
        columns += [angle.sin(), angle.cos()]
    return torch.stack(columns, dim=1).float()


class CompactBackbone(nn.Module):
    """A small transformer, normalised before each layer, trained from scratch.

    Args:
        vocabulary: Tokens that are words; a token V + x is the number x, see ``number_features``.
        width: Of everything inside; feed-forward layers are twice as wide.
        layers: Of attention and feed-forward.
        heads: They divide ``width``.
        longest: Tokens of a window at most.
        dropout: On what a layer adds and on what goes in. Not on the attention's weights: that
            would keep PyTorch from its fast attention.
    """

    def __init__(
        self, vocabulary: int, width: int, layers: int, heads: int, longest: int, dropout: float
    ) -> None:
        super().__init__()
        self.width = width
        self.tokens = nn.Embedding(vocabulary, width)
        self.numbers = nn.Sequential(
            nn.Linear(number_features(torch.zeros(1)).shape[1], width),
            nn.GELU(),
            nn.Linear(width, width),
        )
        self.positions = nn.Parameter(torch.randn(longest, width) * 0.1)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def _embedded(self, tokens: Tensor) -> Tensor:
        """A vector per token; each distinct one is made once."""
        first = self.tokens.num_embeddings
        values, back = torch.unique(tokens, return_inverse=True)
        words = self.tokens(values.clamp(max=first - 1))
        numbers = self.numbers(number_features((values - first).clamp(min=0)))
        return functional.embedding(back, torch.where((values < first)[:, None], words, numbers))

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Shapes (n, longest), (n, longest) -> (n, longest, width)."""
        states = self.dropout(self._embedded(tokens) + self.positions[: tokens.shape[1]])
        # Without fillers, attention is faster when it need not look for them.
        seen = None if bool(mask.all()) else mask[:, None, None, :]
        for block in self.blocks:
            states = block(states, seen)
        out: Tensor = self.norm(states)
        return out


class _Block(nn.Module):
    """Attention, then two layers per token; each adds to what goes in."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.each = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Linear(2 * width, width),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, seen: Tensor | None) -> Tensor:
        n, longest, width = states.shape
        parts = self.project(self.before(states)).view(n, longest, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        mixed = self.mix(mixed.transpose(1, 2).reshape(n, longest, width))
        states = states + self.dropout(mixed)
        out: Tensor = states + self.dropout(self.each(states))
        return out


class CodebertBackbone(nn.Module):
    """CodeBERT (Feng et al., EMNLP 2020), or another model of the RoBERTa family.

    Args:
        model: ``transformers.RobertaModel`` without its pooling layer.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.width = int(model.config.hidden_size)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Shapes (n, longest), (n, longest) -> (n, longest, width)."""
        out: Tensor = self.model(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        return out


class EncoderNetwork(nn.Module):
    """Windows through a backbone, the mean over tokens, a projection, length 1 (paper, 3.3).

    The mean over the tokens of a window comes first, then that over windows, weighted by their
    tokens: in sum, the mean over all tokens that were read.

    Args:
        backbone: Reads windows.
        config: Says how windows are cut and how many numbers a state has.
        pad: Number of the token that fills up.
        around: Tokens before and after the text in every window.
    """

    def __init__(
        self,
        backbone: CompactBackbone | CodebertBackbone,
        config: EncoderConfig,
        *,
        pad: int,
        around: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> None:
        super().__init__()
        width = backbone.width
        self.backbone = backbone
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, config.dimension)
        )
        room = config.window - len(around[0]) - len(around[1])
        self._windows = (room, config.stride, config.windows)
        self._pad, self._around = pad, around

    @property
    def longest(self) -> int:
        """Tokens of a text that are all read."""
        room, stride, count = self._windows
        return room + (count - 1) * stride

    def forward(self, texts: Sequence[IntArray]) -> Tensor:
        """Tokens of n texts -> states of length 1, shape (n, dimension)."""
        return functional.normalize(self.head(self.pooled(texts)), dim=1, eps=1e-6)

    def pooled(self, texts: Sequence[IntArray]) -> Tensor:
        """Tokens of n texts -> mean vector of each text's tokens, shape (n, width)."""
        pieces: list[IntArray] = []
        owners: list[int] = []
        before, after = self._around
        for owner, tokens in enumerate(texts):
            for window in windows(len(tokens), *self._windows):
                pieces.append(np.concatenate([before, tokens[window], after]).astype(np.int64))
                owners.append(owner)
        device = next(self.parameters()).device
        owner_of = torch.tensor(owners, device=device)
        sums = torch.zeros(len(texts), self.backbone.width, device=device)
        counts = torch.zeros(len(texts), 1, device=device)
        for at, rows, lengths in batches(pieces, self._pad, _BUDGET):
            mask = torch.arange(rows.shape[1]) < torch.from_numpy(lengths)[:, None]
            mask = mask.to(device)
            hidden = self.backbone(torch.from_numpy(rows).to(device), mask)
            owner_at = owner_of[torch.from_numpy(at).to(device)]
            sums = sums.index_add(0, owner_at, (hidden * mask[..., None]).sum(dim=1).float())
            counts = counts.index_add(0, owner_at, mask.sum(dim=1, keepdim=True).float())
        return sums / counts
