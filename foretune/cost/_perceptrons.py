"""Perceptrons over the columns of a table; scoring needs NumPy alone.

Two hidden layers of GELU over standardised columns. Training shows whole workloads, and the softmax
of their scores is to be where the fastest programs are (``foretune.cost._listwise``): the loss of
the trees, whose errors are others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from foretune._arrays import Array, Float32Array, FloatArray, IndexArray
from foretune._options import Bounds, Count, Positive, require_options
from foretune.cost._examples import Scaling
from foretune.cost._listwise import SHARPNESS
from foretune.cost._tables import Table

_LIMIT = 5.0
"""Deviations that a column may differ from its mean."""
_SLOPE = np.float32(math.sqrt(2.0 / math.pi))


@dataclass(frozen=True)
class PerceptronConfig:
    """What perceptrons are and how they are trained.

    Attributes:
        hidden: Width of both hidden layers.
        members: Perceptrons whose scores are averaged.
        epochs: Passes over the workloads.
        learning_rate: AdamW's, at its peak; it rises for 30 % of the steps, then falls.
        max_rows: Programs trained on; above it every group is thinned out alike, but keeps its
            fastest eighth.
        threads: Threads PyTorch may use in training.
    """

    batch: ClassVar[int] = 4
    weight_decay: ClassVar[float] = 1e-2
    dropout: ClassVar[float] = 0.1
    sharpness: ClassVar[float] = SHARPNESS
    disturbed: ClassVar[float] = 0.1

    hidden: Count = 256
    members: Count = 5
    epochs: Count = 30
    learning_rate: Positive = 1e-3
    max_rows: Annotated[int, Bounds(ge=2)] = 200_000
    threads: Count = 1

    def __post_init__(self) -> None:
        require_options("perceptrons", self)


@dataclass(frozen=True)
class Perceptron:
    """A trained network.

    Attributes:
        columns: Of shape (k,): which of all columns it reads.
        scaling: Of these.
        weights: By name, float32: ``first`` (hidden, k), ``second`` (hidden, hidden), ``last``
            (1, hidden), and a bias for each, ``first_bias``...
    """

    columns: IndexArray
    scaling: Scaling
    weights: Mapping[str, Float32Array]

    def scores(self, matrix: Float32Array) -> FloatArray:
        """The network's number for each row, shape (n, columns) -> (n,)."""
        x = self.scaling(np.take(matrix, self.columns, axis=1))
        w = self.weights
        for layer in ("first", "second"):
            x = _gelu(x @ w[layer].T + w[f"{layer}_bias"])
        scores: FloatArray = (x @ w["last"].T + w["last_bias"])[:, 0].astype(np.float64)
        return scores

    def arrays(self) -> dict[str, Array]:
        """All of it; weights in 16 bits, which changes scores by less than they mean."""
        return {
            "columns": self.columns,
            "shift": self.scaling.shift,
            "factor": self.scaling.factor,
            **{name: values.astype(np.float16) for name, values in self.weights.items()},
        }


def _gelu(x: Float32Array) -> Float32Array:
    """GELU by the hyperbolic tangent, as networks are trained: a tenth of the time of erf."""
    activated: Float32Array = 0.5 * x * (1.0 + np.tanh(_SLOPE * (x + 0.044715 * x * x * x)))
    return activated


class Perceptrons:
    """Perceptrons as members of a ``foretune.cost._table_ranker.TableRanker``."""

    config = PerceptronConfig

    @staticmethod
    def count(config: PerceptronConfig) -> int:
        """How many members there are."""
        return config.members

    @staticmethod
    def grow(
        config: PerceptronConfig,
        seed: int,
        tables: Sequence[Table],
        judges: Sequence[Table],
        columns: IndexArray,
    ) -> Perceptron:
        """Trains one. ``judges`` are not looked at: all epochs are run.

        Raises:
            MissingDependencyError: PyTorch is not installed.
        """
        del judges
        from foretune.cost._neural import require_torch

        require_torch("the training of perceptrons")
        from foretune.cost._perceptron_training import train

        read = [np.take(table.matrix, columns, axis=1) for table in tables]
        standard = Scaling.standard(np.concatenate(read))
        scaling = Scaling(standard.shift, standard.factor, _LIMIT)
        weights = train(config, seed, [scaling(rows) for rows in read], tables)
        # As a file gives them, so that a trained one and one that was saved score alike.
        rounded = {name: w.astype(np.float16).astype(np.float32) for name, w in weights.items()}
        return Perceptron(columns, scaling, rounded)

    @staticmethod
    def read(config: PerceptronConfig, arrays: Mapping[str, Array]) -> Perceptron:
        """What ``Perceptron.arrays`` gave."""
        del config
        rest = dict(arrays)
        columns = rest.pop("columns").astype(np.intp)
        scaling = Scaling(rest.pop("shift"), rest.pop("factor"), _LIMIT)
        return Perceptron(columns, scaling, {n: w.astype(np.float32) for n, w in rest.items()})
