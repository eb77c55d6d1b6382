"""A score with a gradient of what the ranker ``world`` reads: what gradient search climbs.

Idea: the ranker ranks by trees, which have no gradient. So a small network learns beside them, from
the same columns: a predicted state, features of the actions and the factors of the machine become a
score. What is ranked by does not change.

Symbols: zT a predicted terminal state, d numbers; phi features of a candidate's actions; h the
factors of the hardware; the score is in log2 of a speed-up, up to a constant per workload.

The network has two layers on [zT; phi] and one where h joins, and learns from lists
(``foretune.cost._listwise``); a fifth of the workloads says when to stop. As the target of a list
is the speed-up to the power 4, its scores are brought to log2 by a constant. Of phi it reads what
differs within workloads, as the trees do: the rest would tell it which workload it is. States are
read as they are: the mean of a workload's measured programs, taken off, would tell where the fast
ones among them are (``docs/gradient.md``).

No paper: Felix climbs a perceptron of per-store features, the world model ranks by trees.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._arrays import Array, Float32Array, IndexArray
from foretune._model_file import Arrays, check
from foretune.cost._examples import Examples, Labelled, Scaling
from foretune.cost._listwise import SHARPNESS
from foretune.cost._neural import NeuralConfig
from foretune.cost._tables import Table, folds, informative
from foretune.dataset import judgeable
from foretune.errors import RecordError

if TYPE_CHECKING:
    import torch

_log = logging.getLogger("foretune.cost.world")

SCHEMA = "foretune.world_head/2"
"""Of what ``Head.dump`` gives. Another number when weights or inputs change meaning."""
_OF_STATES = "foretune.world_head/1"
"""The schema of when a head read states only: such a head answers as it did."""

READS = ("states", "actions", "both")
"""What a head may read beside the factors of the machine."""

_HIDDEN = 64
_FOLDS = 5
_SCALE = 1.0 / (SHARPNESS * math.log(2.0))


@dataclass(frozen=True)
class _HeadConfig(NeuralConfig):
    """How a head is trained."""

    loss: ClassVar[str] = "list_net"
    patience: ClassVar[int] = 8


_TRAINING = _HeadConfig()


class Head:
    """The network, and how its inputs are scaled.

    Args:
        weights: Of the network, by name.
        columns: Which columns of phi are read, p of them.
        rows: Scaling of [zT; phi], of d + p columns, or of p where no state is read.
        factors: Scaling of h.
        device: PyTorch's name of a device; None: a CUDA device where there is one.
    """

    def __init__(
        self,
        weights: Arrays,
        columns: IndexArray,
        rows: Scaling,
        factors: Scaling,
        device: str | None = None,
    ) -> None:
        from foretune._torch import choose_device
        from foretune.cost._training import with_weights

        self._weights, self._columns = weights, columns
        self._rows, self._factors = rows, factors
        make = _network(len(rows.shift), len(factors.shift))
        self._network = with_weights(make, weights, choose_device(device))

    @property
    def reads(self) -> str:
        """One of ``READS``."""
        if not len(self._columns):
            return "states"
        return "both" if len(self._rows.shift) > len(self._columns) else "actions"

    def scores(
        self, states: torch.Tensor, described: torch.Tensor, factors: Float32Array
    ) -> torch.Tensor:
        """Scores, higher is better, with gradients.

        Args:
            states: zT as each member of the transitions predicts it, shape (members, n, d), on any
                device; shape (1, n, 0) where no state is read.
            described: All of phi, shape (n, columns); of any width where none of it is read.
            factors: h, shape (columns,), the same for all.

        Returns:
            Of shape (members, n), where the network is.
        """
        import torch

        weight = next(self._network.parameters())
        read = described[:, self._columns.tolist()].to(weight)
        joined = [states.to(weight), read.expand(len(states), -1, -1)]
        flat = torch.cat(joined, dim=2).reshape(-1, len(self._rows.shift))
        context = weight.new_tensor(self._factors(factors)).expand(len(flat), -1)
        shift, factor = (weight.new_tensor(x) for x in (self._rows.shift, self._rows.factor))
        limit = self._rows.limit
        rows = ((flat - shift) * factor).clamp(-limit, limit)
        counts = torch.ones(len(flat), dtype=torch.int64, device=weight.device)
        scores: torch.Tensor = self._network(rows, counts, context)[:, 0]
        return _SCALE * scores.reshape(states.shape[:-1])

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        """All of it as a JSON object and arrays."""
        arrays = {f"weights/{name}": weight for name, weight in self._weights.items()}
        for name, scaling in (("rows", self._rows), ("factors", self._factors)):
            arrays |= {f"{name}/shift": scaling.shift, f"{name}/factor": scaling.factor}
        arrays["columns"] = self._columns
        return {"schema": SCHEMA, "limit": self._rows.limit}, arrays

    @classmethod
    def restore(
        cls,
        meta: Mapping[str, Any],
        arrays: Mapping[str, Array],
        device: str | None = None,
    ) -> Head:
        """What ``dump`` gave becomes a head that answers alike.

        Raises:
            VersionMismatchError: Written under another schema.
            RecordError: Something is missing or does not fit.
        """
        rows = "rows"
        if meta.get("schema") == _OF_STATES:
            rows, arrays = "states", {**arrays, "columns": np.zeros(0, np.intp)}
        else:
            check("the world's head", meta, schema=SCHEMA)
        try:
            read, factors = (
                Scaling(arrays[f"{name}/shift"], arrays[f"{name}/factor"], float(meta["limit"]))
                for name in (rows, "factors")
            )
            weights = {
                name.removeprefix("weights/"): weight
                for name, weight in arrays.items()
                if name.startswith("weights/")
            }
            return cls(weights, arrays["columns"].astype(np.intp), read, factors, device)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise RecordError(f"a stored head is damaged ({error}): train it again") from error


def _network(width: int, columns: int) -> Any:
    from foretune.cost._networks import StoreNetwork

    return partial(StoreNetwork, width, columns, hidden=_HIDDEN, blocks=0)


def train_head(
    tables: Sequence[Table],
    dimension: int,
    factors: Sequence[int],
    *,
    reads: str = "both",
    held: Sequence[Table] = (),
    seed: int = 0,
    device: str | None = None,
    threads: int | None = None,
) -> Head | None:
    """A head trained on groups; None where nothing that it reads tells their programs apart.

    Args:
        tables: Groups of training. Their columns are [zT; phi], with zeros for zT where there is no
            state: such programs are not climbed, and not learned from.
        dimension: d.
        factors: Places of h among the columns.
        reads: One of ``READS``.
        held: Groups of other workloads, which say when to stop beside those that are left out.
        seed: Of weights and order, and of what is left out.
        device: PyTorch's name of a device; None: a CUDA device where there is one.
        threads: Threads PyTorch may use; None: as many as it would.
    """
    from foretune._torch import choose_device, limited_threads
    from foretune.cost._networks import list_net
    from foretune.cost._training import train

    tables, held = _with_states(tables, dimension), _with_states(held, dimension)
    columns = _columns(tables, dimension, factors, reads)
    if not columns:
        return None
    fold = folds(tables, _FOLDS, np.random.default_rng(seed))
    left_out = (fold == 0) & bool(fold.any())
    kept = _labelled(
        [t for t, out in zip(tables, left_out, strict=True) if not out], columns, factors
    )
    judges = [*(t for t, out in zip(tables, left_out, strict=True) if out), *held]
    scaling = Scaling.standard(kept.examples.rows), Scaling.standard(kept.examples.context)
    with limited_threads(threads):
        weights, history = train(
            _network(len(columns), len(factors)),
            kept.scaled(*scaling),
            _labelled(judges, columns, factors).scaled(*scaling) if judges else None,
            _TRAINING,
            seed=seed,
            device=choose_device(device),
            loss=list_net,
        )
    _log.info(
        "head: %d programs of %d groups, %d epochs; best of 1 and 5 picks of %d groups left out: "
        "%.3f of the fastest",
        len(kept.labels), len(tables) - int(left_out.sum()), len(history), len(judges),
        max(epoch.quality for epoch in history),
    )  # fmt: skip
    described = np.array([at - dimension for at in columns if at >= dimension], dtype=np.intp)
    return Head(weights, described, *scaling, device)


def _columns(
    tables: Sequence[Table], dimension: int, factors: Sequence[int], reads: str
) -> list[int]:
    """Places of what is read beside h; none where there is nothing to learn from."""
    if not tables:
        return []
    told = set(informative(tables).tolist()) - set(factors)
    states = list(range(dimension)) if reads != "actions" else []
    return states + [at for at in sorted(told) if at >= dimension and reads != "states"]


def _with_states(tables: Sequence[Table], dimension: int) -> list[Table]:
    """What is known of programs that have a state."""
    found = []
    for table in tables:
        own = table.matrix[:, :dimension].any(axis=1)
        if judgeable(table.seconds[own]):
            found.append(
                Table(table.workload, table.matrix[own], table.seconds[own], table.quiet[own])
            )
    return found


def _labelled(tables: Sequence[Table], columns: Sequence[int], factors: Sequence[int]) -> Labelled:
    sizes = [len(table.seconds) for table in tables]
    rows = np.concatenate([table.matrix[:, list(columns)] for table in tables])
    context = np.concatenate([table.matrix[:, list(factors)] for table in tables])
    labels = np.concatenate([table.labels for table in tables]).astype(np.float32)
    return Labelled(
        Examples(rows, np.ones(len(rows), np.intp), context),
        labels,
        np.repeat(np.arange(len(tables)), sizes),
        np.zeros(len(rows), np.intp),
    )
