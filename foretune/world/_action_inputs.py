"""From a table of actions to what the networks of a transition model read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune.errors import BadInputError
from foretune.world._paths import NUMBERS, ActionTable, Floats

if TYPE_CHECKING:
    import torch

    from foretune.world._dynamics import Inputs

PARTS = {"text": (True, False), "numbers": (False, True), "both": (True, True)}
"""What is looked at of an action, by name -> whether texts and numbers are."""

_CLIP = 8.0
"""Standard deviations at most that a column is from the mean of training."""
_CONSTANT = 1e-6


@dataclass(frozen=True)
class ActionInputs:
    """How an action's texts and numbers become a network's inputs: to mean 0 and deviation 1.

    Attributes:
        kinds: That are known.
        shift, factor: float32 of shape (e + N,), of the distinct actions of training.
    """

    kinds: tuple[str, ...]
    shift: Floats
    factor: Floats

    @classmethod
    def fitted(cls, table: ActionTable) -> ActionInputs:
        """Fitted to the distinct actions of training. A column that does not vary becomes 0."""
        columns = np.concatenate([table.texts, table.numbers], axis=1)
        deviation = columns.std(axis=0)
        varies = deviation > _CONSTANT
        factor = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        return cls(tuple(sorted(set(table.kinds))), columns.mean(axis=0), factor.astype(np.float32))

    @property
    def text_columns(self) -> int:
        """Numbers of an action's text."""
        return len(self.shift) - NUMBERS

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
        columns = np.concatenate([table.texts, table.numbers], axis=1)
        scaled = np.clip((columns - self.shift) * self.factor, -_CLIP, _CLIP).astype(np.float32)
        known = {kind: number for number, kind in enumerate(self.kinds, 1)}
        kind = torch.tensor([known.get(kind, 0) for kind in table.kinds], dtype=torch.int64)
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
        count = numbers.shape[1]
        shift, factor = (numbers.new_tensor(each[-NUMBERS:]) for each in (self.shift, self.factor))
        scaled = ((numbers - shift) * factor).clamp(-_CLIP, _CLIP).flatten(0, 1)
        kept = actions.numbers.shape[1]
        kind, texts = (each.repeat_interleave(count, 0) for each in (actions.kind, actions.texts))
        return actions._replace(kind=kind, texts=texts, numbers=scaled[:, :kept])
