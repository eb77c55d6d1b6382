"""A control of transitions: terminal states predicted in one step.

A transition follows the actions of a program one after the other. The network here reads what trees
read of them, all action features at once but those that look at the machine, with or without the
initial state, and says where the program ends. It is asked for more than transitions are: a part of
its loss are the differences between the programs of a workload. It shows what decisions tell of
terminal states at all, what the initial state adds to that, and what ranking gains from states that
are predicted better than transitions do.

Like the members of transitions, each of its three networks leaves out a part of the workloads, and
what trees learn from was predicted by the one that has not seen the workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks._world.learned import Swapped
from foretune._torch import limited_threads, seeded
from foretune.cost.world.learning import Lesson, left_out
from foretune.cost.world.model import World, by_workload
from foretune.dataset import Program
from foretune.features import action_columns, action_features
from foretune.space import Candidate
from foretune_research.world.ranker import MACHINE_COLUMNS

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

MEMBERS = 3
STEPS = 900
_WIDTH = 512
_DROPOUT = 0.1
_WORKLOADS, _PROGRAMS = 16, 16
"""Of a batch: so many workloads, so many programs of each."""
_LEARNING_RATE, _WEIGHT_DECAY = 1.5e-3, 0.05
_WITHIN = 4.0
"""Weight of the differences between programs of a workload."""
_OF_DECISIONS = [
    at for at, column in enumerate(action_columns()) if not column.name.startswith(MACHINE_COLUMNS)
]
"""Columns that are the same whatever machine a candidate is for."""
_CLIP = 5.0
_CONSTANT = 1e-6


class Network(nn.Module):
    """Standardised columns through two layers to a state.

    Args:
        columns: What is read of training programs, shape (n, C).
        dimension: Of states.
    """

    def __init__(self, columns: Floats, dimension: int) -> None:
        super().__init__()
        deviation = columns.std(axis=0)
        self._kept = np.flatnonzero(deviation > _CONSTANT)
        self._shift, self._factor = columns.mean(axis=0)[self._kept], 1 / deviation[self._kept]
        self.layers = nn.Sequential(
            nn.Linear(len(self._kept), _WIDTH), nn.GELU(), nn.Dropout(_DROPOUT),
            nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.Dropout(_DROPOUT),
            nn.Linear(_WIDTH, dimension),
        )  # fmt: skip

    def inputs(self, columns: Floats) -> Tensor:
        """What the layers read of columns, shape (n, C)."""
        scaled = (columns[:, self._kept] - self._shift) * self._factor
        return torch.from_numpy(np.clip(scaled, -_CLIP, _CLIP).astype(np.float32))

    def ends(self, columns: Floats) -> Floats:
        """Terminal states, of length 1, shape (n, d)."""
        with torch.inference_mode():
            found: Floats = functional.normalize(self.layers(self.inputs(columns)), dim=1).numpy()
        return found


def trained(
    columns: Floats, ends: Floats, owner: Integers, seed: int, within_weight: float = _WITHIN
) -> Network:
    """A network that was trained to say where programs end.

    Args:
        columns: Of each program, shape (n, C).
        ends: Its terminal state, shape (n, d).
        owner: Number of its workload, shape (n,).
        seed: Of weights and batches.
        within_weight: Of the differences between programs of a workload, which the loss asks for
            besides.
    """
    rng = np.random.default_rng(seed)
    rows = [np.flatnonzero(owner == number) for number in np.unique(owner)]
    with seeded(seed):
        network = Network(columns, ends.shape[1])
        given, wanted = network.inputs(columns), torch.from_numpy(ends)
        descent = torch.optim.AdamW(network.parameters(), weight_decay=_WEIGHT_DECAY)
        pace = torch.optim.lr_scheduler.OneCycleLR(descent, _LEARNING_RATE, total_steps=STEPS)
        for _ in range(STEPS):
            drawn = rng.choice(len(rows), _WORKLOADS)
            at = np.concatenate([rng.choice(rows[number], _PROGRAMS) for number in drawn])
            off = (network.layers(given[at]) - wanted[at]).unflatten(0, (_WORKLOADS, _PROGRAMS))
            within = off - off.mean(dim=1, keepdim=True)
            loss = (off.square() + within_weight * within.square()).sum(dim=-1).mean()
            descent.zero_grad()
            loss.backward()
            descent.step()
            pace.step()
    return network.eval()


class Direct(Swapped):
    """A world that predicts terminal states in one step.

    Args:
        lesson: What it learns from.
        initial: Whether it reads the initial state.
        seed: Of everything.
        threads: That PyTorch may use.
    """

    def __init__(self, lesson: Lesson, initial: bool, seed: int, threads: int) -> None:
        super().__init__(World(lesson.reader, None))
        self._reads_initial, self._threads = initial, threads
        paths = lesson.paths
        columns = self.columns_of(lesson.seen.candidates, paths.states[paths.initial])
        self._left_out = left_out(lesson.workloads, MEMBERS, seed)
        out = np.array([self._left_out[key] for key in lesson.workloads])
        ends = paths.states[paths.terminal]
        with limited_threads(threads):
            self._networks = [
                trained(
                    columns[out != number],
                    ends[out != number],
                    paths.workload[out != number],
                    seed + number,
                )
                for number in range(MEMBERS)
            ]

    def columns_of(self, candidates: Sequence[Candidate], initial: Floats) -> Floats:
        """What networks read, shape (n, C): action features that no machine is in, and z0 if read.

        Args:
            candidates: n of them.
            initial: z0 of each, shape (n, d).
        """
        described = action_features([Program(candidate=candidate) for candidate in candidates])
        described = described[:, _OF_DECISIONS]
        if not self._reads_initial:
            return np.asarray(described, dtype=np.float32)
        return np.concatenate([described, initial], axis=1).astype(np.float32)

    def each_end(self, columns: Floats, workload: str | None = None) -> Floats:
        """Terminal states as networks predict them, shape (networks, n, d).

        Args:
            columns: As ``columns_of`` gives them.
            workload: Key of a training workload that the network must not have seen; None: all
                networks are asked.
        """
        number = None if workload is None else self._left_out.get(workload)
        asked = self._networks if number is None else [self._networks[number]]
        with limited_threads(self._threads):
            return np.stack([network.ends(columns) for network in asked])

    def _ends(
        self, candidates: Sequence[Candidate], aware: bool = True, initial: Floats | None = None
    ) -> Iterator[tuple[Integers, Floats]]:
        for workload, at in by_workload(candidates):
            start = self.initial(workload) if initial is None else initial
            own = [candidates[row] for row in at.tolist()]
            columns = self.columns_of(own, np.tile(start, (len(own), 1)))
            yield at, self.each_end(columns, None if aware else workload.key)
