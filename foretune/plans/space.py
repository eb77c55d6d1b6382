"""All plans of a network: a search space like that of one program's schedules.

The idea: an operator (a convolution, a product) has choices of several passes: its layout, its
algorithm, whether its weights are packed, whether what follows joins its kernel. A pass may have no
choice where an earlier one chose otherwise: what Winograd's filtering computes has no weights to be
packed. So the choices of an operator are a small tree, and a *path* is a way from its root to a
leaf. A plan is one path for each operator.

Decisions are indices, one for each pass and operator. Those that are not on the operator's path
mean nothing, and are the default's: so equal plans have equal decisions, and equal keys.

``PlanSpace`` keeps ``foretune.space.SearchSpace``: every strategy that needs no more searches it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretune.errors import BadInputError, IllegalCandidateError
from foretune.graph.passes import deciding
from foretune.hardware import Hardware
from foretune.plans.links import Offer, Path
from foretune.plans.network import PlanNetwork
from foretune.workload import Workload

SCHEMA = "foretune.plans/1"
_MOST_WALKS = 16
"""Walks through the passes that look for choices, at most; 5 see all that there are today."""
_MAX_ROUNDS = 8
_AS_TVM = {
    "layouts": "as written",
    "algorithms": "direct",
    "packed-weights": "plain",
    "fusion": "fused",
}
_UNIFORM = "algorithms"
"""The pass whose choices, the same for every operator, are among the starts."""


@dataclass(frozen=True)
class PlanVariable:
    """What one pass chooses for one operator.

    Attributes:
        operator: Number of the operator in ``PlanSketch.operators``.
        step: Name of the pass.
        choices: What there is, whatever was chosen before.
        default: Index of what stands where the decision means nothing, and of what the pass
            chooses.
    """

    operator: int
    step: str
    choices: tuple[str, ...]
    default: int


@dataclass(frozen=True)
class PlanOperator:
    """An operator with its choices.

    Attributes:
        node: Its place among the calls of the network.
        name: What it is called.
        number: Its place in ``PlanNetwork.operators``.
        offers: The choices that there are: one for each pass and path so far.
    """

    node: int
    name: str
    number: int
    offers: tuple[Offer, ...]

    @functools.cached_property
    def table(self) -> dict[tuple[str, Path], Offer]:
        """The same, by pass and path."""
        return {(offer.step, offer.given): offer for offer in self.offers}

    def path(self, wanted: Mapping[str, str]) -> Path:
        """The path of an operator for which this is wanted; passes decide about the rest."""
        path: Path = ()
        for step in deciding():
            offer = self.table.get((step, path))
            if offer is not None:
                choice = wanted.get(step, offer.default)
                path += ((step, choice if choice in offer.choices else offer.default),)
        return path

    @functools.cached_property
    def paths(self) -> tuple[Path, ...]:
        """All paths, in the order of the choices."""
        paths: list[Path] = [()]
        for step in deciding():
            grown: list[Path] = []
            for path in paths:
                offer = self.table.get((step, path))
                grown += [(*path, (step, c)) for c in offer.choices] if offer else [path]
            paths = grown
        return tuple(paths)


class PlanSketch:
    """The variables of a network's plans. Two are equal when their keys are.

    Args:
        name: Of the network.
        network: Says which network it is; equal for equal ones.
        hardware: What it is for.
        operators: Those that have choices, in the order of the network.

    Attributes:
        variables: Operator by operator, the passes in order.
    """

    def __init__(
        self, name: str, network: str, hardware: Hardware, operators: Sequence[PlanOperator]
    ) -> None:
        self.network = network
        self.hardware = hardware
        self.operators = tuple(operators)
        self.variables: tuple[PlanVariable, ...] = tuple(_variables(self.operators))
        self.workload = Workload(name, network, "", flops=0.0)

    @functools.cached_property
    def key(self) -> str:
        """16 hex digits: hash of the network, the target and the choices."""
        choices = [[o.node, [list(offer) for offer in o.offers]] for o in self.operators]
        return _digest([self.network, json.loads(self.hardware.target), choices])

    @property
    def size(self) -> int:
        """Number of plans."""
        return math.prod(len(operator.paths) for operator in self.operators)

    @functools.cached_property
    def places(self) -> tuple[dict[str, int], ...]:
        """For each operator the index of each pass's variable."""
        places: tuple[dict[str, int], ...] = tuple({} for _ in self.operators)
        for at, variable in enumerate(self.variables):
            places[variable.operator][variable.step] = at
        return places

    def decisions_of(self, paths: Sequence[Path]) -> tuple[int, ...]:
        """The decisions of a plan with one path for each operator."""
        decisions = [variable.default for variable in self.variables]
        for places, path in zip(self.places, paths, strict=True):
            for step, choice in path:
                decisions[places[step]] = self.variables[places[step]].choices.index(choice)
        return tuple(decisions)

    def paths_of(self, decisions: Sequence[int]) -> tuple[Path, ...]:
        """The path of each operator; what means nothing is left out."""
        return tuple(
            operator.path(
                {step: self.variables[at].choices[decisions[at]] for step, at in places.items()}
            )
            for operator, places in zip(self.operators, self.places, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanSketch) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class PlanCandidate:
    """A plan: a sketch and a decision for each of its variables. Made by a ``PlanSpace``.

    Attributes:
        sketch: The variables.
        decisions: Index of what is chosen, for each.
    """

    sketch: PlanSketch
    decisions: tuple[int, ...]

    @functools.cached_property
    def key(self) -> str:
        """16 hex digits: hash of sketch and decisions."""
        return _digest([self.sketch.key, self.decisions])

    @property
    def workload(self) -> Workload:
        """The network, as something that records are kept of; it holds no program."""
        return self.sketch.workload

    @property
    def hardware(self) -> Hardware:
        """What it is a plan for."""
        return self.sketch.hardware

    @functools.cached_property
    def paths(self) -> tuple[Path, ...]:
        """What is chosen for each operator of the sketch."""
        return self.sketch.paths_of(self.decisions)

    @property
    def wanted(self) -> dict[int, dict[str, str]]:
        """The same for ``PlanNetwork.walk``: by the operator's number there."""
        pairs = zip(self.sketch.operators, self.paths, strict=True)
        return {operator.number: dict(path) for operator, path in pairs}

    def apply(self) -> None:
        """There is no program to compare: plans that are not equal are networks that are not."""

    def to_json(self) -> dict[str, Any]:
        """``{"sketch": key, "decisions": [...]}``; ``PlanSpace.candidate`` reverses it."""
        return {"sketch": self.sketch.key, "decisions": list(self.decisions)}


class PlanSpace:
    """All plans of a network on a hardware. Draws only from the generators that it is given.

    Args:
        sketch: The variables.
    """

    def __init__(self, sketch: PlanSketch) -> None:
        self.sketches = (sketch,)

    @classmethod
    def of(cls, network: PlanNetwork, identity: str) -> PlanSpace:
        """Walks through the passes until every choice that they have was seen.

        Args:
            network: The network.
            identity: Says which network it is.

        Raises:
            UnsupportedOperatorsError: Nothing can lower some operators.
        """
        offers = _offers(network)
        operators = [
            PlanOperator(operator.node, operator.name, number, tuple(offers[number]))
            for number, operator in enumerate(network.operators)
            if number in offers
        ]
        return cls(PlanSketch(network.model.name, identity, network.hardware, operators))

    @property
    def sketch(self) -> PlanSketch:
        """The only one."""
        return self.sketches[0]

    @property
    def workload(self) -> Workload:
        """The network."""
        return self.sketch.workload

    @property
    def hardware(self) -> Hardware:
        """What it is for."""
        return self.sketch.hardware

    @property
    def size(self) -> int:
        """Number of plans."""
        return self.sketch.size

    @functools.cached_property
    def default(self) -> PlanCandidate:
        """What the passes choose."""
        return self.uniform({})

    @functools.cached_property
    def starts(self) -> tuple[PlanCandidate, ...]:
        """What the passes choose, and each algorithm wherever there is a choice."""
        algorithms = {c for v in self.sketch.variables if v.step == _UNIFORM for c in v.choices}
        plans = [self.default, *(self.uniform({_UNIFORM: a}) for a in sorted(algorithms))]
        return tuple(dict.fromkeys(plans))

    @functools.cached_property
    def tvm_default(self) -> PlanCandidate:
        """What TVM does by itself: layouts as written, no algorithm of ours, what follows fused."""
        return self.uniform(_AS_TVM)

    def uniform(self, wanted: Mapping[str, str]) -> PlanCandidate:
        """The same choices for all operators that have them; passes decide about the rest."""
        return self._of([operator.path(wanted) for operator in self.sketch.operators])

    def sample(self, rng: np.random.Generator, n: int) -> list[PlanCandidate]:
        """Up to ``n`` distinct plans, all equally likely; fewer only from a small space."""
        counts = [len(operator.paths) for operator in self.sketch.operators]
        plans: dict[PlanCandidate, None] = {}
        for _ in range(_MAX_ROUNDS):
            missing = n - len(plans)
            if missing <= 0:
                break
            drawn = rng.integers(0, counts, size=(missing, len(counts))).tolist()
            for row in drawn:
                pairs = zip(self.sketch.operators, row, strict=True)
                plans[self._of([operator.paths[at] for operator, at in pairs])] = None
        return list(plans)

    def mutate(
        self,
        candidate: PlanCandidate,
        rng: np.random.Generator,
        among: Sequence[int] | None = None,
    ) -> PlanCandidate:
        """Changes one decision that means something; what it gives a meaning is the default's.

        Args:
            candidate: What is changed.
            rng: Draws the variable and its choice.
            among: Indices of the variables that may be changed; all if None.

        Returns:
            Another plan; the plan itself only if these variables leave no other.
        """
        open_to = range(len(self.sketch.variables)) if among is None else among
        for index in (open_to[at] for at in rng.permutation(len(open_to)).tolist()):
            others = self._others(candidate, index)
            if others:
                changed = list(candidate.decisions)
                changed[index] = others[int(rng.integers(len(others)))]
                return self._of(self.sketch.paths_of(changed))
        return candidate

    def _others(self, candidate: PlanCandidate, index: int) -> list[int]:
        """What else may be decided for a variable; nothing where that means nothing."""
        variable = self.sketch.variables[index]
        given: Path = ()
        for step, choice in candidate.paths[variable.operator]:
            if step == variable.step:
                offer = self.sketch.operators[variable.operator].table[step, given]
                return [variable.choices.index(c) for c in offer.choices if c != choice]
            given += ((step, choice),)
        return []

    def edit(
        self, candidate: PlanCandidate, changes: Mapping[int, Any], rng: np.random.Generator
    ) -> PlanCandidate:
        """Replaces decisions; those that mean nothing then are dropped.

        Args:
            candidate: What is changed.
            changes: Index of a variable to its decision.
            rng: Not needed.

        Raises:
            IllegalCandidateError: A decision is outside its domain.
        """
        del rng
        decisions = list(candidate.decisions)
        for index, decision in changes.items():
            decisions[index] = self._checked(index, decision)
        return self._of(self.sketch.paths_of(decisions))

    def crossover(
        self, a: PlanCandidate, b: PlanCandidate, rng: np.random.Generator
    ) -> PlanCandidate:
        """Takes each operator, with all that is decided for it, from either parent."""
        from_a = (rng.random(len(a.paths)) < 0.5).tolist()
        pairs = zip(from_a, a.paths, b.paths, strict=True)
        return self._of([one if first else other for first, one, other in pairs])

    def candidate(self, data: Mapping[str, Any]) -> PlanCandidate:
        """Reads what ``PlanCandidate.to_json`` wrote, in normal form.

        Raises:
            BadInputError: Not a plan, or one of another network.
            IllegalCandidateError: A decision is outside its domain.
        """
        try:
            key, decisions = data["sketch"], data["decisions"]
        except (KeyError, TypeError) as error:
            raise BadInputError(
                f"a plan is an object with sketch and decisions, but got {data!r}"
            ) from error
        if key != self.sketch.key:
            raise BadInputError(
                f"a plan's sketch is that of its network, {self.sketch.key} for "
                f"{self.workload.name!r}, but got {key!r}: it was made for another network, "
                "target or version"
            )
        if isinstance(decisions, str) or not isinstance(decisions, Sequence):
            raise BadInputError(f"decisions are a list, but got {decisions!r}: pass a list")
        if len(decisions) != len(self.sketch.variables):
            raise IllegalCandidateError(
                f"a plan has one decision per variable, but got {len(decisions)} for "
                f"{len(self.sketch.variables)} variables: pass decisions of this network"
            )
        checked = [self._checked(at, decision) for at, decision in enumerate(decisions)]
        return self._of(self.sketch.paths_of(checked))

    def _checked(self, index: int, decision: Any) -> int:
        variable = self.sketch.variables[index]
        if type(decision) is not int or not 0 <= decision < len(variable.choices):
            operator = self.sketch.operators[variable.operator].name
            raise IllegalCandidateError(
                f"a choice of {variable.step!r} for {operator!r} is an index in "
                f"[0, {len(variable.choices)}), but got {decision!r}: pick one of "
                f"{', '.join(variable.choices)}"
            )
        return decision

    def _of(self, paths: Sequence[Path]) -> PlanCandidate:
        return PlanCandidate(self.sketch, self.sketch.decisions_of(paths))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that holds the whole space; ``from_json`` reverses it."""
        sketch = self.sketch
        return {
            "schema": SCHEMA,
            "key": sketch.key,
            "name": sketch.workload.name,
            "network": sketch.network,
            "hardware": {k: v for k, v in sketch.hardware.to_json().items() if k != "key"},
            "operators": [
                {
                    "node": operator.node,
                    "name": operator.name,
                    "number": operator.number,
                    "offers": [offer._asdict() for offer in operator.offers],
                }
                for operator in sketch.operators
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PlanSpace:
        """Reads what ``to_json`` wrote.

        Raises:
            BadInputError: It is something else, of another version, or damaged.
        """
        try:
            if data["schema"] != SCHEMA:
                raise BadInputError(
                    f"plans have the schema {SCHEMA}, but got {data['schema']!r}: look for the "
                    "choices of the network again"
                )
            operators = [
                PlanOperator(
                    int(each["node"]),
                    str(each["name"]),
                    int(each["number"]),
                    tuple(_offer(offer) for offer in each["offers"]),
                )
                for each in data["operators"]
            ]
            hardware = Hardware.from_json(data["hardware"])
            sketch = PlanSketch(data["name"], data["network"], hardware, operators)
            key = data["key"]
        except (KeyError, TypeError, ValueError) as error:
            raise BadInputError(
                f"not the plans of a network: {error!r}; make them again"
            ) from error
        if sketch.key != key:
            raise BadInputError(
                f"the key of plans is the hash of their content, but it is {key} and the hash is "
                f"{sketch.key}: make them again"
            )
        return cls(sketch)


def _offer(data: Mapping[str, Any]) -> Offer:
    given = tuple((str(step), str(choice)) for step, choice in data["given"])
    return Offer(str(data["step"]), given, tuple(map(str, data["choices"])), str(data["default"]))


def _variables(operators: Sequence[PlanOperator]) -> Iterator[PlanVariable]:
    for number, operator in enumerate(operators):
        for step in deciding():
            offers = [offer for offer in operator.offers if offer.step == step]
            choices = tuple(dict.fromkeys(c for offer in offers for c in offer.choices))
            if choices:
                default = choices.index(offers[0].default)
                yield PlanVariable(number, step, choices, default)


def _offers(network: PlanNetwork) -> dict[int, list[Offer]]:
    """The choices of each operator that has some, by its number.

    Each walk follows for every operator a path that was not followed yet. Operators of one link
    follow the same, so that passes meet them in the same order.
    """
    last = deciding()[-1]
    tables: dict[int, dict[tuple[str, Path], Offer]] = {}
    due: dict[str, list[Path]] = {}
    known: dict[str, set[Path]] = {}
    for _ in range(_MOST_WALKS):
        follow = {link: paths.pop(0) for link, paths in due.items() if paths}
        wanted = {
            number: dict(follow[operator.link])
            for number, operator in enumerate(network.operators)
            if operator.link in follow
        }
        _, walk = network.walk(wanted)
        for number, offer in walk.offers:
            tables.setdefault(number, {})[offer.step, offer.given] = offer
            link = network.operators[number].link
            for choice in offer.choices if offer.step != last else ():
                path = (*offer.given, (offer.step, choice))
                if path not in known.setdefault(link, set()):
                    known[link].add(path)
                    if walk.paths[number][: len(path)] != path:
                        due.setdefault(link, []).append(path)
        if not any(due.values()):
            break
    return {number: list(table.values()) for number, table in sorted(tables.items())}


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
