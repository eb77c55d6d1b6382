"""Operators taken apart by rules of our own, where PyTorch has none or ends in its primitives.

Each rule is written in PyTorch and traced by it: what it yields is taken apart further as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def own_rules() -> dict[Any, Callable[..., Any]]:
    """Operator -> the function that it is replaced by."""
    import torch

    aten = torch.ops.aten
    return {
        aten.addbmm.default: _addbmm,
        aten.var_mean.correction: _var_mean,
        aten.var_mean.dim: _var_mean_of_dims,
        aten.var_mean.default: _var_mean_of_all,
        aten.std_mean.correction: _std_mean,
        aten.median.default: _median,
        aten.median.dim: _median_of_dim,
        aten.nanmedian.default: _nanmedian,
        aten.nanmedian.dim: _nanmedian_of_dim,
        aten.kthvalue.default: _kthvalue,
        aten.masked_scatter.default: _masked_scatter,
        aten.index_reduce.default: _index_reduce,
        aten.searchsorted.Tensor: _searchsorted,
        aten.searchsorted.Scalar: _searchsorted,
        aten.bucketize.Tensor: _bucketize,
        aten.bucketize.Scalar: _bucketize,
        aten.logcumsumexp.default: _logcumsumexp,
        aten.polygamma.default: _polygamma,
        aten.take.default: _take,
    }


def _addbmm(self: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = (batch1 @ batch2).sum(0) * alpha
    return product.to(self.dtype) if beta == 0 else (self * beta + product).to(self.dtype)


def _var_mean(
    self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Any, Any]:
    import torch

    variance = torch.ops.aten.var.correction(self, dim, correction=correction, keepdim=keepdim)
    dims = dim or list(range(self.dim()))
    return variance, torch.mean(self, dims, keepdim=keepdim)


def _var_mean_of_dims(
    self: Any, dim: Any, unbiased: bool = True, keepdim: bool = False
) -> tuple[Any, Any]:
    return _var_mean(self, dim, correction=int(unbiased), keepdim=keepdim)


def _var_mean_of_all(self: Any, unbiased: bool = True) -> tuple[Any, Any]:
    return _var_mean(self, None, correction=int(unbiased))


def _std_mean(
    self: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Any, Any]:
    variance, mean = _var_mean(self, dim, correction=correction, keepdim=keepdim)
    return variance.sqrt(), mean


def _median(self: Any) -> Any:
    return _median_of_dim(self.reshape(-1), 0)[0]


def _median_of_dim(self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The lower of the two in the middle; NaN where there is one, as sorting puts it last."""
    import torch

    if not self.dim():
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    values, indices = torch.sort(self, dim=dim, stable=True)
    middle = (self.shape[dim] - 1) // 2
    value, index = _at(values, dim, middle), _at(indices, dim, middle)
    if self.is_floating_point():
        last = values.select(dim, self.shape[dim] - 1).unsqueeze(dim)
        first = self.isnan().to(torch.int64).argmax(dim, keepdim=True)
        value = torch.where(last.isnan(), last, value)
        index = torch.where(last.isnan(), first, index)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def _at(tensor: Any, dim: int, place: int) -> Any:
    return tensor.select(dim, place).unsqueeze(dim)


def _nanmedian(self: Any) -> Any:
    return _nanmedian_of_dim(self.reshape(-1), 0)[0]


def _nanmedian_of_dim(self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    import torch

    if not self.dim():
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    if not self.is_floating_point():
        return _median_of_dim(self, dim, keepdim)
    values, indices = torch.sort(self, dim=dim, stable=True)
    count = (~self.isnan()).to(torch.int64).sum(dim, keepdim=True)
    middle = ((count - 1) // 2).clamp(min=0)
    value, index = torch.gather(values, dim, middle), torch.gather(indices, dim, middle)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def _kthvalue(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    import torch

    if not self.dim():
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    values, indices = torch.sort(self, dim=dim, stable=True)
    value, index = _at(values, dim, k - 1), _at(indices, dim, k - 1)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def _masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    """The n-th place of the mask takes the n-th element of the source."""
    import torch

    mask = mask.expand(self.shape)
    order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    taken = source.reshape(-1)[order.clamp(0, source.numel() - 1)].reshape(mask.shape)
    return torch.where(mask, taken, self)


def _index_reduce(
    self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    if not self.dim():
        return (
            self.reshape(1)
            .index_reduce(
                0, index.reshape(-1), source.reshape(1), reduce, include_self=include_self
            )
            .reshape(())
        )
    dim %= self.dim()
    wide = [1] * self.dim()
    wide[dim] = -1
    places = index.reshape(wide).expand(source.shape)
    return self.scatter_reduce(dim, places, source, reduce, include_self=include_self)


def _searchsorted(
    sorted_sequence: Any,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """How many of a row are smaller: by counting, without branches."""
    import torch

    if sorter is not None:
        sorted_sequence = torch.gather(sorted_sequence, -1, sorter)
    value = torch.as_tensor(self, device=sorted_sequence.device)
    if sorted_sequence.dim() == 1:
        rows = sorted_sequence
        queries = value.unsqueeze(-1)
    else:
        rows, queries = sorted_sequence.unsqueeze(-2), value.unsqueeze(-1)
    before = rows <= queries if right or side == "right" else rows < queries
    return before.sum(-1).to(torch.int32 if out_int32 else torch.int64)


def _bucketize(self: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return _searchsorted(boundaries, self, out_int32=out_int32, right=right)


def _logcumsumexp(self: Any, dim: int) -> Any:
    """The sum of each prefix, scaled by the largest number of that prefix."""
    import torch

    if not self.dim():
        return self.clone()
    rows = self.movedim(dim, -1)
    size = rows.shape[-1]
    at = torch.arange(size, device=self.device)
    reached = at[:, None] >= at[None, :]
    prefix = torch.where(reached, rows.unsqueeze(-2), float("-inf"))
    return torch.logsumexp(prefix, -1).to(self.dtype).movedim(-1, dim)


def _polygamma(n: int, self: Any) -> Any:
    import torch

    if n:
        return NotImplemented
    return torch.digamma(self)


def _take(self: Any, index: Any) -> Any:
    return self.reshape(-1)[index]
