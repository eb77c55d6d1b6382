"""Operators taken apart by rules of our own, where PyTorch has none or ends in its primitives.

Each rule is written in PyTorch and traced by it: what it yields is taken apart further as usual.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from foretune.workload.importers.torch._special_functions import polygamma, special_rules


def own_rules() -> dict[Any, Callable[..., Any]]:
    """Operator -> the function that it is replaced by."""
    import torch

    aten = torch.ops.aten
    return {
        **special_rules(),
        aten.addbmm.default: _addbmm,
        aten.angle.default: _angle,
        aten.as_strided_scatter.default: _as_strided_scatter,
        aten.frexp.Tensor: _frexp,
        aten.mode.default: _mode,
        aten._pdist_forward.default: _pdist,
        aten.put.default: _put,
        aten.scatter.reduce: _scatter_reduced,
        aten.scatter.value_reduce: _scatter_reduced,
        aten.signbit.default: _signbit,
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
        aten.copy.default: _copied,
        aten.diagonal_scatter.default: _diagonal_scatter,
        aten.index_reduce.default: _index_reduce,
        aten.searchsorted.Tensor: _searchsorted,
        aten.searchsorted.Scalar: _searchsorted,
        aten.bucketize.Tensor: _bucketize,
        aten.bucketize.Scalar: _bucketize,
        aten.logcumsumexp.default: _logcumsumexp,
        aten.polygamma.default: _polygamma,
        aten.take.default: _take,
        aten._trilinear.default: _trilinear,
        aten.index_put.default: _index_put,
        aten._embedding_bag_forward_only.default: _embedding_bag,
        aten._embedding_bag.default: _embedding_bag,
        aten.grid_sampler_3d.default: _grid_sampler_3d,
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
    """The lower of the two in the middle; NaN where there is one."""
    import torch

    if not self.dim():
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    values, indices = torch.sort(self, dim=dim, stable=True)
    middle = (self.shape[dim] - 1) // 2
    value, index = _at(values, dim, middle), _at(indices, dim, middle)
    if self.is_floating_point():
        lost = self.isnan()
        any_lost = lost.any(dim, keepdim=True)
        value = torch.where(any_lost, float("nan"), value)
        index = torch.where(any_lost, lost.to(torch.int64).argmax(dim, keepdim=True), index)
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

    self, mask = torch.broadcast_tensors(self, mask)  # type: ignore[no-untyped-call]
    order = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    taken = source.reshape(-1)[order.clamp(0, source.numel() - 1)].reshape(mask.shape)
    return torch.where(mask, taken, self)


def _copied(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """The source in the type and shape of what it is written to, which PyTorch's rule forgets."""
    return src.to(self.dtype).expand(self.shape).clone()


