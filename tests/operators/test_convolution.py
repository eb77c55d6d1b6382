"""Transposed convolutions, compared with PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional as F

from foretune.operators.convolution import transposed_convolution
from tests.graph.programs import constant, module_of, relax, run


def drawn(rng, rank):
    """Arguments as PyTorch takes them, legal ones: some cut more than the kernel reaches."""
    while True:
        groups = int(rng.choice([1, 2, 4]))
        kernel, stride, dilation = (rng.integers(1, 4, rank).tolist() for _ in range(3))
        padding = rng.integers(0, 4, rank).tolist()
        more = [int(rng.integers(max(s, d))) for s, d in zip(stride, dilation, strict=True)]
        x = rng.normal(size=(2, 4, *rng.integers(3, 6, rank))).astype("float32")
        weight = rng.normal(size=(4, 3, *kernel)).astype("float32")
        function = getattr(F, f"conv_transpose{rank}d")
        tensors = torch.from_numpy(x), torch.from_numpy(weight)
        try:
            expected = function(*tensors, None, stride, padding, more, groups, dilation)
        except RuntimeError:
            continue  # Nothing would be left.
        return x, weight, (stride, padding, more, dilation, groups), expected.numpy()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_any_stride_padding_dilation_and_groups(rank, rng):
    cases = [drawn(rng, rank) for _ in range(8)]

    def make(*inputs):
        builder = relax.BlockBuilder.current()
        return tuple(
            transposed_convolution(
                builder,
                x,
                constant(weight),
                stride,
                padding,
                [p - m for p, m in zip(padding, more, strict=True)],
                dilation,
                groups,
            )
            for x, (_, weight, (stride, padding, more, dilation, groups), _) in zip(
                inputs, cases, strict=True
            )
        )

    arrays = [case[0] for case in cases]
    for case, actual in zip(cases, run(module_of(make, *arrays), *arrays), strict=True):
        assert actual.shape == case[3].shape, case[2]
        np.testing.assert_allclose(actual, case[3], rtol=1e-4, atol=1e-4, err_msg=str(case[2]))
