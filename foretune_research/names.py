"""A language model that proposes names of transformations, as in the Reasoning Compiler paper.

Idea: an answer is a sequence of names; how each changes its decision is drawn at random. What
``foretune`` asks for are decisions with their values, which say more.

=====================  ===========================================================================
``TileSize``           another tiling of a loop
``Parallel``           how many iterations of outer loops are shared out among threads
``Vectorize``          how long innermost loops that become vectors may be
``Unroll``             how far loops are unrolled
``CooperativeFetch``   how wide threads of a GPU load together
``ComputeLocation``    where a block is computed
=====================  ===========================================================================

Source: Reasoning Compiler (Tang et al., NeurIPS 2025), section 3.1 and appendix A.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from foretune._options import Count
from foretune.search.proposers._answers import Reading, decided, first_object, quoted, read, said
from foretune.search.proposers._prompts import messages
from foretune.search.proposers.llm import LlmConfig, LlmProposer
from foretune.space import Choice, ComputeLocation, PerfectTile, Sketch

if TYPE_CHECKING:
    from foretune.search.proposers import Situation
    from foretune.space import Candidate, Space

_FORM = """\
Answer with one JSON object and nothing else:
{{"reasoning": "...", "proposals": [["TileSize", "Unroll"], ...]}}
with 1 to {count} different proposals. Each is a sequence of at most {length} of the transformations
listed, which are applied in turn; how each changes its decision is drawn at random. One may occur
several times."""
# Bounded: what an answer repeats without end is looked at once.
_NAMES = re.compile(r"\W{0,8}(?:mutators|transformations)\W{0,8}:(.+)", re.IGNORECASE)
_CHOICES = {
    "parallel": "Parallel",
    "vectorize": "Vectorize",
    "cooperative_fetch": "CooperativeFetch",
}


def transformation_of(variable: Any) -> str:
    """The short name of what changing a variable does."""
    if isinstance(variable, PerfectTile):
        return "TileSize"
    if isinstance(variable, ComputeLocation):
        return "ComputeLocation"
    assert isinstance(variable, Choice)
    if variable.name.startswith("unroll"):
        return "Unroll"
    return _CHOICES.get(variable.name, "OtherChoice")


def transformations(sketch: Sketch) -> dict[str, list[int]]:
    """Short name -> indices of the variables it may change, those that have two values at least."""
    found: dict[str, list[int]] = {}
    for index, variable in enumerate(sketch.variables):
        if variable.size > 1:
            found.setdefault(transformation_of(variable), []).append(index)
    return found


def canonical(name: str) -> str:
    """What a name is compared by: ``meta_schedule.MutateTileSize(…)`` → ``tilesize``."""
    last = re.sub(r"\(.*", "", name[:200]).rpartition(".")[2]
    letters = re.sub(r"[^a-z]", "", last.lower())
    return letters.removeprefix("mutate")


@dataclass(frozen=True)
class NamesConfig(LlmConfig):
    """``LlmConfig`` for answers that are names.

    Attributes:
        longest: Names in a proposal at most.
    """

    longest: Count = 8


class NamesProposer(LlmProposer):
    """Asks a language model for names of transformations, which are applied at random.

    Args:
        space, rng, llm: As of ``LlmProposer``.
        options: Fields of ``NamesConfig``.
    """

    config: NamesConfig
    config_type: ClassVar[type[LlmConfig]] = NamesConfig

    def _prompt(
        self, situation: Situation[Candidate], corrections: Sequence[str]
    ) -> list[dict[str, str]]:
        return asked(
            situation,
            history=self.config.history,
            style=self.config.style,
            alternatives=self.config.proposals,
            corrections=corrections,
            longest=self.config.longest,
        )

    def _read(self, text: str, program: Candidate) -> Reading:
        return reading(
            text,
            program,
            self._space,
            self.rng,
            alternatives=self.config.proposals,
            longest=self.config.longest,
        )


def asked(situation: Situation[Candidate], *, longest: int, **options: Any) -> list[dict[str, str]]:
    """The conversation that asks for names.

    Args:
        situation: The program and what is known around it.
        longest: Names in a proposal at most.
        options: As ``foretune.search.proposers._prompts.messages`` takes them.
    """
    names = list(transformations(situation.program.candidate.sketch))
    return messages(
        situation, form=_FORM.replace("{length}", str(longest)), choices=names, **options
    )


def reading(
    text: str,
    program: Candidate,
    space: Space,
    rng: np.random.Generator,
    *,
    alternatives: int,
    longest: int,
) -> Reading:
    """The usable edits of an answer of names.

    Args:
        text: What the model said.
        program: What was to be edited.
        space: Its space.
        rng: Draws how a name changes its decision.
        alternatives: Proposals read at most.
        longest: Names of one proposal applied at most.
    """

    def edited(
        proposal: Any, program: Candidate, space: Space, rng: np.random.Generator, found: Reading
    ) -> Candidate | None:
        return _applied(proposal, program, space, rng, longest, found)

    return read(
        text, program, space, rng, alternatives=alternatives, proposals=_listed, edited=edited
    )


def _listed(text: str, found: Reading) -> list[Any]:
    """The sequences of names in an answer, also those without a JSON object."""
    plain = said(text)
    if first_object(plain) is None:
        lines = list(filter(None, map(_NAMES.match, plain.splitlines())))
        if lines:
            return [[name.strip() for name in line[1].split(",")] for line in lines]
    proposals = decided(text, found)
    # A single sequence of names, without the list around it, means the same.
    single = proposals and all(isinstance(item, str) for item in proposals)
    return [proposals] if single else proposals


def _applied(
    proposal: Any,
    program: Candidate,
    space: Space,
    rng: np.random.Generator,
    longest: int,
    found: Reading,
) -> Candidate | None:
    """Applies the names that are known in turn; None if none is."""
    known = {canonical(name): indices for name, indices in transformations(program.sketch).items()}
    names = proposal if isinstance(proposal, list) else [proposal]
    if not names:
        found.drop("a proposal is empty: give at least one transformation")
    if len(names) > longest:
        found.drop(f"a proposal had {len(names)} transformations: give {longest} at most")
    edit, applied = program, 0
    for name in names[:longest]:
        indices = known.get(canonical(name.strip())) if isinstance(name, str) else None
        if indices is None:
            there = ", ".join(transformations(program.sketch))
            found.drop(f"{quoted(name)} is no transformation of this program: use {there}")
            continue
        edit, applied = space.mutate(edit, rng, indices), applied + 1
    return edit if applied else None
