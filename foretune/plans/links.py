"""Which calls of different passes are the same operator of the network.

The idea: a convolution is met by four passes that have a choice, each time as another call: with
its axes in another order, as a product of matrices, as a tensor program, with its weights in
panels or transformed. What stays is its weights: passes permute their numbers, and add zeros. So
an operator is known by the sum of the bits of its weights, which neither changes. What a pass
computes from weights (Winograd's filtering) is remembered with them (``Decisions.made``). An
operator without constant weights is known by what it is and by the extents of its result, in any
order. Operators that are alike in that, as layers with the same weights are, are told apart by
their order in the network, which no pass changes.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretune.graph.passes import Decisions, deciding, kind_of, operands_of
from foretune.graph.passes.rewrites import extents

Path = tuple[tuple[str, str], ...]
"""What was decided for one operator so far: pass and choice, in the order of the passes."""

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Offer(NamedTuple):
    """A choice that a pass has for an operator.

    Attributes:
        step: Name of the pass.
        given: What was decided for the operator before.
        choices: What there is.
        default: What the pass would choose.
    """

    step: str
    given: Path
    choices: tuple[str, ...]
    default: str


class Constants:
    """What passes computed from weights, kept from one plan to the next."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}
        self._origins: dict[str, str] = {}
        self._links: dict[Any, str] = {}

    def link(self, constant: Any) -> str:
        """The link of the weights that a constant is, or was made from."""
        if constant in self._links:
            return self._links[constant]
        bits = _bits(constant)
        return self._origins.get(bits, bits)

    def made(self, weight: Any, how: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` computes from weights, once."""
        values = np.ascontiguousarray(weight.value.numpy())
        contents = values.shape, str(values.dtype), _checksum(values), _bits(weight)
        if (contents, how) not in self._made:
            made = self._made[contents, how] = make()
            origin = self._origins.setdefault(_bits(made), self.link(weight))
            self._links[made] = origin
        return self._made[contents, how]


class Walk:
    """One way of a network through the passes: what is decided for which operator.

    Args:
        operators: Link to the numbers of the operators that have it, in the order of the network.
        wanted: Number of an operator to pass and choice; a pass decides for the others.
        constants: What was computed from weights in earlier walks.
        offered: Whether a pass is known to have a choice for an operator with such a path; None
            while that is not known.

    Attributes:
        paths: Number of an operator to what was decided.
        offers: The choices that there were: number of the operator, and offer.
        strangers: Calls with a choice that are no operator of the network.
    """

    def __init__(
        self,
        operators: Mapping[str, Sequence[int]],
        wanted: Mapping[int, Mapping[str, str]],
        constants: Constants,
        offered: Callable[[int, str, Path], bool] | None = None,
    ) -> None:
        self._operators = operators
        self._wanted = wanted
        self._constants = constants
        self._offered = offered
        self._met: Counter[tuple[str, str]] = Counter()
        self.paths: dict[int, Path] = {}
        self.offers: list[tuple[int, Offer]] = []
        self.strangers = 0

    def decisions(self, step: str) -> Decisions:
        """What decides in the pass of this name."""
        return _Linked(self, step, self._constants)

    def choose(self, step: str, reader: Any, choices: tuple[str, ...], default: str) -> str:
        """The choice for the operator that a call is."""
        operator = self._operator(step, link_of(reader, self._constants))
        if operator is None:
            self.strangers += 1
            return default
        given = self.paths.get(operator, ())
        self.offers.append((operator, Offer(step, given, choices, default)))
        choice = self._wanted.get(operator, {}).get(step, default)
        choice = choice if choice in choices else default
        self.paths[operator] = (*given, (step, choice))
        return choice

    def skip(self, step: str, reader: Any) -> None:
        """Notes that the operator that a call is has no choice."""
        self._met[step, link_of(reader, self._constants)] += 1

    def _operator(self, step: str, link: str) -> int | None:
        """The next operator of a link; those that have no choice there have no turn.

        The last pass tells of all, because there a choice depends on neighbours, too.
        """
        alike = self._operators.get(link, ())
        while self._met[step, link] < len(alike):
            operator = alike[self._met[step, link]]
            self._met[step, link] += 1
            if (
                len(alike) == 1
                or self._offered is None
                or step == deciding()[-1]
                or self._offered(operator, step, self.paths.get(operator, ()))
            ):
                return operator
        return None


class _Linked(Decisions):
    """The decisions of one pass on a walk."""

    def __init__(self, walk: Walk, step: str, constants: Constants) -> None:
        super().__init__()
        self._walk = walk
        self._step = step
        self._constants = constants

    def otherwise(self, reader: Any, choices: tuple[str, ...], default: str) -> str:
        """What is wanted for the operator."""
        return self._walk.choose(self._step, reader, choices, default)

    def skip(self, reader: Any) -> None:
        """The operator's turn is over."""
        self._walk.skip(self._step, reader)

    def made(self, weight: Any, how: Hashable, make: Callable[[], Any]) -> Any:
        """What was made in an earlier walk, or is made now."""
        return self._constants.made(weight, how, make)


def link_of(call: Any, constants: Constants) -> str:
    """What stays of an operator: the bits of its weights, or what it is and its extents."""
    weights = [o for o in operands_of(call) if hasattr(getattr(o, "value", None), "numpy")]
    if weights:
        return constants.link(max(weights, key=_elements))
    return f"{kind_of(call)} {'x'.join(map(str, sorted(extents(call))))}"


def _checksum(values: Any) -> int:
    return zlib.crc32(values.reshape(-1).view(np.uint8).data)


def _elements(constant: Any) -> int:
    return int(np.prod([int(extent) for extent in constant.value.shape]))


def _bits(constant: Any) -> str:
    """Sum of the words of a tensor and number of those that are not zero: no order changes them."""
    values = np.ascontiguousarray(constant.value.numpy()).reshape(-1)
    words = values.view(_WORDS[values.dtype.itemsize])
    return f"{int(words.sum(dtype=np.uint64)):x}/{np.count_nonzero(words)}"
