"""TGraph's attention across configurations, over schedules of one program.

Idea: a candidate is read as the columns of its decisions (``features.action_features``), and beside
it stand a few anchors: candidates of the same sketch, drawn once. Attention compares the two in
every layer, so that a network may learn "more than is usual in this space" instead of "more". Since
anchors are drawn by a fixed seed, a score depends on nothing but the candidate.

Programs that others logged have no sketch to draw from. Their anchors are programs of the set that
is scored, those with the least digests; so there, and only there, scores depend on the set.

``anchors=0`` is the control: the same layers without attention across candidates.

Source: equations 5 to 7 of Tatarkhanov et al., TGraph (2025); the network is in ``sets``.
"""

# Constants of the product are options here: instance variables in the place of class variables.
# mypy: disable-error-code="misc"

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foretune._arrays import BoolArray, Float32Array
from foretune._options import Bounds, Count
from foretune.cost._examples import Examples, Labelled, Scaling, members_of
from foretune.cost._neural import NeuralConfig
from foretune.cost._tables import Table, informative
from foretune.space import Space
from foretune_research.neural import NeuralSwitches, Study

if TYPE_CHECKING:
    from torch import nn

    from foretune.dataset import Program
    from foretune.hardware import Hardware
    from foretune.space import Sketch

_SEED = 0
"""Of anchors: they are part of what a file means."""
_REMEMBERED = 4096


@dataclass(frozen=True)
class TGraphRankerConfig(NeuralSwitches):
    """The network and how it is trained; see ``NeuralConfig`` for what all networks have.

    Attributes:
        width: Channels, a multiple of 16.
        depth: Layers.
        anchors: Candidates that each is compared with; 0: none.
        channel_attention: Equation 5.
    """

    ranker: ClassVar[str] = "tgraph"

    loss: str = "list_net"
    list_size: int = 96
    batch: int = 384
    hardware: bool = False
    select: str = "training"
    width: Annotated[int, Bounds(ge=16, multiple_of=16)] = 256
    depth: Count = 2
    anchors: Annotated[int, Bounds(ge=0)] = 8
    channel_attention: bool = True


class TGraphRanker(Study):
    """Attention across schedules: each is compared with fixed ones of its space (TGraph).

    Args:
        seed: Of weights, order and dropout.
        threads: Threads PyTorch may use; None: as many as it would otherwise.
        device: PyTorch's name of a device; None: a CUDA device where there is one.
        options: Fields of ``TGraphRankerConfig``.

    Raises:
        BadInputError: Unknown option, or a value that makes no sense.
    """

    config_type: ClassVar[type[NeuralConfig]] = TGraphRankerConfig
    study: ClassVar[str] = "tgraph"
    config: TGraphRankerConfig

    @property
    def versions(self) -> dict[str, Any]:
        """Versions of the action and hardware features."""
        from foretune import features, hardware

        return {
            "actions": features.ACTION_FEATURE_VERSION,
            "hardware": hardware.FEATURE_VERSION,
        }

    def _network(self, width: int, columns: int, outputs: int) -> nn.Module:
        from foretune_research.tgraph.sets import SetNetwork

        config = self.config
        return SetNetwork(
            width,
            config.anchors,
            config.width,
            config.depth,
            config.channel_attention,
            config.dropout,
        )

    def _examples(
        self, programs: Sequence[Program], machine: Hardware | None
    ) -> tuple[Examples, BoolArray]:
        from foretune.features import action_features

        own = action_features(programs, machine)
        n, count = len(programs), self.config.anchors
        rows = np.concatenate([self._anchors(programs, own, machine), own[:, None]], axis=1)
        examples = Examples(
            rows.reshape(n * (count + 1), -1),
            np.full(n, count + 1, dtype=np.intp),
            np.zeros((n, 0), np.float32),
        )
        return examples, np.ones(n, dtype=bool)

    def _anchors(
        self, programs: Sequence[Program], own: Float32Array, machine: Hardware | None
    ) -> Float32Array:
        """Columns of every program's anchors, shape (n, anchors, columns)."""
        found = np.empty((len(programs), self.config.anchors, own.shape[1]), np.float32)
        if not self.config.anchors:
            return found
        by_sketch: dict[str, list[int]] = {}
        logged = []
        for at, program in enumerate(programs):
            if program.candidate is None:
                logged.append(at)
            else:
                by_sketch.setdefault(program.candidate.sketch.key, []).append(at)
        for places in by_sketch.values():
            candidate = programs[places[0]].candidate
            assert candidate is not None
            known = candidate.hardware if machine is None else machine
            found[places] = _drawn(candidate.sketch, known, self.config.anchors)
        if logged:
            found[logged] = own[_least_digests(programs, logged, self.config.anchors)]
        return found

    def _row_scaling(self, data: Labelled) -> Scaling:
        """To mean 0 and deviation 1; what can only name a workload becomes 0."""
        scaling = super()._row_scaling(data)
        width = self.config.anchors + 1
        own = data.examples.rows.reshape(len(data.labels), width, -1)[:, -1]
        quiet = np.ones(len(own), dtype=bool)
        tables = [
            Table(str(at), own[members], data.labels[members].astype(np.float64), quiet[members])
            for at, members in enumerate(members_of(data.group))
        ]
        kept = np.zeros(own.shape[1], np.float32)
        kept[informative(tables)] = 1.0
        return Scaling(scaling.shift, scaling.factor * kept, scaling.limit)


@functools.lru_cache(maxsize=_REMEMBERED)
def _drawn(sketch: Sketch, machine: Hardware, count: int) -> Float32Array:
    """Columns of candidates drawn from a sketch, shape (count, columns); few are repeated."""
    from foretune.dataset import Program
    from foretune.features import action_features

    space = Space(sketch.workload, sketch.hardware, (sketch,))
    drawn = space.sample(np.random.default_rng(_SEED), count)
    rows = action_features([Program(candidate=candidate) for candidate in drawn], machine)
    return np.resize(rows, (count, rows.shape[1]))


def _least_digests(programs: Sequence[Program], among: Sequence[int], count: int) -> list[int]:
    """Places of the logged programs that others are compared with; few are repeated."""

    def digest(at: int) -> bytes:
        return hashlib.blake2b(programs[at].key.encode(), digest_size=8).digest()

    ordered = sorted(among, key=digest)[:count]
    return [ordered[at % len(ordered)] for at in range(count)]
