"""The compiler world model: candidates scored in latent space, without making their programs.

``trajectories`` and ``states`` turn candidates into sequences of programs and actions, ``text``
writes both as short canonical texts.
"""

from foretune.world.states import StateStore
from foretune.world.text import TEXT_VERSION, action_text, program_text, variant
from foretune.world.trajectories import Trajectory, steps_of, trajectories_of, trajectory_of

__all__ = [
    "TEXT_VERSION",
    "StateStore",
    "Trajectory",
    "action_text",
    "program_text",
    "steps_of",
    "trajectories_of",
    "trajectory_of",
    "variant",
]
