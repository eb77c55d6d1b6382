"""Plans of a network that need no network."""

from __future__ import annotations

from foretune.hardware import Hardware
from foretune.plans.links import Offer
from foretune.plans.space import PlanOperator, PlanSketch, PlanSpace

HARDWARE = Hardware("synthetic", '{"kind": "llvm"}', threads=2, simd_bits=256)
LAST = (("layouts", "channels last"),)
DIRECT = (*LAST, ("algorithms", "direct"))
FUSED = ("fused", "alone")


def convolution(number):
    """An operator with all choices there are: 2 paths as written, and 2 + 2 + 4 channels last."""
    after = [
        (("layouts", "as written"),),
        *((*LAST, ("algorithms", a)) for a in ("winograd2", "winograd4")),
        *((*DIRECT, ("packed-weights", p)) for p in ("panels", "plain")),
    ]
    return PlanOperator(
        3 * number,
        f"conv2d {number}",
        number,
        (
            Offer("layouts", (), ("channels last", "as written"), "channels last"),
            Offer("algorithms", LAST, ("direct", "winograd2", "winograd4"), "winograd2"),
            Offer("packed-weights", DIRECT, ("panels", "plain"), "panels"),
            *(Offer("fusion", path, FUSED, "fused") for path in after),
        ),
    )


def product(number):
    """An operator whose packing and fusion are decided apart."""
    packed = [(("packed-weights", p),) for p in ("panels", "plain")]
    return PlanOperator(
        3 * number,
        f"matmul {number}",
        number,
        (
            Offer("packed-weights", (), ("panels", "plain"), "panels"),
            *(Offer("fusion", path, FUSED, "fused") for path in packed),
        ),
    )


def space(convolutions=2, products=1):
    """Plans of so many operators: 10 paths of each convolution, 4 of each product."""
    operators = [convolution(n) for n in range(convolutions)]
    operators += [product(convolutions + n) for n in range(products)]
    return PlanSpace(PlanSketch("made up", "0123456789abcdef", HARDWARE, operators))
