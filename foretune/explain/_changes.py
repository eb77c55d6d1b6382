"""Changes of one decision, by how much faster they are predicted to be.

What to try is not guessed from the bound: every candidate that differs from this one in one
decision is described and judged in the same way, by its behaviour, and those that are predicted to
be faster are what to try. The bound says why. A schedule without decisions (the default, or the
untuned program) has no such neighbours: there, a sample of the whole space is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune._arrays import IndexArray
from foretune.describe import Behaviours, behaviours, nests_of
from foretune.errors import IllegalCandidateError
from foretune.space import Candidate, Choice, PerfectTile, location_name, structure_of

if TYPE_CHECKING:
    from foretune.hardware import Device
    from foretune.space import Space, Variable

MOST_PER_VARIABLE = 96
"""Other decisions of one variable that are judged; of more, a sample that is spread evenly."""
_LOCATIONS = range(-2, 16)
_DRAWN = 256
"""Candidates of a space that are judged beside those that rules say are good."""
_MOST_STRUCTURES = 48
"""Structures of loops among them: a new one costs 10 to 20 ms, however many candidates have it."""


def neighbours(candidate: Candidate) -> Iterator[tuple[int, Candidate]]:
    """The candidates that differ in one decision, each with the number of its variable."""
    sketch = candidate.sketch
    for number, variable in enumerate(sketch.variables):
        own = candidate.decisions[number]
        for other in _others(variable, own):
            decisions = list(candidate.decisions)
            decisions[number] = other
            try:
                yield number, sketch.candidate(decisions)
            except IllegalCandidateError:
                continue


def _others(variable: Variable, own: Any) -> Iterator[Any]:
    """Other decisions; not all of them fit the rest of the candidate."""
    if isinstance(variable, PerfectTile):
        table = variable.table()
        tiles = variable.neighbours(own) if table is None else [t for t in table if t != own]
        step = -(-len(tiles) // MOST_PER_VARIABLE) or 1
        near = variable.neighbours(own)
        yield from dict.fromkeys([*near, *tiles[::step]])
    elif isinstance(variable, Choice):
        yield from (index for index in range(len(variable.values)) if index != own)
    else:
        yield from (place for place in _LOCATIONS if place != own)


def judged(candidates: list[Candidate], device: Device) -> Iterator[tuple[IndexArray, Behaviours]]:
    """Behaviours of candidates, with their numbers; illegal ones are in none."""
    for rows, nests in nests_of(candidates):
        yield rows, behaviours(nests, device)


def best_changes(
    candidate: Candidate, device: Device, allowed: Callable[[int], bool] = lambda _number: True
) -> list[tuple[int, Candidate, float]]:
    """Of each decision, the change that is predicted to be fastest, the most promising first.

    Args:
        candidate: What is to be faster.
        device: For which.
        allowed: Whether the variable of a number may be changed.

    Returns:
        Number of the variable, the changed candidate, and how many times as fast it is predicted
        to be; those that are not predicted to be faster are left out.
    """
    changes = [(n, c) for n, c in neighbours(candidate) if allowed(n)]
    candidates = [candidate, *(c for _, c in changes)]
    seconds = np.full(len(candidates), np.nan)
    for rows, behaviour in judged(candidates, device):
        seconds[rows] = behaviour.seconds
    gains = seconds[0] / seconds[1:]
    best: dict[int, tuple[int, Candidate, float]] = {}
    for (number, changed), gain in zip(changes, gains.tolist(), strict=True):
        if gain > max(1.0, best[number][2] if number in best else 0.0):
            best[number] = (number, changed, gain)
    return sorted(best.values(), key=lambda change: -change[2])


def best_of_space(space: Space, device: Device) -> tuple[Candidate, float, int] | None:
    """The candidate of a seeded sample that is predicted to be fastest.

    Args:
        space: What is sampled; what rules propose is judged first.
        device: For which.

    Returns:
        The candidate, its predicted seconds, and how many were judged; None if all are illegal.
    """
    candidates = _sample(space)
    seconds = np.full(len(candidates), np.inf)
    legal = 0
    for rows, behaviour in judged(candidates, device):
        seconds[rows] = behaviour.seconds
        legal += len(rows)
    if not legal:
        return None
    best = int(seconds.argmin())
    return candidates[best], float(seconds[best]), legal


def _sample(space: Space) -> list[Candidate]:
    """Starts and drawn candidates, without those that have too many structures of loops."""
    drawn = dict.fromkeys([*space.starts, *space.sample(np.random.default_rng(0), _DRAWN)])
    structures: set[Any] = set()
    found = []
    for candidate in drawn:
        structure = (candidate.sketch.key, structure_of(candidate.sketch, candidate.decisions))
        if structure in structures or len(structures) < _MOST_STRUCTURES:
            structures.add(structure)
            found.append(candidate)
    return found


def told(candidate: Candidate, number: int, changed: Candidate) -> str:
    """A change in words: ``conv i: 4 x 8 -> 8 x 4``."""
    variable = candidate.sketch.variables[number]
    before, after = (_value(variable, each.decisions[number]) for each in (candidate, changed))
    return f"{variable.name}: {before} -> {after}"


def _value(variable: Variable, decision: Any) -> str:
    if isinstance(variable, PerfectTile):
        return " x ".join(map(str, decision))
    if isinstance(variable, Choice):
        return str(variable.values[decision])
    return location_name(decision)
