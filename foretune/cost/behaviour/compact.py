"""The compact network of the first stage: a small transformer over tokens, one score.

A linear layer per token, blocks of self-attention and a perceptron (normalised before each), then a
perceptron over what the device's token, which stands first, has gathered and the mean of all. The
order of tokens is in their columns (``order``, ``depth``...), so that there are no positions and
what has no token, a loop of one iteration, changes nothing.

Imported when a ranker makes a network, never earlier: PyTorch is optional.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretune.cost._networks import SelfAttention, by_length, laid_out


class Block(nn.Module):
    """x -> x + attention(norm(x)) -> x + perceptron(norm(x))."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Shapes (n, tokens, width), (n, tokens) -> (n, tokens, width)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), bias))
        change: Tensor = self.dropout(self.inner(self.norm(x)))
        return x + change


class CompactNetwork(nn.Module):
    """Tokens to one score.

    Args:
        columns: Of a token.
        width: Of the states.
        blocks: Blocks of attention and perceptron.
        heads: Of the attention; they divide ``width``.
        dropout: On the change that each block makes.
    """

    def __init__(
        self, columns: int, width: int = 64, blocks: int = 2, heads: int = 4, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(columns, width), nn.GELU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(2 * width)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, rows: Tensor, counts: Tensor, context: Tensor) -> Tensor:
        """Scores, shape (n, 1); every program has at least one token, its first the device's."""
        return by_length(rows, counts, context, self.encoder, self._decoded)

    def _decoded(self, encoded: Tensor, counts: Tensor, _context: Tensor) -> Tensor:
        states, there = laid_out(encoded, counts)
        times = there.to(states.dtype)
        # log 0 = -inf: no attention to what is not there.
        bias = times.log()
        for block in self.blocks:
            states = block(states, bias)
        mean = (states * times[..., None]).sum(dim=1) / counts[:, None]
        scores: Tensor = self.head(self.norm(torch.cat([states[:, 0], mean], dim=1)))
        return scores
