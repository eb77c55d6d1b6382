"""What rooms ask of PyTorch: a device, a number of threads, a seed.

Imported where a network is made, never earlier: PyTorch is optional.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from foretune.errors import BadInputError


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
    """PyTorch draws from this seed inside; its own state is as before afterwards.

    CUDA is not woken for it: while nobody has used a device, there is no state to keep.
    """
    is_awake = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = list(range(torch.cuda.device_count())) if is_awake else []
    with torch.random.fork_rng(devices=devices):
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
