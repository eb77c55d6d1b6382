"""The compiler world model as it was published, and its ablations.

``text`` writes programs as short canonical texts; ``trajectories`` and ``states`` turn candidates
into sequences of programs; ``encoder`` makes vectors of these, ``contrastive`` trains it;
``reader`` joins them for ``foretune.cost.world``; ``ranker`` has the switches.

Besides: ``_program`` and ``_tokenizer`` write and read texts, ``_backbones`` are networks,
``_tuples`` the training of encoders; ``programs`` replays candidates, ``following`` changes
transitions, ``config`` what can be chosen.
"""

from foretune_research.world.states import StateStore
from foretune_research.world.text import program_text, variant
from foretune_research.world.trajectories import Trajectory, trajectories_of, trajectory_of

__all__ = [
    "StateStore",
    "Trajectory",
    "program_text",
    "trajectories_of",
    "trajectory_of",
    "variant",
]
