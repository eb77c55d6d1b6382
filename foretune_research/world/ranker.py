"""The ranker ``world`` with the paper's states and with what ablations leave out.

- What a state is made of (``target``): per-store features, as in the product, or encoded text (the
  paper's, ``foretune_research.world.reader``).
- z0 is the same for all programs of a workload, so that trees, which only read columns that differ
  within workloads, cannot learn from it which workload it is. With ``state="initial"`` they rank as
  with ``state="none"``.

Source: Pan et al., Toward Compiler World Models, 2026.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._arrays import Float32Array
from foretune.cost._ranker import Needs
from foretune.cost._table_ranker import Learner
from foretune.cost.world import WorldRanker
from foretune.cost.world.learning import Lesson, WorldConfig
from foretune.cost.world.model import World
from foretune.errors import BadInputError, unknown_name
from foretune_research.trees import Trees
from foretune_research.world.config import WorldStudyConfig

if TYPE_CHECKING:
    from foretune.dataset import Group
    from foretune.hardware import Hardware
    from foretune.space import Candidate

STATES = ("predicted", "initial", "final", "none")
MACHINE_COLUMNS = (
    "machine.",
    "match.",
    "summary.lanes_filled",
    "summary.accumulators",
    "summary.fit",
    "generated.lanes_empty",
    "generated.registers",
    "generated.registers_if_unrolled",
    "generated.loads",
    "generated.kept_l1",
)
"""Columns that look at the factors of a machine begin so."""


class WorldVariants(WorldRanker):
    """The ranker world with switches for its ablations, over states of features or of texts.

    Args:
        state: ``"predicted"``; the ablations ``"initial"``, z0 in place of zT, ``"final"``, the
            state of the program itself, which is made (milliseconds each), and ``"none"``.
        actions: Whether trees look at phi; if not, only at the state and the machine's factors.
        hardware: Whether trees look at h, and at what phi holds of it.
        options: What ``WorldRanker`` takes, and fields of ``WorldStudyConfig`` and of
            ``foretune_research.trees.TreesConfig``.

    Raises:
        BadInputError: An option is unknown or makes no sense.
    """

    needs: Needs = replace(
        WorldRanker.needs,
        options={**WorldRanker.needs.options, "state": str, "actions": bool, "hardware": bool},
    )
    name: ClassVar[str] = "world:variants"
    learner: ClassVar[type[Learner]] = Trees
    world_config_type: ClassVar[type[WorldConfig]] = WorldStudyConfig
    switches: ClassVar[tuple[str, ...]] = (
        "state", "actions", "hardware", *WorldRanker.switches,
    )  # fmt: skip
    studied: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, Any]] = {}
    """Options that the name stands for."""

    def __init__(
        self,
        *,
        state: str = "predicted",
        actions: bool = True,
        hardware: bool = True,
        **options: Any,
    ) -> None:
        if state not in STATES:
            raise unknown_name("state of world", state, STATES)
        if state in ("none", "initial") and not actions:
            raise BadInputError(
                f"world: state='predicted' or 'final', or actions, must tell the programs of a "
                f"workload apart, but got state={state!r} and actions=False"
            )
        self.state, self.actions, self.hardware = state, actions, hardware
        super().__init__(**{**self.presets, **options})
        # As a cost model, it has another one thin out candidates before it makes their programs.
        self.needs = replace(self.needs, programs=state == "final")

    def _refuse_head(self, world: World | WorldConfig) -> None:
        self.require_for_head("state='predicted'", self.state, self.state == "predicted")
        super()._refuse_head(world)
        if not self.actions and self.head_reads != "states":
            raise BadInputError(
                f"world: actions=True must hold for a head that reads them, but got actions=False "
                f"and head_reads={self.head_reads!r}: choose head_reads='states'"
            )

    def _hides(self, column: str) -> bool:
        if not self.hardware and column.startswith(MACHINE_COLUMNS):
            return True
        return not self.actions and not column.startswith("machine.")

    def _world_of(self, groups: Sequence[Group], validation: Sequence[Group]) -> World | None:
        return None if self.state == "none" else super()._world_of(groups, validation)

    def _followed(self, lesson: Lesson) -> World:
        return (
            super()._followed(lesson) if self.state == "predicted" else World(lesson.reader, None)
        )

    def _ends(self, candidates: Sequence[Candidate]) -> Float32Array:
        assert self._world is not None
        if self.state == "predicted":
            return super()._ends(candidates)
        if self.state == "initial":
            return np.stack([self._world.initial(one.workload) for one in candidates])
        blank = np.full(self._world.columns, np.nan, dtype=np.float32)
        states = self._world.reader.finals(candidates, self._cache)
        return np.stack([blank if state is None else state for state in states])

    def _factors_of(self, machine: Hardware) -> Float32Array:
        factors = super()._factors_of(machine)
        return factors if self.hardware else np.zeros_like(factors)


class WorldReference(WorldVariants):
    """The ranker world as it was published: states of texts by CodeBERT, LambdaRank."""

    presets: ClassVar[Mapping[str, Any]] = {
        "target": "text",
        "encoder": "codebert",
        "positives": "dropout",
        "objective": "ndcg",
        "crossfit": False,
        "transition_options": {
            "action_embedding": "text",
            "attainable": False,
            "members": 1,
            "scaled": False,
        },
    }
