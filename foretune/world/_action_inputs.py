"""From a table of actions to what the networks of a transition model read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import Float32Array
from foretune.errors import BadInputError
from foretune.world._paths import NUMBERS, ActionTable

if TYPE_CHECKING:
    import torch

    from foretune.world._dynamics import Inputs

PARTS = {"text": (True, False), "numbers": (False, True), "both": (True, True)}
"""What is looked at of an action, by name -> whether texts and numbers are."""

_CLIP = 8.0
"""Standard deviations at most that a column is from the mean of training."""
_CONSTANT = 1e-6
_SPLIT = "split"
"""The kind of action whose numbers are factors of an extent."""


@dataclass(frozen=True)
class ActionInputs:
    """How an action's texts and numbers become a network's inputs: to mean 0 and deviation 1.

    Attributes:
        kinds: That are known.
        shift, factor: float32 of shape (e + N,), of the distinct actions of training.
        relative: Whether numbers of splits are read as shares of the extent.
    """

    kinds: tuple[str, ...]
    shift: Float32Array
    factor: Float32Array
    relative: bool = False

    @classmethod
    def fitted(cls, table: ActionTable, relative: bool = False) -> ActionInputs:
        """Fitted to the distinct actions of training. A column that does not vary becomes 0."""
        columns = columns_of(table, relative)
        deviation = columns.std(axis=0)
        varies = deviation > _CONSTANT
        factor = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0).astype(np.float32)
        return cls(tuple(sorted(set(table.kinds))), columns.mean(axis=0), factor, relative)

    @property
    def text_columns(self) -> int:
        """Numbers of an action's text."""
        return len(self.shift) - NUMBERS

    def _number(self, kind: str) -> int:
        """Of a kind, from 1; 0: not known."""
        return self.kinds.index(kind) + 1 if kind in self.kinds else 0

    def of(self, table: ActionTable, embedding: str, device: torch.device) -> Inputs:
        """A table as networks read it, the parts that ``embedding`` names.

        Raises:
            BadInputError: The texts were encoded by something else.
        """
        import torch

        from foretune.world._dynamics import Inputs

        if table.texts.shape[1] != self.text_columns:
            raise BadInputError(
                f"texts of actions must have {self.text_columns} columns, as in training, but have "
                f"{table.texts.shape[1]}: encode them with the encoder that the model came with"
            )
        columns = columns_of(table, self.relative and _SPLIT in self.kinds)
        scaled = np.clip((columns - self.shift) * self.factor, -_CLIP, _CLIP).astype(np.float32)
        known = {kind: self._number(kind) for kind in set(table.kinds)}
        kind = torch.tensor([known[kind] for kind in table.kinds], dtype=torch.int64)
        texts, numbers = (
            torch.from_numpy(part if used else part[:, :0])
            for part, used in zip(
                np.split(scaled, [self.text_columns], axis=1), PARTS[embedding], strict=True
            )
        )
        return Inputs(kind.to(device), texts.to(device), numbers.to(device))

    def varied(self, actions: Inputs, numbers: torch.Tensor) -> Inputs:
        """The same actions with other numbers, with gradients of these.

        Args:
            actions: V of them, as ``of`` gives them.
            numbers: As ``ActionTable`` has them, shape (V, n, N).

        Returns:
            V n actions, those of one kind one after the other.
        """
        import torch

        count = numbers.shape[1]
        if self.relative and _SPLIT in self.kinds:
            split = actions.kind == self._number(_SPLIT)
            numbers = torch.where(split[:, None, None], _shares_of(numbers), numbers)
        shift, factor = (numbers.new_tensor(each[-NUMBERS:]) for each in (self.shift, self.factor))
        scaled = ((numbers - shift) * factor).clamp(-_CLIP, _CLIP).flatten(0, 1)
        kept = actions.numbers.shape[1]
        kind, texts = (each.repeat_interleave(count, 0) for each in (actions.kind, actions.texts))
        return actions._replace(kind=kind, texts=texts, numbers=scaled[:, :kept])


def columns_of(table: ActionTable, relative: bool) -> Float32Array:
    """Texts and numbers of a table's actions, shape (A, e + N)."""
    numbers = table.numbers
    if relative:
        import torch

        split = np.array([kind == _SPLIT for kind in table.kinds], dtype=np.bool_)
        shares = _shares_of(torch.from_numpy(numbers)).numpy()
        numbers = np.where(split[:, None], shares, numbers)
    return np.concatenate([table.texts, numbers], axis=1)


def _shares_of(numbers: torch.Tensor) -> torch.Tensor:
    """Factors of extents, log2(1 + f), become log f / log extent: shares whose sum is 1.

    Before → after, as factors: ``4 32`` → 2/7, 5/7. Of an extent of 1 all shares are 0. Where there
    is no factor the number stays 0, as that of a factor of 1 becomes.

    Args:
        numbers: As ``ActionTable`` has them, shape (..., N).
    """
    logs = (numbers.exp2() - 1.0).clamp(min=1.0).log2()
    shares: torch.Tensor = logs / logs.sum(dim=-1, keepdim=True).clamp(min=_CONSTANT)
    return shares
