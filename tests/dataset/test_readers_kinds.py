"""Operator kinds from names and shapes."""

from __future__ import annotations

import pytest

from foretune.dataset.readers._kinds import kind_of_names, kind_of_shapes


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["pad_temp", "conv2d_nchw", "T_add", "T_relu"], "conv2d"),
        (["data_pack", "bgemm", "inverse"], "conv2d"),
        (["depthwise_conv2d_layer"], "depthwise"),
        (["PaddedInput", "DepthwiseConv2d"], "depthwise"),
        (["conv2d_transpose_nchw.x86"], "conv2d_transpose"),
        (["group_conv2d_nchw.cuda"], "group_conv2d"),
        (["conv3d_ansor"], "conv3d"),
        (["T_matmul_NT", "T_add"], "dense"),
        (["ansor_mm"], "dense"),
        (["T_batch_matmul_NT"], "batch_matmul"),
        (["T_softmax_maxelem", "T_softmax_exp", "T_softmax_norm"], "softmax"),
        (["adaptive_pool_sum", "adaptive_pool_avg"], "pool"),
        (["pool_layer"], "pool"),
        (["reduction_layer"], "reduction"),
        (["T_layer_norm"], "norm"),
        (["relu_layer"], "elementwise"),
        (["padding"], "unknown"),
        (["tensor"], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_operator_that_costs_most_names_the_kind(names: list[str], kind: str) -> None:
    assert kind_of_names(names) == kind


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ([[1, 12, 56, 56, 4], [6, 12, 1, 1, 4, 4], [1, 6, 1, 1, 4], [1, 6, 56, 56, 4]], "conv2d"),
        ([[1, 144, 14, 14, 4], [144, 1, 3, 3, 1, 4], [1, 144, 14, 14, 4]], "depthwise"),
        ([[1, 28, 28, 96], [3, 3, 96, 1], [1, 28, 28, 96]], "depthwise"),
        ([[1, 56, 56, 64], [6, 6, 64, 64], [1, 1, 1, 64], [1, 56, 56, 64]], "conv2d"),
        ([[1, 16, 56, 56, 64], [3, 3, 3, 64, 32], [1, 16, 56, 56, 32]], "conv3d"),
        ([[1, 1280], [1000, 1280], [1, 1000], [1, 1000]], "dense"),
        ([[12, 128, 64], [12, 100, 64], [12, 128, 100]], "batch_matmul"),
        ([[1, 56, 56, 64], [1, 1, 1, 64], [1, 56, 56, 64]], "unknown"),
        ([[1, 56, 56, 64], [1, 56, 56, 64], [1, 56, 56, 64]], "unknown"),
        ([[1, 1000], [1, 1000]], "unknown"),
        ([], "unknown"),
        ([[], [], []], "unknown"),
    ],
)
def test_shapes_say_what_a_hash_does_not(shapes: list[list[int]], kind: str) -> None:
    assert kind_of_shapes(shapes) == kind
