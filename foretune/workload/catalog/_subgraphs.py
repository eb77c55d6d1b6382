"""The 22 representative subgraphs of the compiler-world-model paper (its Table 2).

The paper gives the type and the network of each, not its shape; the shapes here are those of a
layer of that type in that network, at batch 1. Batch norms are folded. Names follow the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from foretune.workload.catalog import _operators as op

if TYPE_CHECKING:
    from foretune._tvm import PrimFunc


def conv3d_bn_relu() -> PrimFunc:
    """Conv3d 3x3x3 + BN + ReLU, 1x4x14x14x256 to 256 channels: ResNet18-3D, layer 3."""
    x, w = op.tensor("x", 1, 4, 14, 14, 256), op.tensor("w", 3, 3, 3, 256, 256)
    b = op.tensor("b", 256)
    return op.program(x, w, b, op.relu(op.add_bias(op.conv3d(x, w, 1, 1), b)))


def conv3d() -> PrimFunc:
    """Conv3d 1x1x1 stride 2, 1x16x56x56x64 to 128 channels: ResNet18-3D, shortcut of layer 2."""
    x, w = op.tensor("x", 1, 16, 56, 56, 64), op.tensor("w", 1, 1, 1, 64, 128)
    return op.program(x, w, op.conv3d(x, w, 2, 0))


def ffn() -> PrimFunc:
    """Dense + bias + GELU, 128x768 by 768x3072: BERT-base, first half of the feed-forward."""
    x, w, b = op.tensor("x", 128, 768), op.tensor("w", 768, 3072), op.tensor("b", 3072)
    return op.program(x, w, b, op.gelu(op.add_bias(op.matmul(x, w), b)))


def attention_qk() -> PrimFunc:
    """Batched Q K^T, 32 heads of 128x64 by 64x128: OPT-1.3B self-attention, 128 tokens."""
    q, k = op.tensor("q", 32, 128, 64), op.tensor("k", 32, 128, 64)
    return op.program(q, k, op.batch_matmul(q, k, transposed=True))


def layernorm_variance() -> PrimFunc:
    """Mean of (x - mean)^2 over 768, 1x128x768: GPT-2, second statistic of a layer norm."""
    x, centre = op.tensor("x", 1, 128, 768), op.tensor("mean", 1, 128, 1)
    return op.program(x, centre, op.mean(op.squared_deviation(x, centre)))


def layernorm_mean() -> PrimFunc:
    """Mean over 768, 1x128x768: GPT-2, first statistic of a layer norm."""
    x = op.tensor("x", 1, 128, 768)
    return op.program(x, op.mean(x))


def attention_projection() -> PrimFunc:
    """Dense + bias, 128x2048 by 2048x2048: OPT-1.3B self-attention, output projection."""
    x, w, b = op.tensor("x", 128, 2048), op.tensor("w", 2048, 2048), op.tensor("b", 2048)
    return op.program(x, w, b, op.add_bias(op.matmul(x, w), b))


def softmax() -> PrimFunc:
    """Softmax over the last axis, 32x128x128: OPT-1.3B self-attention, 128 tokens."""
    x = op.tensor("x", 32, 128, 128)
    return op.program(x, op.softmax(x))


def dense() -> PrimFunc:
    """Dense + bias, 1x2048 by 2048x1000: ResNet-50, classifier."""
    x, w, b = op.tensor("x", 1, 2048), op.tensor("w", 2048, 1000), op.tensor("b", 1000)
    return op.program(x, w, b, op.add_bias(op.matmul(x, w), b))


def avgpool2d() -> PrimFunc:
    """Average pooling 7x7, 1x7x7x1280: MobileNetV2, before the classifier."""
    x = op.tensor("x", 1, 7, 7, 1280)
    return op.program(x, op.pool2d(x, "avg", 7))


def attention_pv() -> PrimFunc:
    """Batched P V, 12 heads of 128x128 by 128x64: BERT-base self-attention, 128 tokens."""
    p, v = op.tensor("p", 12, 128, 128), op.tensor("v", 12, 128, 64)
    return op.program(p, v, op.batch_matmul(p, v))


def qkv_projection() -> PrimFunc:
    """Dense without bias, 128x768 by 768x768: GPT-Neo self-attention at the width of Table 1."""
    x, w = op.tensor("x", 128, 768), op.tensor("w", 768, 768)
    return op.program(x, w, op.matmul(x, w))


def maxpool2d() -> PrimFunc:
    """Max pooling 3x3 stride 2 padding 1, 1x112x112x64: ResNet-50, after the stem."""
    x = op.tensor("x", 1, 112, 112, 64)
    return op.program(x, op.pool2d(x, "max", 3, 2, 1))


def conv2d_relu() -> PrimFunc:
    """Conv2d 1x1 + BN + ReLU, 1x14x14x1024 to 256 channels: ResNet-50, stage 3, start."""
    x, w, b = op.tensor("x", 1, 14, 14, 1024), op.tensor("w", 1, 1, 1024, 256), op.tensor("b", 256)
    return op.program(x, w, b, op.relu(op.add_bias(op.conv2d(x, w), b)))


def conv2d() -> PrimFunc:
    """Conv2d 1x1 + BN, 1x14x14x384 to 96 channels: MobileNetV2, a projection without residual."""
    x, w, b = op.tensor("x", 1, 14, 14, 384), op.tensor("w", 1, 1, 384, 96), op.tensor("b", 96)
    return op.program(x, w, b, op.add_bias(op.conv2d(x, w), b))


def depthwise_relu() -> PrimFunc:
    """Depthwise 3x3 + BN + ReLU6, 1x56x56x144: MobileNetV2, second inverted residual at 56x56."""
    x, w, b = op.tensor("x", 1, 56, 56, 144), op.tensor("w", 3, 3, 144, 1), op.tensor("b", 144)
    return op.program(x, w, b, op.relu6(op.add_bias(op.depthwise(x, w), b)))


def conv2d_add() -> PrimFunc:
    """Conv2d 1x1 + BN + residual, 1x14x14x576 to 96 channels: MobileNetV2, projection at 14x14."""
    x, w, b = op.tensor("x", 1, 14, 14, 576), op.tensor("w", 1, 1, 576, 96), op.tensor("b", 96)
    residual = op.tensor("residual", 1, 14, 14, 96)
    y = op.add_bias(op.conv2d(x, w), b)
    return op.program(x, w, b, residual, op.add(y, residual))


def depthwise() -> PrimFunc:
    """Depthwise 3x3 stride 2, 1x14x14x576: MobileNetV2, down to 7x7."""
    x, w = op.tensor("x", 1, 14, 14, 576), op.tensor("w", 3, 3, 576, 1)
    return op.program(x, w, op.depthwise(x, w, 2))


def conv2d_add_relu() -> PrimFunc:
    """Conv2d 1x1 + BN + residual + ReLU, 1x14x14x256 to 1024: ResNet-50, stage 3, end."""
    x, w, b = op.tensor("x", 1, 14, 14, 256), op.tensor("w", 1, 1, 256, 1024), op.tensor("b", 1024)
    residual = op.tensor("residual", 1, 14, 14, 1024)
    y = op.add(op.add_bias(op.conv2d(x, w), b), residual)
    return op.program(x, w, b, residual, op.relu(y))


def conv2d_pad_relu() -> PrimFunc:
    """Conv2d 3x3 padding 1 + BN + ReLU, 1x28x28x128 to 128 channels: ResNet-50, stage 2."""
    x, w, b = op.tensor("x", 1, 28, 28, 128), op.tensor("w", 3, 3, 128, 128), op.tensor("b", 128)
    return op.program(x, w, b, op.relu(op.add_bias(op.conv2d(x, w, 1, 1), b)))


def conv2d_stride_relu() -> PrimFunc:
    """Conv2d 3x3 stride 2 padding 1 + BN + ReLU, 1x56x56x128 to 128: ResNet-50, into stage 2."""
    x, w, b = op.tensor("x", 1, 56, 56, 128), op.tensor("w", 3, 3, 128, 128), op.tensor("b", 128)
    return op.program(x, w, b, op.relu(op.add_bias(op.conv2d(x, w, 2, 1), b)))


def conv2d_stride_add() -> PrimFunc:
    """Conv2d 1x1 stride 2 + BN, 1x56x56x256 to 512 channels: ResNet-50, shortcut into stage 2."""
    x, w, b = op.tensor("x", 1, 56, 56, 256), op.tensor("w", 1, 1, 256, 512), op.tensor("b", 512)
    return op.program(x, w, b, op.add_bias(op.conv2d(x, w, 2), b))


SUBGRAPHS: dict[str, Callable[[], PrimFunc]] = {
    builder.__name__: builder
    for builder in (
        conv3d_bn_relu,
        conv3d,
        ffn,
        attention_qk,
        layernorm_variance,
        layernorm_mean,
        attention_projection,
        softmax,
        dense,
        avgpool2d,
        attention_pv,
        qkv_projection,
        maxpool2d,
        conv2d_relu,
        conv2d,
        depthwise_relu,
        conv2d_add,
        depthwise,
        conv2d_add_relu,
        conv2d_pad_relu,
        conv2d_stride_relu,
        conv2d_stride_add,
    )
}
"""Builders by name, in the order of the paper's table."""
