"""The compiler world model: candidates scored in latent space, without making their programs.

``steps`` says which actions of a candidate count, ``text`` what models read of their words;
``feature_states`` make states of the features of programs, ``transition`` moves them.

Of transitions ``_transition_config`` says how they are trained, ``_action_inputs`` and ``_paths``
are the inputs, ``_dynamics`` the networks, ``_losses`` and ``_training`` the training; ``_part``
and ``_weights`` write them to files.
"""

from foretune.world.steps import steps_of
from foretune.world.text import TEXT_VERSION, action_text

__all__ = ["TEXT_VERSION", "action_text", "steps_of"]
