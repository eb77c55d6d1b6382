"""Few measurements on the new device: momentum adaptation, the strong rival of knowing nothing.

A network that was trained on the other devices is adapted to the new one while it measures, as
Pruner does it (Qiao et al., 2024): before each round, the network starts from its momentum copy,
learns from all that was measured, and the copy then moves a hundredth of the way towards it. Here a
round measures some programs of every workload; those that are measured first are random, later ones
are the most promising, as in a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from foretune.cost import _training
from foretune.cost._examples import Labelled
from foretune.cost._networks import lambda_rank
from foretune.cost.tlp import TlpRanker
from foretune.dataset import Group

Floats = npt.NDArray[np.float64]

_MOMENTUM = 0.99
_STEPS = 30
"""Of gradient descent in a round."""
_LEARNING_RATE = 1e-4


def adapted_picks(
    ranker: TlpRanker, groups: Sequence[Group], rounds: int, each: int, seed: int
) -> dict[str, list[int]]:
    """Programs in the order in which they are measured on the new device.

    Args:
        ranker: Trained on the other devices; left as it was.
        groups: Of the new device, with the programs that are judged.
        rounds: Of measurements.
        each: Programs of each group in a round.
        seed: Draws the first round.

    Returns:
        By the key of the group, ``rounds * each`` numbers of programs, then the one that is
        predicted to be best of the rest.
    """
    rng = np.random.default_rng(seed)
    network = ranker._networks[0]
    slow = {name: w.detach().clone() for name, w in network.state_dict().items()}
    picked: dict[str, list[int]] = {group.key: [] for group in groups}
    for number in range(rounds):
        scores = _scores(ranker, groups)
        for group in groups:
            order = rng.permutation(len(group)) if number == 0 else np.argsort(-scores[group.key])
            new = [i for i in order.tolist() if i not in picked[group.key]]
            picked[group.key] += new[:each]
        network.load_state_dict(slow)
        _learn(ranker, groups, picked)
        slow = {
            name: _MOMENTUM * slow[name] + (1.0 - _MOMENTUM) * w
            if w.is_floating_point()
            else w.clone()
            for name, w in network.state_dict().items()
        }
    scores = _scores(ranker, groups)
    for group in groups:
        order = np.argsort(-scores[group.key]).tolist()
        picked[group.key].append(next(i for i in order if i not in picked[group.key]))
    return picked


def _scores(ranker: TlpRanker, groups: Sequence[Group]) -> dict[str, Floats]:
    return {g.key: ranker.score(g.programs, g.machine, g.hardware) for g in groups}


def _learn(ranker: TlpRanker, groups: Sequence[Group], picked: Mapping[str, Sequence[int]]) -> None:
    """Some steps of gradient descent on what was measured."""
    assert ranker._trained is not None
    measured = [group.subset(sorted(picked[group.key])) for group in groups]
    data: Labelled | None = ranker._collected(measured, ranker._trained.heads)
    if data is None:
        return
    examples = data.examples.scaled(ranker._trained.rows, ranker._trained.context)
    loaded = _training._Loaded(examples, torch.device("cpu"))
    network = ranker._networks[0].train()
    optimiser = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    lists = [np.flatnonzero(data.group == number) for number in np.unique(data.group)]
    longest = max(map(len, lists))
    at = np.full((len(lists), longest), -1)
    for row, members in enumerate(lists):
        at[row, : len(members)] = members
    places = torch.from_numpy(at)
    there, places = places >= 0, places.clamp(min=0)
    labels = torch.from_numpy(data.labels)
    head = torch.from_numpy(data.head)
    every = np.arange(len(data.labels))
    for _ in range(_STEPS):
        optimiser.zero_grad()
        scores = _training._of_heads(network(*loaded.inputs(every)), head)
        lambda_rank(scores[places], labels[places], there).mean().backward()
        optimiser.step()
    network.eval()
