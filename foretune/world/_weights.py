"""Weights of networks as arrays.

Imported where a network is made, never earlier: PyTorch is optional.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from foretune._arrays import Array
from foretune.errors import BadInputError

Arrays = dict[str, Array]


def weights_of(network: nn.Module) -> Arrays:
    """The weights by name, float16."""
    return {
        name: weight.detach().cpu().numpy().astype(np.float16)
        for name, weight in network.state_dict().items()
    }


def with_weights(network: nn.Module, weights: Mapping[str, Array]) -> nn.Module:
    """The network with stored weights."""
    network.load_state_dict(
        {name: torch.from_numpy(weight.astype(np.float32)) for name, weight in weights.items()}
    )
    return network


def finished(network: nn.Module, learning_rate: float) -> nn.Module:
    """A trained network, its weights rounded as they are stored, ready to be asked.

    Raises:
        BadInputError: The weights are no numbers any more.
    """
    weights = weights_of(network)
    if not all(np.isfinite(weight).all() for weight in weights.values()):
        raise BadInputError(
            "the world model's weights grew without bound: lower learning_rate, which is "
            f"{learning_rate}"
        )
    return with_weights(network, weights).eval()
