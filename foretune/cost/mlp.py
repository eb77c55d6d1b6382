"""A perceptron over the stores of a program: TenSet's model, and what we would change about it.

Idea: every store of the lowered program is a row of per-store features; a small perceptron turns
each row into a state, the states of a program are added up, and residual layers make one score of
the sum. It is trained to order programs, not to predict seconds.

Symbols: a program has rows of shape (stores, 164), and a context, which holds for all of it.

The published model is ``mlp:reference`` in ``foretune_research.neural``. What is here repairs what
stands in the way of new workloads: a batch of shuffled programs ranks programs of different
workloads against one another, where there is nothing to rank; a column's largest value is an
outlier; an epoch is chosen by the loss on what was trained on; and one machine cannot be told from
another. So lists are cut from single groups, columns are standardised, training ends by what is
picked in held-out workloads, and features of the schedule's decisions and of the hardware join the
sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._arrays import Array, BoolArray, Float32Array
from foretune._options import Count
from foretune.cost._examples import Examples, Scaling, hardware_context
from foretune.cost._neural import NeuralConfig, NeuralRanker
from foretune.cost._ranker import TEXT, Needs
from foretune.errors import BadInputError
from foretune.features import require_source

if TYPE_CHECKING:
    import torch
    from torch import nn

    from foretune.dataset import Group, Program
    from foretune.hardware import Hardware

RowReader = Callable[["Sequence[Program]"], "Sequence[Array | None]"]
ActionReader = Callable[["Sequence[Program]", "Hardware | None"], Array]


@dataclass(frozen=True)
class MlpConfig(NeuralConfig):
    """The perceptron and how it is trained; see ``NeuralConfig`` for what all networks have.

    Attributes:
        hidden: Width of all layers.
    """

    ranker: ClassVar[str] = "mlp"
    actions: ClassVar[bool] = True

    hidden: Count = 256


class MlpRanker(NeuralRanker):
    """Perceptron over per-store features (TenSet's MLP).

    Args:
        seed: Of weights, order and dropout.
        read_rows: Programs to rows per program, None for one that cannot be applied; TVM's
            per-store features unless given.
        read_actions: Programs and hardware to a matrix; ``features.action_features`` unless given.
        feature_version: Version of what ``read_rows`` gives; a saved model with another is refused.
        cache: Folder in which per-store features are kept; None: in memory only.
        source: Where they are read, one of ``foretune.features.SOURCES``.
        options: ``threads`` and ``device`` as of ``NeuralRanker``, and fields of ``MlpConfig``.

    Raises:
        BadInputError: Unknown option, or a value that makes no sense.
    """

    needs: Needs = replace(
        NeuralRanker.needs,
        programs=True,
        options={
            **NeuralRanker.needs.options,
            "cache": TEXT,
            "source": str,
            "feature_version": None,
            "read_rows": None,
            "read_actions": None,
        },
    )
    config_type: ClassVar[type[NeuralConfig]] = MlpConfig
    config: MlpConfig

    def __init__(
        self,
        *,
        seed: int = 0,
        read_rows: RowReader | None = None,
        read_actions: ActionReader | None = None,
        feature_version: int | str | None = None,
        cache: Path | str | None = None,
        source: str = "programs",
        **options: Any,
    ) -> None:
        super().__init__(seed=seed, **options)
        self._given_rows, self._given_actions = read_rows, read_actions
        self._feature_version = feature_version
        self._cache = None if cache is None else Path(cache)
        require_source(self.name, source)
        self.store_source = source

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the per-store, action and hardware features."""
        from foretune import features, hardware
        from foretune.features.actions import ACTION_FEATURE_VERSION

        given = self._feature_version
        return {
            "per_store": given if given is not None else features.FEATURE_VERSION,
            "actions": ACTION_FEATURE_VERSION,
            "hardware": hardware.FEATURE_VERSION,
        }

    def prepare(self, groups: Iterable[Group]) -> None:
        """Reads the per-store features of all programs."""
        for group in groups:
            self._rows(group.programs)

    def smooth_scores(self, rows: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Scores of features instead of programs, with gradients of both.

        Args:
            rows: Per-store features, shape (n, stores, 164).
            context: What ``context`` gives, shape (n, columns).

        Returns:
            Shape (members, n), where the rows are: where members differ, the score is unsure.

        Raises:
            BadInputError: It is not trained.
        """
        import torch

        if self._trained is None:
            raise BadInputError(f"{self.name}: scores need weights: fit it, or load a trained one")
        n, stores = rows.shape[:2]
        device = next(self._networks[0].parameters()).device
        flat = _scaled(rows.reshape(n * stores, -1), self._trained.rows).to(device)
        beside = _scaled(context, self._trained.context).to(device)
        counts = torch.full((n,), stores, device=device)
        each = [network(flat, counts, beside)[:, 0] for network in self._networks]
        return torch.stack(each).to(rows.device)

    def context(self, programs: Sequence[Program], machine: Hardware | None) -> Float32Array:
        """What joins the sum over stores, shape (n, columns): see ``MlpConfig.actions``."""
        if self.config.actions:
            return self._actions(programs, machine).astype(np.float32)
        if self.config.hardware:
            return hardware_context(machine, len(programs))
        return np.zeros((len(programs), 0), np.float32)

    def _network(self, width: int, columns: int, outputs: int) -> nn.Module:
        from foretune.cost._networks import StoreNetwork

        config = self.config
        return StoreNetwork(
            width, columns, config.hidden, config.blocks, config.norm, config.dropout
        )

    def _examples(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Examples, BoolArray]:
        rows_of = self._rows(programs)
        legal = np.array([rows is not None for rows in rows_of], dtype=bool)
        stores = [np.asarray(rows, dtype=np.float32) for rows in rows_of if rows is not None]
        if not stores:
            nothing = np.zeros((0, 0), np.float32)
            return Examples(nothing, np.zeros(0, np.intp), nothing), legal
        applied = [programs[i] for i in np.flatnonzero(legal).tolist()]
        counts = np.array([len(rows) for rows in stores], dtype=np.intp)
        return Examples(np.concatenate(stores), counts, self.context(applied, machine)), legal

    def _rows(self, programs: Sequence[Program]) -> Sequence[Array | None]:
        if self._given_rows is not None:
            return self._given_rows(programs)
        from foretune.features import program_rows

        return program_rows(programs, self._cache, self.store_source)

    def _actions(self, programs: Sequence[Program], machine: Hardware | None) -> Array:
        if self._given_actions is not None:
            return self._given_actions(programs, machine)
        from foretune.features.actions import action_features

        return action_features(programs, machine)


def _scaled(values: torch.Tensor, scaling: Scaling) -> torch.Tensor:
    """``Scaling`` of tensors, in the network's type."""
    shift, factor = (values.new_tensor(each) for each in (scaling.shift, scaling.factor))
    limited = ((values - shift) * factor).clamp(-scaling.limit, scaling.limit)
    return limited.nan_to_num().float()
