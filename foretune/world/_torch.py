"""What everything here asks of PyTorch: a device, threads, seeds, weights as arrays.

Imported where a network is made, never earlier: PyTorch is optional.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from foretune.errors import BadInputError

Arrays = dict[str, npt.NDArray[Any]]


@contextlib.contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Lets PyTorch use so many threads inside; as before afterwards. None: as many as it would."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """PyTorch draws from this seed inside; its own state is as before afterwards."""
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        torch.manual_seed(seed)
        yield


def choose_device(name: str | None) -> torch.device:
    """The device of that name; if None, a CUDA device where there is one, else the processor.

    Raises:
        BadInputError: There is no such device.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    # PyTorch asserts where it was built without CUDA.
    except (RuntimeError, AssertionError) as error:
        first = str(error).partition("\n")[0]
        raise BadInputError(
            f"device {name!r} cannot be used ({first}): choose 'cpu', or 'cuda' where it is there"
        ) from error
    return device


def weights_of(network: nn.Module) -> Arrays:
    """The weights by name, float16."""
    return {
        name: weight.detach().cpu().numpy().astype(np.float16)
        for name, weight in network.state_dict().items()
    }


def with_weights(network: nn.Module, weights: Mapping[str, npt.NDArray[Any]]) -> nn.Module:
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
