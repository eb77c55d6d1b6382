"""A module whose states come and go as arguments and results, for exporters that lose writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretune.workload import TorchSource


def stateless(source: TorchSource) -> Any:
    """A module of ``(args, kwargs, states)`` that returns the tensors of ``source.run``.

    Args:
        source: The original; its module is left as it is after each call.
    """
    import torch
    from torch.utils import _pytree as pytree

    class Stateless(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = source.module

        def forward(self, args: Any, kwargs: Any, states: Any) -> tuple[Any, ...]:
            owners = source.owners()
            before = [buffers[name] for buffers, name in owners]
            for (buffers, name), state in zip(owners, states, strict=True):
                buffers[name] = state.clone()
            try:
                outputs = self.module(*args, **kwargs)
                after = [buffers[name] for buffers, name in owners]
            finally:
                for (buffers, name), buffer in zip(owners, before, strict=True):
                    buffers[name] = buffer
            tensors = [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]
            return (*tensors, *after)

    return Stateless().eval()
