"""Which operators are lowered, which are kept whole, which mean nothing."""

from __future__ import annotations

from foretune.workload.importers.torch._index import INDEX
from foretune.workload.importers.torch._network import NETWORK
from foretune.workload.importers.torch._node import Lowering
from foretune.workload.importers.torch._pointwise import POINTWISE
from foretune.workload.importers.torch._recurrent import RECURRENT
from foretune.workload.importers.torch._reduce import REDUCTIONS
from foretune.workload.importers.torch._shapes import SHAPES

LOWERINGS: dict[str, Lowering] = {
    **POINTWISE,
    **REDUCTIONS,
    **SHAPES,
    **INDEX,
    **NETWORK,
    **RECURRENT,
}
"""Operator (``name.overload``) to its lowering. All others are decomposed by PyTorch, or refused.

The form of a network that PyTorch's decompositions leave is the one that tunes: products of
matrices from ``linear``, one convolution operator, layer norms, softmax and GELU whole.
"""

KEPT = (
    "silu.default",
    "upsample_nearest1d.vec",
    "upsample_nearest3d.vec",
    "_upsample_nearest_exact1d.vec",
    "_upsample_nearest_exact2d.vec",
    "_upsample_nearest_exact3d.vec",
    "upsample_linear1d.vec",
    "upsample_trilinear3d.vec",
    "upsample_bicubic2d.vec",
    *RECURRENT,
)
"""Operators that PyTorch would take apart, kept whole because they tune better so."""

IGNORED = (
    "_assert_async.msg",
    "_assert_async.default",
    "_assert_scalar.default",
    "_assert_tensor_metadata.default",
    "sym_constrain_range.default",
    "sym_constrain_range_for_size.default",
)
"""Checks without a value, which hold for the shapes that a model is imported with."""

INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
"""Operators around a subgraph that is computed as it stands."""
