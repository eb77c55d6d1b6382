"""Training perceptrons of ``foretune.cost._perceptrons``, in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from foretune._arrays import Float32Array, FloatArray
from foretune._torch import limited_threads
from foretune.cost._listwise import list_target
from foretune.cost._tables import Table

if TYPE_CHECKING:
    from foretune.cost._perceptrons import PerceptronConfig

_NAMES = {0: "first", 3: "second", 6: "last"}


def train(
    config: PerceptronConfig, seed: int, rows: Sequence[Float32Array], tables: Sequence[Table]
) -> dict[str, Float32Array]:
    """Trains one network.

    Args:
        config: How.
        seed: Of weights, order and dropout.
        rows: Scaled columns of each workload, shape (n, k).
        tables: What is to be learned of them.

    Returns:
        ``Perceptron.weights``.
    """
    lists = [
        (torch.from_numpy(own), torch.from_numpy(_target(config, table).astype(np.float32)))
        for own, table in zip(rows, tables, strict=True)
    ]
    rng = np.random.default_rng(seed)
    with limited_threads(config.threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(config, rows[0].shape[1])
        steps = config.epochs * -(-len(lists) // config.batch)
        optimiser = torch.optim.AdamW(
            network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, config.learning_rate, steps)
        for _ in range(config.epochs):
            order = rng.permutation(len(lists)).tolist()
            for start in range(0, len(order), config.batch):
                chosen = [lists[at] for at in order[start : start + config.batch]]
                optimiser.zero_grad()
                _loss(network, chosen).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
    weights = {}
    for at, name in _NAMES.items():
        layer = network[at]
        assert isinstance(layer, nn.Linear)
        weights[name] = layer.weight.detach().numpy()
        weights[f"{name}_bias"] = layer.bias.detach().numpy()
    return weights


def _loss(network: nn.Module, chosen: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Mean over workloads of minus ``q log p``."""
    scores = network(torch.cat([own for own, _ in chosen]))[:, 0]
    losses = [
        -(target * torch.log_softmax(own, 0)).sum()
        for own, (_, target) in zip(
            scores.split([len(target) for _, target in chosen]), chosen, strict=True
        )
    ]
    return torch.stack(losses).mean()


def _target(config: PerceptronConfig, table: Table) -> FloatArray:
    return list_target(table.labels, config.sharpness, table.trust(config.disturbed))


def _network(config: PerceptronConfig, width: int) -> nn.Sequential:
    hidden = config.hidden
    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.GELU(approximate="tanh"),
        nn.Dropout(config.dropout),
        nn.Linear(hidden, hidden),
        nn.GELU(approximate="tanh"),
        nn.Dropout(config.dropout),
        nn.Linear(hidden, 1),
    )
