"""The four kernels of the Reasoning Compiler paper, and the kernels of our own benchmarks.

Only the shape of the mixture-of-experts product is printed in that paper. The attentions here are
the attention core as one function (scores, stable softmax, weighted values): TVM's rules tile both
products and inline or thread the softmax stages around them, so that the stages are scheduled
against each other, which is what makes attention a kernel of its own. Projections are left out,
they are plain matrix products that a network tunes as tasks of their own. Sizes are cut (tokens,
image) so that the untuned program ends within seconds on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from foretune.workload.catalog import _operators as op

if TYPE_CHECKING:
    from foretune._tvm import PrimFunc


def _attention(heads: int, shared_heads: int, tokens: int, width: int) -> PrimFunc:
    q = op.tensor("q", heads, tokens, width)
    k = op.tensor("k", shared_heads, tokens, width)
    v = op.tensor("v", shared_heads, tokens, width)
    group = heads // shared_heads
    scores = op.scale(op.batch_matmul(q, k, transposed=True, group=group), width**-0.5)
    return op.program(q, k, v, op.batch_matmul(op.softmax(scores), v, group=group))


def llama3_attention() -> PrimFunc:
    """Attention core, 32 query and 8 key-value heads of 128, 128 tokens: Llama-3-8B."""
    return _attention(32, 8, 128, 128)


def deepseek_moe() -> PrimFunc:
    """Expert projection, 1x16x7168 by 7168x2048: DeepSeek-R1, the shape in the paper's appendix."""
    x, w = op.tensor("A", 1, 16, 7168), op.tensor("B", 7168, 2048)
    return op.program(x, w, op.matmul(x, w))


def flux_attention() -> PrimFunc:
    """Attention core, 24 heads of 128, 256 tokens: FLUX.1, the image tokens of 256x256 pixels."""
    return _attention(24, 24, 256, 128)


def flux_conv() -> PrimFunc:
    """Conv2d 3x3 + bias, 1x32x32x512 to 512 channels: FLUX.1 decoder, latent of 256x256 pixels."""
    x, w, b = op.tensor("x", 1, 32, 32, 512), op.tensor("w", 3, 3, 512, 512), op.tensor("b", 512)
    return op.program(x, w, b, op.add_bias(op.conv2d(x, w, 1, 1), b))


def matmul_512() -> PrimFunc:
    """Matrix product, 512x512 by 512x512: benchmark."""
    x, w = op.tensor("x", 512, 512), op.tensor("w", 512, 512)
    return op.program(x, w, op.matmul(x, w))


def conv2d_3x3() -> PrimFunc:
    """Conv2d 3x3 padding 1, 1x56x56x64 to 64 channels: benchmark."""
    x, w = op.tensor("x", 1, 56, 56, 64), op.tensor("w", 3, 3, 64, 64)
    return op.program(x, w, op.conv2d(x, w, 1, 1))


def depthwise_3x3() -> PrimFunc:
    """Depthwise 3x3 padding 1, 1x112x112x32: benchmark."""
    x, w = op.tensor("x", 1, 112, 112, 32), op.tensor("w", 3, 3, 32, 1)
    return op.program(x, w, op.depthwise(x, w))


KERNELS: dict[str, Callable[[], PrimFunc]] = {
    builder.__name__: builder
    for builder in (
        llama3_attention,
        deepseek_moe,
        flux_attention,
        flux_conv,
        matmul_512,
        conv2d_3x3,
        depthwise_3x3,
    )
}
"""Builders by name."""
