"""The networks that predict what an action does to a state, in PyTorch.

Imported when a transition model is made, never earlier: PyTorch is optional.

Symbols: z a state, a vector of length 1; a an action's vector; w the normal of the hyperplane on
which the action acts, r its translation within; z_0 the state that a path begins with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretune.world._paths import Plan

if TYPE_CHECKING:
    from foretune._arrays import IntArray

_LEAST_NORM = 1e-6
_DROPOUT = 0.1
_SHARE = 0.25
"""Of a sum of actions' vectors: that of some 16 is of the size of one then."""
_TUNING = 0.1
"""Deviation of what initial states say to a layer before training."""


def unit(vectors: Tensor) -> Tensor:
    """Brought to length 1 along the last dimension; what is shorter than 1e-6 stays short."""
    return functional.normalize(vectors, dim=-1, eps=_LEAST_NORM)


class Inputs(NamedTuple):
    """Distinct actions as networks read them.

    Attributes:
        kind: Number of the kind, 0 for one that is not known; int64 of shape (A,).
        texts, numbers: Scaled, shapes (A, e) and (A, N); a part that is not looked at has no
            columns.
    """

    kind: Tensor
    texts: Tensor
    numbers: Tensor

    def rows(self, at: Tensor) -> Inputs:
        """Those with these numbers."""
        return Inputs(self.kind[at], self.texts[at], self.numbers[at])


class ActionEmbedding(nn.Module):
    """Text and numbers of an action through two layers, and a vector for its kind.

    Of a kind that is not known the text is not looked at: it has words that no training text had.
    Its numbers are, and row 0 of the kinds, which is learned by forgetting kinds now and then.
    """

    def __init__(self, texts: int, numbers: int, kinds: int, dimension: int) -> None:
        super().__init__()
        self.kind = nn.Embedding(kinds + 1, dimension)
        self.project = nn.Sequential(
            nn.Linear(texts + numbers, dimension), nn.GELU(), nn.Linear(dimension, dimension)
        )

    def forward(self, actions: Inputs) -> Tensor:
        """Vectors of A actions, shape (A, d)."""
        texts = actions.texts * (actions.kind > 0)[:, None]
        out: Tensor = self.project(torch.cat([texts, actions.numbers], dim=1))
        kind: Tensor = self.kind(actions.kind)
        return out + kind


class Prepared(NamedTuple):
    """What of a step does not depend on the state.

    Attributes:
        normal: w, shape (A, d).
        base: What the first layer makes of r and a, shape (A, 2 d).
        of_state: What the projected state is multiplied by, that layer's share times s, shape
            (d, 2 d), for all actions alike.
        vector: a, shape (A, d), for a ``Join``.
    """

    normal: Tensor
    base: Tensor
    of_state: Tensor
    vector: Tensor

    def rows(self, at: Tensor) -> Prepared:
        """Those with these numbers."""
        normal, base, vector = (
            each.index_select(0, at) for each in (self.normal, self.base, self.vector)
        )
        return Prepared(normal, base, self.of_state, vector)

    def run(self, first: int, count: int) -> Prepared:
        """So many from this one on, without a copy."""
        normal, base, vector = (
            each[first : first + count] for each in (self.normal, self.base, self.vector)
        )
        return Prepared(normal, base, self.of_state, vector)

    def parts(self, count: int) -> Iterator[Prepared]:
        """One after the other, so many each."""
        each = (torch.split(part, count) for part in (self.normal, self.base, self.vector))
        for normal, base, vector in zip(*each, strict=True):
            yield Prepared(normal, base, self.of_state, vector)


