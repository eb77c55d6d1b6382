"""Edits drawn at random: the control in every comparison of proposers."""

from __future__ import annotations

from collections.abc import Sequence

from foretune.search.proposers._base import Proposer, Situation
from foretune.space.protocol import C

_DRAWS = 4
"""Draws per edit that is asked for: near a corner of the space many of them are alike."""


class RandomProposer(Proposer[C]):
    """Changes one decision of a program, drawn as ``Space.mutate`` does."""

    def propose(self, situations: Sequence[Situation[C]]) -> list[list[C]]:
        """Distinct edits in the order drawn."""
        return [self.draw(each.program.candidate, each.wanted) for each in situations]

    def draw(self, program: C, wanted: int) -> list[C]:
        """Up to ``wanted`` distinct edits of one program."""
        # All are of one sketch: their decisions tell them apart, without the price of a key.
        known, edits = {program.decisions}, []
        for _ in range(_DRAWS * wanted):
            edit = self.space.mutate(program, self.rng)
            if edit.decisions not in known:
                known.add(edit.decisions)
                edits.append(edit)
                if len(edits) == wanted:
                    break
        return edits
