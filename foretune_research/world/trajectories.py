"""Trajectories: the programs that a candidate's actions lead through, one after the other.

Idea. The paper trains on (s0, a1, s1, ..., aT, sT). A trace is replayed once: TVM asks before each
instruction whether its decision stands, and the schedule's module at that moment is the state that
the instructions before have led to. Later changes copy what somebody else still holds, so that the
states share nearly all of their statements.

Symbols: s0 is the workload's module, a1..aT are the steps (``foretune.world.steps_of``); s_t is
known by its structural hash, which for s0 is the workload's key.

Paper: the compiler world model (arXiv 2606.09312), section 3.4, which joins the records of a log to
trajectories. Deviation: actions that leave the program as it is are no steps. Should another one
ever do nothing, its step has one state on both sides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from foretune.errors import IllegalCandidateError, unknown_name
from foretune.space import Action, Candidate
from foretune.world.steps import stays, steps_of
from foretune_research.world.states import StateStore

if TYPE_CHECKING:
    from foretune._tvm import IRModule, Schedule

Terminal = Literal["schedule", "postproc"]
TERMINALS = ("schedule", "postproc")
"""What the last state is: the program as the actions leave it, or as post-processors do."""

_REPORT_EVERY = 500


@dataclass(frozen=True)
class Trajectory:
    """The states of one candidate.

    Attributes:
        candidate_key: Key of the candidate.
        workload: Key of its workload.
        states: Keys of the states in a ``StateStore``, T + 1 of them.
        actions: What leads from each to the next, T of them: ``steps_of`` the candidate's actions.
    """

    candidate_key: str
    workload: str
    states: tuple[str, ...]
    actions: tuple[Action, ...]

    @property
    def idle(self) -> tuple[int, ...]:
        """Positions of the steps that left the program as it was; hardly any trajectory has one."""
        pairs = zip(self.states, self.states[1:], strict=False)
        return tuple(at for at, (before, after) in enumerate(pairs) if before == after)


def trajectory_of(
    candidate: Candidate, store: StateStore, terminal: Terminal = "schedule"
) -> Trajectory:
    """The trajectory of a candidate; replayed only if the store does not know it.

    Args:
        candidate: Whose.
        store: Takes the states.
        terminal: ``"schedule"``: the last state is the program before post-processors.
            ``"postproc"``: the last step leads to what ``candidate.apply()`` gives.

    Raises:
        IllegalCandidateError: TVM refuses it.
        BadInputError: An unknown terminal.
        RecordError: The store cannot be written.
    """
    if terminal not in TERMINALS:
        raise unknown_name("terminal", terminal, TERMINALS)
    actions = candidate.actions()
    states = store.path(candidate.key, terminal)
    if states is None:
        states = _states(candidate, actions, store, terminal)
        store.add_path(candidate.key, terminal, states)
    return Trajectory(candidate.key, candidate.workload.key, states, steps_of(actions))


def _states(
    candidate: Candidate, actions: Sequence[Action], store: StateStore, terminal: Terminal
) -> tuple[str, ...]:
    first, *following = _replayed(candidate)
    kept = [module for action, module in zip(actions, following, strict=True) if not stays(action)]
    if terminal == "postproc" and kept:
        kept[-1] = candidate.apply()
    return tuple(store.add(module) for module in (first, *kept))


def _replayed(candidate: Candidate) -> list[IRModule]:
    """The modules before the first and after every instruction that is an action."""
    modules: list[IRModule] = []

    def look(instruction: Any, schedule: Schedule) -> None:
        if not instruction.kind.is_pure:
            modules.append(schedule.mod)

    schedule = candidate.sketch.template.replay(candidate.decisions, look)
    return [*modules, schedule.mod]


def trajectories_of(
    candidates: Sequence[Candidate],
    store: StateStore,
    terminal: Terminal = "schedule",
    progress: Callable[[str], None] | None = None,
) -> list[Trajectory | None]:
    """The trajectories of many candidates, about 100 a second; continues where it was stopped.

    Args:
        candidates: Of any workloads, in any order.
        store: Takes the states.
        terminal: As in ``trajectory_of``.
        progress: Called with one line of text per some hundred candidates.

    Returns:
        One per candidate, None where TVM refuses it.

    Raises:
        BadInputError: An unknown terminal.
        RecordError: The store cannot be written.
    """
    found: list[Trajectory | None] = [None] * len(candidates)
    # What TVM has to parse first is kept for a few dozen workloads only.
    order = sorted(
        range(len(candidates)),
        key=lambda at: (candidates[at].workload.key, candidates[at].sketch.key),
    )
    for done, at in enumerate(order, 1):
        with contextlib.suppress(IllegalCandidateError):
            found[at] = trajectory_of(candidates[at], store, terminal)
        if progress is not None and (done % _REPORT_EVERY == 0 or done == len(order)):
            progress(f"{done} of {len(order)} trajectories, {len(store)} states")
    store.commit()
    return found