def _diagonal_scatter(self: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    import torch

    places = torch.arange(self.numel(), device=self.device).reshape(self.shape)
    places = places.diagonal(offset, dim1, dim2).reshape(-1)
    return self.reshape(-1).scatter(0, places, src.reshape(-1)).reshape(self.shape)


def _angle(self: Any) -> Any:
    import torch

    if self.is_complex():
        return NotImplemented
    value = self if self.is_floating_point() else self.to(torch.get_default_dtype())
    return torch.where(value.isnan(), value, torch.where(value < 0, math.pi, 0.0).to(value.dtype))


def _as_strided_scatter(
    self: Any, src: Any, size: Any, stride: Any, storage_offset: int | None = None
) -> Any:
    import torch

    if not self.is_contiguous():  # its places in memory are not those of its elements
        return NotImplemented
    places = torch.full((), storage_offset or 0, dtype=torch.int64, device=self.device)
    for extent, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(extent, device=self.device) * step
    return self.reshape(-1).scatter(0, places.reshape(-1), src.reshape(-1)).reshape(self.shape)


def _frexp(self: Any) -> Any:
    """Mantissa from a half to one, and exponent; zeros, infinities and NaN stay as they are."""
    import torch

    if self.dtype == torch.float64:  # what is denormal there is normal in no wider type
        return NotImplemented
    value = self.to(torch.float64)
    plain = (value != 0) & value.isfinite()
    exponent = torch.where(plain, value, 1.0).abs().log2().floor() + 1
    mantissa = value * torch.exp2(-exponent)
    for above, step in ((mantissa.abs() >= 1, 1.0), (mantissa.abs() < 0.5, -1.0)):
        exponent = torch.where(above, exponent + step, exponent)
        mantissa = torch.where(above, mantissa * 2.0**-step, mantissa)
    return (
        torch.where(plain, mantissa, value).to(self.dtype),
        torch.where(plain, exponent, 0.0).to(torch.int32),
    )


def _mode(self: Any, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """The most frequent value, the smallest of several such, and its last place."""
    import torch

    if not self.dim():
        return self.clone(), torch.zeros((), dtype=torch.int64, device=self.device)
    rows = self.movedim(dim, -1)
    equal = rows.unsqueeze(-1) == rows.unsqueeze(-2)
    count = equal.to(torch.int64).sum(-1)
    often = count == count.amax(-1, keepdim=True)
    order = torch.argsort(rows, dim=-1, stable=True)
    first = torch.gather(often, -1, order).to(torch.int64).argmax(-1, keepdim=True)
    value = torch.gather(rows, -1, torch.gather(order, -1, first))
    places = torch.arange(rows.shape[-1], device=self.device)
    index = torch.where(rows == value, places, -1).amax(-1, keepdim=True)
    value, index = value.movedim(-1, dim), index.movedim(-1, dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def _pdist(self: Any, p: float = 2.0) -> Any:
    """Distances of all pairs of rows, the first before the second."""
    import torch

    first, second = torch.triu_indices(len(self), len(self), 1, device=self.device).unbind()
    apart = (self[first] - self[second]).abs()
    if p == 0:
        return (apart != 0).to(self.dtype).sum(-1)
    if p == math.inf:
        return apart.amax(-1)
    return apart.sum(-1) if p == 1 else (apart**p).sum(-1) ** (1 / p)


def _put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat = self.reshape(-1)
    placed = flat.index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return placed.reshape(self.shape)


def _scatter_reduced(self: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    import torch

    if not isinstance(src, torch.Tensor):
        src = torch.full(index.shape, src, dtype=self.dtype, device=self.device)
    return self.scatter_reduce(dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


def _signbit(self: Any) -> Any:
    return NotImplemented if self.is_floating_point() else self < 0


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

    return polygamma(n, self) if n else torch.digamma(self)


def _take(self: Any, index: Any) -> Any:
    # A tensor of rank 0 as an index would be read as a number.
    return self.reshape(-1)[index.reshape(-1)].reshape(index.shape)


def _trilinear(
    i1: Any,
    i2: Any,
    i3: Any,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    sumdim: Any,
    unroll_dim: int = 1,
) -> Any:
    """The sum over some dimensions of a product of three, each with dimensions inserted."""
    for dim in sorted(expand1):
        i1 = i1.unsqueeze(dim)
    for dim in sorted(expand2):
        i2 = i2.unsqueeze(dim)
    for dim in sorted(expand3):
        i3 = i3.unsqueeze(dim)
    return (i1 * i2 * i3).sum(list(sumdim))


def _index_put(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Places given by one mask over the first dimensions: the n-th of them takes the n-th value."""
    import torch

    given = [index for index in indices if index is not None]
    if len(given) != 1 or indices[0] is None or given[0].dtype is not torch.bool:
        return NotImplemented
    mask, rest = given[0], self.shape[given[0].dim() :]
    new = values.to(self.dtype)
    if new.dim() > len(rest):
        rows = new.expand(new.shape[0], *rest)
        order = (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp(0, new.shape[0] - 1)
        new = rows[order].reshape(self.shape)
    chosen = mask.reshape(*mask.shape, *[1] * len(rest))
    return torch.where(chosen, self + new if accumulate else new, self)


def _embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums, means (mode 1) or largest elements (mode 2) of rows, as many bags as offsets.

    Which row is in which bag is a matrix of truth values; the three results beside it, which only
    the gradient reads, are not computed.
    """
    import torch

    count = indices.shape[0]
    starts = offsets[:-1] if include_last_offset else offsets
    end = torch.full((1,), count, dtype=offsets.dtype)
    ends = torch.cat([starts[1:], offsets[-1:] if include_last_offset else end])
    at = torch.arange(count)
    member = (at >= starts[:, None]) & (at < ends[:, None])
    if padding_idx >= 0:
        member = member & (indices != padding_idx)
    rows = torch.nn.functional.embedding(indices, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    size = member.to(rows.dtype).sum(1, keepdim=True)
    if mode == 2:
        inside = torch.where(member[:, :, None], rows, float("-inf"))
        result = torch.where(size > 0, inside.amax(1), 0.0)
    else:
        result = member.to(rows.dtype) @ rows
        result = result / size.clamp(min=1) if mode == 1 else result
    unread = torch.zeros((0,), dtype=torch.int64)
    return result, unread, unread, unread


def _grid_sampler_3d(
    input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """Trilinear (0) or nearest (1) samples; outside lie zeros (0), the border (1), a mirror (2)."""
    import torch

    batch, _, *sizes = input.shape
    places = []
    for coordinate, size in zip(grid.unbind(-1), reversed(sizes), strict=True):
        place = (
            (coordinate + 1) / 2 * (size - 1)
            if align_corners
            else (((coordinate + 1) * size - 1) / 2)
        )
        if padding_mode == 2:
            place = _mirrored(place, size, align_corners)
        places.append(place.clamp(0, size - 1) if padding_mode else place)
    x, y, z = places
    if interpolation_mode == 1:
        corners = [(x.round(), y.round(), z.round(), None)]
    else:
        low = [place.floor() for place in places]
        corners = []
        for corner in range(8):
            picks = [low[n] + ((corner >> n) & 1) for n in range(3)]
            shares = [1 - (places[n] - picks[n]).abs() for n in range(3)]
            corners.append((*picks, shares[0] * shares[1] * shares[2]))
    total = None
    first = torch.arange(batch).reshape(batch, 1, 1, 1)
    for i, j, k, share in corners:
        inside = (i >= 0) & (i < sizes[2]) & (j >= 0) & (j < sizes[1]) & (k >= 0) & (k < sizes[0])
        at = [c.clamp(0, n - 1).to(torch.int64) for c, n in zip((k, j, i), sizes, strict=True)]
        read = input.permute(0, 2, 3, 4, 1)[first, at[0], at[1], at[2]]
        part = torch.where(inside[..., None], read, 0.0)
        part = part if share is None else part * share[..., None]
        total = part if total is None else total + part
    return total.permute(0, 4, 1, 2, 3)  # type: ignore[union-attr]


def _mirrored(place: Any, size: int, align_corners: bool) -> Any:
    """A position beyond the border, folded back as often as it takes."""
    import torch

    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return torch.zeros_like(place)
    away = (place - low).abs()
    turns, rest = (away / span).floor(), torch.fmod(away, span)
    return torch.where(torch.remainder(turns, 2) == 0, rest + low, high - rest)
