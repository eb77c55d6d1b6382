"""Scheduling actions as tokens: the input of sequence models, and the numbers that names become.

- ``_names``: the kinds of actions, and a number for everything that an action names.
- ``_tokens``: rows of tokens, filled in for all candidates of a sketch at once.
"""

from foretune.features.tokens._names import KINDS, kind_index, scaled
from foretune.features.tokens._tokens import (
    TOKEN_VERSION,
    action_tokens,
    actions_of,
    argument_number,
    token_vocabulary,
)

__all__ = [
    "KINDS",
    "TOKEN_VERSION",
    "action_tokens",
    "actions_of",
    "argument_number",
    "kind_index",
    "scaled",
    "token_vocabulary",
]
