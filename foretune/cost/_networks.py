"""The networks of the neural rankers, and the losses that train them, in PyTorch.

Imported by ``foretune.cost._training`` and by a ranker that makes a network, never earlier: PyTorch
is optional.

Losses take scores, labels and a mask of shape (lists, longest) and give one number per list; the
networks take ``rows`` of shape (total, width), ``counts`` of shape (n,), which sum to total, and
``context`` of shape (n, columns), and give scores of shape (n, outputs).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretune.cost._listwise import SHARPNESS

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]

_LEAST_SUM = 1e-10
_BUCKET = 128
"""Programs that are filled up to the length of the longest among them."""


def lambda_rank(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """LambdaRank's bound on NDCG (Burges, 2010; as TenSet and TLP use it).

    The sum over pairs of a list where i is truly better than j of

        |1/D_i - 1/D_j| * |G_i - G_j| * log2(1 + exp(s_j - s_i))

    with ``D = log2(1 + rank by score)``, ``G = (2^label - 1) / best DCG``.
    """
    gains = torch.where(mask, 2.0**labels - 1.0, torch.zeros_like(labels))
    places = torch.arange(2, scores.shape[1] + 2, device=scores.device, dtype=scores.dtype)
    inverse_discount = 1.0 / torch.log2(places)
    ideal = gains.sort(dim=1, descending=True).values
    best = (ideal * inverse_discount).sum(dim=1, keepdim=True).clamp(min=_LEAST_SUM)
    present = scores.detach().masked_fill(~mask, -math.inf)
    rank = present.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    gains, inverse_discount = gains / best, inverse_discount[rank]
    weights = differences(gains).abs() * differences(inverse_discount).abs()
    lost = functional.softplus(-differences(scores)) / math.log(2.0)
    return (weights * lost * better(labels, mask)).sum(dim=(1, 2))


def list_net(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """ListNet's cross entropy of softmax(scores) with labels ** 4 over their sum.

    See ``foretune.cost._listwise``. A list of failures pulls nowhere.
    """
    share = torch.where(mask, labels**SHARPNESS, torch.zeros_like(labels))
    target = share / share.sum(dim=1, keepdim=True).clamp(min=_LEAST_SUM)
    likely = scores.masked_fill(~mask, -math.inf).log_softmax(dim=1)
    return -(target * likely.masked_fill(~mask, 0.0)).sum(dim=1)


def differences(values: Tensor) -> Tensor:
    """x_i - x_j, shape (lists, m) -> (lists, m, m)."""
    return values[:, :, None] - values[:, None, :]


def better(labels: Tensor, mask: Tensor) -> Tensor:
    """Whether i is truly better than j, and both are there."""
    return (labels[:, :, None] > labels[:, None, :]) & mask[:, :, None] & mask[:, None, :]


def layers(width: int, widths: Sequence[int]) -> nn.Sequential:
    """Linear layers, each followed by a rectifier."""
    parts: list[nn.Module] = []
    for before, after in itertools.pairwise((width, *widths)):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts)


class Residual(nn.Module):
    """x -> x + dropout(relu(linear(norm(x)))). Norm and dropout are left out as published."""

    def __init__(self, width: int, norm: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = _norm(width, norm)
        self.linear = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (..., width) -> (..., width)."""
        change: Tensor = self.dropout(functional.relu(self.linear(self.norm(x))))
        return x + change


def _norm(width: int, norm: bool) -> nn.Module:
    return nn.LayerNorm(width) if norm else nn.Identity()


