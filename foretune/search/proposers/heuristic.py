"""Edits that follow rules of thumb about the machine.

Idea: each rule looks at a column of the action features and has a range in which it is content;
outside of it, it complains by the distance in log2. The worth of an edit is by how much it lowers
the weighted complaints. The rules are what a performance engineer checks first:

- CPUs: the innermost tile is whole vectors; it fills the registers, and does not spill; the tile
  inside the outer reduction fits the first cache, the one around it the second; there is parallel
  work for every thread, evenly; loops are vectorised, parallel and unrolled.
- GPUs: 64 to 256 threads per block; tiles that are shared fit shared memory; a thread's results
  fit its registers; blocks for every multiprocessor; loops are unrolled.

Source: the rules are those that the features of Ansor (Zheng et al., OSDI 2020, appendix B) and
``foretune.features.machine_fit`` make visible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import Float32Array, FloatArray
from foretune.search.proposers._ranked import RankedProposer, places
from foretune.space.protocol import C

if TYPE_CHECKING:
    from foretune.hardware import Hardware


@dataclass(frozen=True)
class Rule:
    """A number and where it should be.

    Attributes:
        columns: Names of columns of the action features, log2, which are added up.
        low, high: Range in which the rule is content.
        weight: Slow-downs (log2) expected per unit outside of it.
        most: Largest distance that counts.
    """

    columns: tuple[str, ...]
    low: float
    high: float
    weight: float
    most: float = 4.0


_INF = math.inf
CPU_RULES = (
    Rule(("match.lanes_empty",), 0, 0, 0.6),
    Rule(("match.registers",), -3.0, -0.2, 0.6),
    Rule(("match.footprint2_l1",), -_INF, 0.0, 0.2),
    Rule(("match.footprint1_l2",), -_INF, 0.0, 0.2),
    Rule(("match.parallel",), 0.0, _INF, 0.7),
    Rule(("match.uneven",), 0, 0, 0.8),
    Rule(("level.vector",), 1.0, _INF, 0.7, most=1.0),
    Rule(("choice.vectorize",), 1.0, _INF, 0.7, most=1.0),
    Rule(("choice.parallel",), 1.0, _INF, 0.7, most=1.0),
    Rule(("choice.unroll_explicit",), 1.0, _INF, 0.3, most=1.0),
)
"""Of a processor with vector registers and private caches."""


_THREAD = ("level.s0", "level.s1", "level.s3")
"""What one thread of a GPU computes: its virtual threads' results are all alive at once."""
_ACCUMULATORS = math.log2(128)
"""Of 255 registers half hold results."""


def gpu_rules(hardware: Hardware) -> tuple[Rule, ...]:
    """Of a GPU: parts of a spatial loop are, from the innermost, s0 and s1 in a thread, s2 threads,
    s3 virtual threads and s4 blocks.

    What is shared is no more than what the threads of a block touch for one step of the outer
    reduction (``footprint0``), as often as each has virtual threads.
    """
    gpu = hardware.gpu or {}
    shared = math.log2(gpu.get("shared_memory_per_block", 0) or 48 * 1024)
    blocks = math.log2(gpu.get("multiprocessors", 0) or 1)
    return (
        Rule(("level.s2",), 6.0, 8.0, 0.6),
        Rule(_THREAD, 1.0, _ACCUMULATORS, 0.3),
        Rule(("level.s4",), blocks, _INF, 0.5),
        Rule(("footprint0.all", "level.s3"), -_INF, shared, 0.5),
        Rule(("choice.unroll_explicit",), 1.0, _INF, 0.3, most=1.0),
    )


class HeuristicProposer(RankedProposer[C]):
    """Prefers edits that suit vectors, registers, caches, threads or shared memory better."""

    noise = 0.15

    def worth(self, parents: Float32Array, edits: Float32Array, hardware: Hardware) -> FloatArray:
        """By how much complaints fall, shape (n,)."""
        rules = CPU_RULES if hardware.has_cores else gpu_rules(hardware)
        return complaints(parents, rules) - complaints(edits, rules)


def complaints(features: Float32Array, rules: tuple[Rule, ...]) -> FloatArray:
    """Weighted distances of programs from where rules are content, shape (n,), 0 is perfect."""
    values = np.stack(
        [features[:, places(rule.columns)].sum(1, dtype=np.float64) for rule in rules], axis=1
    )
    low, high, weight, most = (
        np.array([getattr(rule, name) for rule in rules])
        for name in ("low", "high", "weight", "most")
    )
    distance = np.maximum(np.maximum(low - values, values - high), 0.0)
    return np.asarray(np.minimum(distance, most) @ weight)
