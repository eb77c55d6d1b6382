"""What a pass chose for each operator, as a plan that can be read, changed and given back.

An operator is called by what it is and the shapes of its operands: ``conv2d 1x56x56x64,
3x3x64x64``; the second of equal shapes has `` (2)`` behind its name. So a plan does not mean other
operators where other passes chose otherwise. Once an operator is a tensor program, its name is the
program's, and its operands are those of the program.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from foretune.errors import BadInputError
from foretune.graph.passes.rewrites import extents

_PROGRAM = "call_tir"
"""The operator that calls a tensor program."""


class Decisions:
    """The choices of one pass over one network.

    Args:
        given: Operator to choice, for those that are not left to the pass.

    Attributes:
        taken: Operator to choice, for all that had one, in the order of the network.
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._given = dict(given or {})
        self._choices: dict[str, tuple[str, ...]] = {}
        self._seen: Counter[str] = Counter()
        self.taken: dict[str, str] = {}

    def take(
        self, call: Any, choices: Sequence[str], default: str, reader: Any | None = None
    ) -> str:
        """The choice for an operator: what the plan says, or else ``default``.

        Args:
            call: Of the operator; its turn comes once.
            choices: What there is.
            default: One of them.
            reader: The call that reads the operator's weights, where it is another one: Winograd's
                product ahead of its last step.
        """
        operator = self._named(call)
        # What is wrong is said by ``require_kept``: a pass that raises is merely left out.
        self._choices[operator] = tuple(choices)
        choice = self._given.get(
            operator, self.otherwise(call if reader is None else reader, tuple(choices), default)
        )
        self.taken[operator] = choice if choice in choices else default
        return self.taken[operator]

    def skip(self, reader: Any) -> None:
        """Notes that an operator has no choice in a pass that tells of all there are.

        Args:
            reader: As for ``take``, or the operator's call.
        """
        del reader

    def made(self, weight: Any, how: Hashable, make: Callable[[], Any]) -> Any:
        """A constant that a pass computes from constant weights.

        Args:
            weight: The constant.
            how: What is computed, as something that can be compared.
            make: Computes it.
        """
        del weight, how
        return make()

    def otherwise(self, reader: Any, choices: tuple[str, ...], default: str) -> str:
        """The choice for an operator of which the plan says nothing."""
        del reader, choices
        return default

    def _named(self, call: Any) -> str:
        what, operands = kind_of(call), operands_of(call)
        told = ", ".join("x".join(map(str, extents(operand))) for operand in operands)
        name = f"{what} {told}"
        self._seen[name] += 1
        return name if self._seen[name] == 1 else f"{name} ({self._seen[name]})"

    def require_kept(self) -> None:
        """Refuses a plan for another network, once the pass had its turn.

        Raises:
            BadInputError: The plan names an operator that had no choice, or no choice of it.
        """
        for operator, choice in self._given.items():
            if operator not in self._choices:
                known = ", ".join(self._choices) or "none"
                raise BadInputError(
                    f"a plan is for operators that have a choice, but got {operator!r}: those of "
                    f"this network are {known}"
                )
            if choice not in self._choices[operator]:
                raise BadInputError(
                    f"the plan for {operator!r} must be one of "
                    f"{', '.join(self._choices[operator])}, but got {choice!r}: change it, or "
                    "leave the operator out"
                )


def kind_of(call: Any) -> str:
    """What a call is: the name of its operator, or that of its program without a number."""
    name = str(call.op.name).rpartition(".")[2]
    if name != _PROGRAM:
        return name
    # The dimension in conv2d belongs to the operator, only what follows it counts.
    return re.sub(r"^(.*?\dd|.*?\D)\d+$", r"\1", str(call.args[0].name_hint))


def operands_of(call: Any) -> list[Any]:
    """The tensors that a call reads."""
    if not str(call.op.name).endswith(f".{_PROGRAM}"):
        return list(call.args)
    return list(getattr(call.args[1], "fields", [call.args[1]]))