class Step(nn.Module):
    """One action (TransH: Wang et al., AAAI 2014; paper, equation 8).

        w = unit(W_w a)             r = W_r a
        u = s (z - (w . z) w) + r   projected onto the action's hyperplane, moved within
        z' = unit(z + MLP([u; a]))

    The numbers of a state of length 1 are sqrt(d) times smaller than those of an action. With the
    paper's s = 1 the normalised layer behind hardly sees the state, and where a path ends depends
    on its actions alone (``docs/world.md``); s = sqrt(d) where ``scaled``.

    The first of the MLP's two layers is 2 d wide and normalised. As it is linear, what it makes of
    r and a is taken once per action (``prepared``), not once per state that the action is applied
    to.

    Where a ``Tuning`` is given, what leaves that layer is multiplied and moved by what z_0 says, so
    that the change depends on where the path began, however many actions have gone since.
    """

    def __init__(self, dimension: int, scaled: bool = True) -> None:
        super().__init__()
        self.scale = math.sqrt(dimension) if scaled else 1.0
        self.normal = nn.Linear(dimension, dimension, bias=False)
        self.translation = nn.Linear(dimension, dimension, bias=False)
        self.first = nn.Linear(2 * dimension, 2 * dimension)
        self.norm = nn.LayerNorm(2 * dimension)
        self.second = nn.Linear(2 * dimension, dimension)

    def prepared(self, actions: Tensor) -> Prepared:
        """What ``forward`` needs of actions, shape (A, d)."""
        inputs = torch.cat([self.translation(actions), actions], dim=1)
        dimension = actions.shape[1]
        of_state = self.scale * self.first.weight[:, :dimension].T
        return Prepared(unit(self.normal(actions)), self.first(inputs), of_state, actions)

    def forward(self, states: Tensor, actions: Prepared, tuned: Tuned | None = None) -> Tensor:
        """The states after one action each, shapes (n, d) -> (n, d)."""
        along = (actions.normal * states).sum(dim=1, keepdim=True)
        projected = torch.addcmul(states, actions.normal, along, value=-1.0)
        hidden = self.norm(torch.addmm(actions.base, projected, actions.of_state))
        if tuned is not None:
            hidden = tuned.applied(hidden)
        change: Tensor = self.second(functional.gelu(hidden))
        return unit(states + change)


class Tuned(NamedTuple):
    """What initial states say to a layer: each of its numbers is multiplied and moved.

    Attributes:
        factor, shift: Shape (n, width).
    """

    factor: Tensor
    shift: Tensor

    def rows(self, at: Tensor) -> Tuned:
        """Those with these numbers."""
        return Tuned(self.factor.index_select(0, at), self.shift.index_select(0, at))

    def applied(self, hidden: Tensor) -> Tensor:
        """A layer's numbers, shape (n, width), as the initial states have them."""
        return torch.addcmul(hidden + self.shift, hidden, self.factor)


class Tuning(nn.Module):
    """How a layer depends on z_0 (FiLM: Perez et al., AAAI 2018): factor and shift, linear in z_0.

    Small before training, so that it begins as if z_0 were not there.
    """

    def __init__(self, dimension: int, width: int) -> None:
        super().__init__()
        self.scale = math.sqrt(dimension)
        self.both = nn.Linear(dimension, 2 * width)
        nn.init.normal_(self.both.weight, std=_TUNING / math.sqrt(dimension))
        nn.init.zeros_(self.both.bias)

    def forward(self, initial: Tensor) -> Tuned:
        """For initial states of shape (n, d)."""
        factor, shift = self.both(self.scale * initial).chunk(2, dim=-1)
        return Tuned(factor, shift)


