"""What the ranker ``world`` has learned: it predicts where programs end.

Symbols: z0 the state of the untransformed program, zT the predicted terminal state; d the numbers
of a state.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import Array, Float32Array, IntArray
from foretune.cost.world.actions import ActionBook, Route
from foretune.cost.world.readers import READERS, Reader
from foretune.errors import RecordError
from foretune.space import Candidate
from foretune.world.transition import TransitionModel

if TYPE_CHECKING:
    import torch

    from foretune.workload import Workload

_log = logging.getLogger("foretune.cost.world")

_GRID = 4096.0
"""Steps of a unit to which states are rounded: what rounding errors differ by falls on one side of
a tree's threshold, whichever other programs were scored beside."""


class World:
    """Predicts where programs end: a reader, transitions, and what has been read already.

    Args:
        reader: Of programs.
        transition: Of states; None where nothing is predicted.
        unaware: Key of a training workload -> the member that has not seen it.
    """

    def __init__(
        self,
        reader: Reader,
        transition: TransitionModel | None,
        unaware: Mapping[str, TransitionModel] | None = None,
    ) -> None:
        self.reader = reader
        self.transition = transition
        self.unaware = dict(unaware or {})
        self._book = ActionBook(reader.actions)
        self._initial: dict[str, Float32Array] = {}
        self._warned: set[str] = set()

    @property
    def columns(self) -> int:
        """Numbers of a state."""
        return self.reader.dimension

    def initial(self, workload: Workload) -> Float32Array:
        """z0, shape (d,)."""
        if workload.key not in self._initial:
            self._initial[workload.key] = self.reader.initial(workload)
        return self._initial[workload.key]

    def predicted(
        self,
        candidates: Sequence[Candidate],
        aware: bool = True,
        initial: Float32Array | None = None,
    ) -> Float32Array:
        """zT, of length 1, float32 of shape (n, d).

        Args:
            candidates: Of any workloads.
            aware: Whether transitions may have seen the workload in training.
            initial: Stands for z0, shape (d,): a control.
        """
        points = np.zeros((len(candidates), self.columns), dtype=np.float32)
        for at, ends in self._ends(candidates, aware, initial):
            mean = ends.mean(axis=0)
            # Of length 1, however many members there are and however far they disagree: the trees
            # have learned from single ones.
            points[at] = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-6)
        return rounded(points)

    def each(self, candidates: Sequence[Candidate]) -> Float32Array:
        """zT as each member predicts it, float32 of shape (members, n, d), not rounded."""
        assert self.transition is not None
        members = self.transition.config.members
        points = np.zeros((members, len(candidates), self.columns), dtype=np.float32)
        for at, ends in self._ends(candidates):
            points[:, at] = ends
        return points

    def _ends(
        self,
        candidates: Sequence[Candidate],
        aware: bool = True,
        initial: Float32Array | None = None,
    ) -> Iterator[tuple[IntArray, Float32Array]]:
        """Of each workload, which candidates are its own, and where each member has them end."""
        assert self.transition is not None
        self._book.trim()
        rows, lengths = self._book.paths(candidates)
        used = np.unique(rows[np.arange(rows.shape[1]) < lengths[:, None]])
        table = self._book.some(used)
        rows = np.searchsorted(used, rows) if len(used) else rows
        for workload, at in by_workload(candidates):
            model = self.transition if aware else self.unaware.get(workload.key, self.transition)
            self._warn_of(set(table.kinds) - set(model.kinds))
            start = self.initial(workload) if initial is None else initial
            yield at, model.rollout(start, table, rows[at], lengths[at])

    def route(self, candidate: Candidate) -> Route:
        """What the candidates with this one's structure go through."""
        self._book.trim()
        return self._book.route(candidate)

    def smooth(self, route: Route, numbers: torch.Tensor) -> torch.Tensor:
        """``each`` of candidates on a route whose numbers need not be whole, with gradients.

        Args:
            route: Steps that candidates share.
            numbers: Of those steps that differ, as ``ActionTable`` has them, shape (n, V, 8).
        """
        assert self.transition is not None
        start = self.initial(route.workload)
        return self.transition.smooth_rollout(start, route.steps, route.at, numbers)

    def _warn_of(self, kinds: Iterable[str]) -> None:
        for kind in sorted(kinds):
            self._warn(
                f"no program in training had an action {kind!r}: its numbers are looked at, not "
                "what it does"
            )

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("world: %s", text)

    def dump(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """All that is needed to score, as a JSON object and arrays."""
        meta: dict[str, Any] = {"target": self.reader.target}
        arrays: dict[str, Array] = {}
        for name, part in (("reader", self.reader), ("transition", self.transition)):
            if part is not None:
                meta[name], own = part.dump()
                arrays |= {f"{name}/{key}": value for key, value in own.items()}
        return meta, arrays

    @classmethod
    def restore(
        cls,
        meta: Mapping[str, Any],
        arrays: Mapping[str, Array],
        threads: int | None = None,
        device: str | None = None,
    ) -> World:
        """Reverses ``dump``."""

        def own(name: str) -> dict[str, Array]:
            prefix = f"{name}/"
            return {
                key.removeprefix(prefix): value
                for key, value in arrays.items()
                if key.startswith(prefix)
            }

        given: dict[str, Any] = {"threads": threads, "device": device}
        if "target" not in meta:
            raise RecordError("a stored world is damaged (it has no target): train it again")
        kind: Any = READERS.factory(meta["target"])
        reader: Reader = kind.restore(meta["reader"], own("reader"), **given)
        transition = None
        if "transition" in meta:
            transition = TransitionModel.restore(meta["transition"], own("transition"), **given)
        return cls(reader, transition)


def rounded(states: Float32Array) -> Float32Array:
    """States to steps of 1/4096."""
    grid: Float32Array = (np.round(states * _GRID) / _GRID).astype(np.float32)
    return grid


def by_workload(candidates: Sequence[Candidate]) -> list[tuple[Workload, IntArray]]:
    """Each workload, and which candidates are its own."""
    rows: dict[str, list[int]] = {}
    for row, candidate in enumerate(candidates):
        rows.setdefault(candidate.workload.key, []).append(row)
    return [(candidates[at[0]].workload, np.array(at)) for at in rows.values()]