class StoreNetwork(nn.Module):
    """TenSet's: a two-layer perceptron per store, the sum over stores, residual blocks, linear.

    Args:
        width: Columns of a store.
        columns: Columns of the context, which joins the sum over stores; 0: no such layer.
        hidden: Width of everything inside.
        blocks: Residual blocks.
        norm: Normalise what goes into the blocks. Not the sum itself: its size is what counts.
        dropout: Within the blocks.
    """

    def __init__(
        self,
        width: int,
        columns: int = 0,
        hidden: int = 256,
        blocks: int = 2,
        norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = layers(width, (hidden, hidden))
        self.join = layers(hidden + columns, (hidden,)) if columns else None
        self.blocks = nn.Sequential(*(Residual(hidden, norm, dropout) for _ in range(blocks)))
        self.out = nn.Linear(hidden, 1)

    def forward(self, rows: Tensor, counts: Tensor, context: Tensor) -> Tensor:
        """Scores, shape (n, 1)."""
        stores: Tensor = self.encoder(rows)
        program = torch.repeat_interleave(torch.arange(len(counts), device=rows.device), counts)
        state = stores.new_zeros(len(counts), stores.shape[1]).index_add(0, program, stores)
        if self.join is not None:
            state = self.join(torch.cat([state, context], dim=1))
        scores: Tensor = self.out(self.blocks(state))
        return scores


class SelfAttention(nn.Module):
    """Multi-head self-attention with a bias per key."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        # As PyTorch's own layer, which the published network uses, starts.
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Shapes (n, steps, width), (n, steps) -> (n, steps, width)."""
        n, steps, width = x.shape
        parts = self.project(x).view(n, steps, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        match = query @ key.transpose(2, 3) / math.sqrt(width // self.heads)
        mixed = (match + bias[:, None, None, :]).softmax(dim=-1) @ value
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(n, steps, width))
        return out


def by_length(
    rows: Tensor,
    counts: Tensor,
    context: Tensor,
    encode: Callable[[Tensor], Tensor],
    decode: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """Runs a network over programs of like length together.

    What fills up shorter ones to the length of the longest costs as much as they do.

    Args:
        rows, counts, context: As a network takes them.
        encode: Rows to rows, one by one.
        decode: Encoded rows, counts and context of some programs to shape (programs, outputs).

    Returns:
        Shape (n, outputs), in the order of the programs.
    """
    order = counts.argsort(stable=True)
    starts = (counts.cumsum(0) - counts)[order]
    lengths = counts[order]
    first = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    place = torch.arange(len(rows), device=rows.device) - first
    encoded = encode(rows[starts.repeat_interleave(lengths) + place])
    counted = torch.split(lengths, _BUCKET)
    scores = [
        decode(part, length, near)
        for part, length, near in zip(
            torch.split(encoded, [int(length.sum()) for length in counted]),
            counted,
            torch.split(context[order], _BUCKET),
            strict=True,
        )
    ]
    return torch.cat(scores)[order.argsort()]


def laid_out(encoded: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of programs filled up with zeros to (n, longest, width), and which are there."""
    n, longest = len(counts), int(counts.max())
    device = encoded.device
    program = torch.repeat_interleave(torch.arange(n, device=device), counts)
    place = torch.arange(len(encoded), device=device) - (counts.cumsum(0) - counts)[program]
    states = encoded.new_zeros(n, longest, encoded.shape[1])
    states = states.index_put((program, place), encoded)
    return states, torch.arange(longest, device=device)[None, :] < counts[:, None]


class StepNetwork(nn.Module):
    """TLP's: linear layers per step, self-attention, residual blocks, a decoder summed over steps.

    The published network fills every program up to ``steps`` with steps of zeros, and these take
    part like any other: they draw attention and add to the sum. All fillers of a program are alike,
    so one stands for all here: it counts as many times in the attention and in the sum.

    Args:
        width: Columns of a step.
        columns: Columns of the context, which is added to every step; 0: none.
        outputs: Decoders, one per hardware.
        steps: Steps of a program at most.
        embed: Widths of the layers per step.
        attention_heads: Heads; they divide the last of ``embed``.
        blocks: Residual blocks.
        decoder: Widths of a decoder's layers but for the last, which is 1.
        masked: Leave fillers out.
        positions: Add a learned vector per position.
        norm: Normalise what goes into attention, blocks and decoder.
        dropout: On the attention's result and within the blocks.
    """

    def __init__(
        self,
        width: int,
        columns: int = 0,
        outputs: int = 1,
        steps: int = 25,
        embed: Sequence[int] = (64, 128, 256, 256),
        attention_heads: int = 8,
        blocks: int = 2,
        decoder: Sequence[int] = (256, 128, 64),
        masked: bool = False,
        positions: bool = False,
        norm: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        inner = embed[-1]
        self.width, self.steps, self.masked = width, steps, masked
        self.encoder = layers(width, embed)
        self.positions = nn.Parameter(torch.randn(steps, inner) * 0.02) if positions else None
        self.context = nn.Linear(columns, inner) if columns else None
        self.attention_norm = _norm(inner, norm)
        self.attention = SelfAttention(inner, attention_heads)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Residual(inner, norm, dropout) for _ in range(blocks)))
        self.norm = _norm(inner, norm)
        self.decoders = nn.ModuleList(
            nn.Sequential(*layers(inner, decoder), nn.Linear((inner, *decoder)[-1], 1))
            for _ in range(outputs)
        )

    def forward(self, rows: Tensor, counts: Tensor, context: Tensor) -> Tensor:
        """Scores, shape (n, outputs). Every program has at least one step, at most ``steps``."""
        return by_length(rows, counts, context, self.encoder, self._decoded)

    def _decoded(self, encoded: Tensor, counts: Tensor, context: Tensor) -> Tensor:
        """Scores of programs whose steps are encoded."""
        states, times = self._laid_out(encoded, counts)
        if self.positions is not None:
            states = states + self.positions[: states.shape[1]]
        if self.context is not None:
            states = states + self.context(context)[:, None, :]
        # log 0 = -inf: no attention to what is not there.
        change: Tensor = self.attention(self.attention_norm(states), times.log())
        states = states + self.dropout(change)
        states = self.norm(self.blocks(states))
        scores = [(decoder(states)[..., 0] * times).sum(dim=1) for decoder in self.decoders]
        return torch.stack(scores, dim=1)

    def _laid_out(self, encoded: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """States, shape (n, longest, inner), and how many times each counts, (n, longest)."""
        states, there = laid_out(encoded, counts)
        times = there.to(encoded.dtype)
        if self.masked:
            return states, times
        n = len(counts)
        filler: Tensor = self.encoder(encoded.new_zeros(1, self.width))
        fillers = (self.steps - counts)[:, None].to(encoded.dtype)
        states = torch.cat([states, filler[None].expand(n, 1, -1)], dim=1)
        return states, torch.cat([times, fillers], dim=1)