class Join(nn.Module):
    """Where the actions lead, p, joined with these as a whole and with where the path began.

        h = first([s p; sum of the actions' vectors])
        p' = unit(p + MLP(h * (1 + F z_0) + B z_0))

    with s = sqrt(d), as in ``Step``, and F and B those of a ``Tuning``. The sum leads to every
    action at once, past the steps behind it; what z_0 says multiplies what actions say, so that the
    same actions can end elsewhere, and further apart. Before training p' is p.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        width = 2 * dimension
        self.scale = math.sqrt(dimension)
        self.tuning = Tuning(dimension, width)
        self.first = nn.Linear(2 * dimension, width)
        self.layers = nn.Sequential(
            nn.GELU(), nn.Dropout(_DROPOUT), nn.Linear(width, width),
            nn.GELU(), nn.Dropout(_DROPOUT), nn.Linear(width, dimension),
        )  # fmt: skip
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, states: Tensor, total: Tensor, initial: Tensor) -> Tensor:
        """The joined states, shapes (n, d), (n, d), (n, d) -> (n, d)."""
        hidden = self.first(torch.cat([self.scale * states, _SHARE * total], dim=-1))
        change: Tensor = self.layers(self.tuning(initial).applied(hidden))
        return unit(states + change)


class Member(nn.Module):
    """One network of the ensemble.

    Args:
        texts, numbers: Columns of an action's parts.
        kinds: That are known.
        dimension: Of states.
        initial: Whether the initial state is looked at; if not, a learned vector stands for it.
        scaled: Of ``Step``.
        tuned: Whether the initial state comes in again at every step.
        joined: Whether it comes in again at the end.
    """

    def __init__(
        self,
        texts: int,
        numbers: int,
        kinds: int,
        dimension: int,
        *,
        initial: bool = True,
        scaled: bool = True,
        tuned: bool = False,
        joined: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = ActionEmbedding(texts, numbers, kinds, dimension)
        self.step = Step(dimension, scaled)
        self.start = None if initial else nn.Parameter(torch.randn(dimension))
        self.tuning = Tuning(dimension, 2 * dimension) if tuned else None
        self.join = Join(dimension) if joined else None

    def begin(self, states: Tensor) -> Tensor:
        """The states to go on from, shape (n, d)."""
        return states if self.start is None else unit(self.start).expand_as(states)

    def tuned(self, initial: Tensor) -> Tuned | None:
        """What initial states, shape (n, d), say to every step; None where they say nothing."""
        return None if self.tuning is None else self.tuning(initial)

    def joined(self, states: Tensor, total: Tensor, initial: Tensor) -> Tensor:
        """Ends of paths as predicted.

        Args:
            states: Where their actions lead, shape (..., d).
            total: Sums of the vectors of their actions, of the same shape.
            initial: Where they begin, of the same shape.
        """
        return states if self.join is None else self.join(states, total, initial)

    def prepared(self, actions: Inputs) -> Prepared:
        """What a step needs of distinct actions."""
        return self.step.prepared(self.embedding(actions))

    def unrolled(self, states: Tensor, table: Prepared, actions: Tensor, mask: Tensor) -> Tensor:
        """States after every step, each from the predicted one before, shape (n, K, d).

        Args:
            states: Shape (n, d).
            table: Distinct actions.
            actions: Rows of the table, shape (n, K).
            mask: Shape (n, K); where it is not set, the state stays.
        """
        initial = states = self.begin(states)
        tuned = self.tuned(initial)
        total, reached, totals = torch.zeros_like(initial), [], []
        # Rows of all steps at once: what they add to the gradients of the table is added once.
        steps = table.rows(actions.T.reshape(-1)).parts(len(actions))
        for own, there in zip(steps, mask.T, strict=True):
            states = torch.where(there[:, None], self.step(states, own, tuned), states)
            reached.append(states)
            if self.join is not None:
                total = torch.addcmul(total, own.vector, there[:, None].to(total))
                totals.append(total)
        ends = torch.stack(reached, dim=1)
        if self.join is None:
            return ends
        return self.joined(ends, torch.stack(totals, dim=1), initial[:, None].expand_as(ends))

    def followed(self, state: Tensor, actions: Inputs, runs: Sequence[tuple[int, int]]) -> Tensor:
        """The last states of sequences of which each step is one action, or one for each.

        Args:
            state: Initial, shape (1, d).
            actions: A table.
            runs: Of each step, its first row of the table and how many: 1, or n.

        Returns:
            Shape (n, d), or (1, d) where no step has more than one row.
        """
        table = self.prepared(actions)
        initial = states = self.begin(state)
        tuned, total = self.tuned(initial), torch.zeros_like(initial)
        for first, count in runs:
            states = states.expand(max(count, len(states)), -1)
            own = table.run(first, count)
            states, total = self.step(states, own, tuned), total + own.vector
        return self.joined(states, total, initial.expand_as(states)) if runs else states

    def rolled(self, states: Tensor, actions: Inputs, plan: Plan, count: int) -> Tensor:
        """The last states of sequences, shape (count, d), by a plan.

        Args:
            states: Initial states, shape (m, d).
            actions: The table that the plan's numbers are rows of.
            plan: For ``count`` sequences.
            count: Sequences.
        """

        def numbers(each: IntArray) -> Tensor:
            return torch.from_numpy(each).to(states.device)

        table = self.prepared(actions)
        initial = states = self.begin(states)
        tuned = self.tuned(initial)
        root = torch.arange(len(initial), device=initial.device)
        total = torch.zeros_like(initial)
        final = states.new_zeros(count, states.shape[1])
        for step, (ending, place) in enumerate(zip(plan.ending, plan.place, strict=True)):
            ends = numbers(place)
            if not step:
                final[numbers(ending)] = states[ends]
                continue
            parent, action = numbers(plan.parent[step - 1]), numbers(plan.action[step - 1])
            root = root[parent]
            own = table.rows(action)
            states = self.step(
                states.index_select(0, parent), own, None if tuned is None else tuned.rows(root)
            )
            if self.join is not None:
                total = total[parent] + own.vector
            if len(place):
                last = states[ends]
                if self.join is not None:
                    last = self.joined(last, total[ends], initial[root[ends]])
                final[numbers(ending)] = last
        return final
