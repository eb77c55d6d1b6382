"""MetaSchedule's traces: the one reader of what TVM records of a schedule.

A trace is ``[instructions, decisions]``. An instruction has a kind, operands, attributes and
results: numbers, and names (``b1`` a block, ``l17`` a loop) that TVM counts through the trace. What
a sampling instruction drew stands among the decisions, by its place. Behind ``EnterPostproc`` is
what post-processors did: it follows from the rest and the target, and is left out.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune._tvm import Schedule

PARALLEL = "meta_schedule.parallel"
VECTORIZE = "meta_schedule.vectorize"
"""Annotations that limit how many iterations become parallel or vectors."""

_POSTPROCESSING = "EnterPostproc"
_RENAMED = {"GetBlock": "GetSBlock"}
"""Instructions that older TVMs called otherwise."""


class Instruction(NamedTuple):
    """One instruction of a trace.

    Attributes:
        kind: TVM's name: ``"SamplePerfectTile"``, ``"Split"``, ``"GetLoops"``...
        inputs: Operands: names, numbers, and lists of them.
        attrs: What is fixed about it.
        outputs: Names of its results.
    """

    kind: str
    inputs: Sequence[Any]
    attrs: Sequence[Any]
    outputs: Sequence[str]

    @property
    def samples(self) -> bool:
        """Whether it draws a decision."""
        return self.kind.startswith("Sample")

    @property
    def looks_up(self) -> bool:
        """Whether it only finds a block or a loop."""
        return self.kind.startswith("Get")

    @property
    def limit(self) -> str | None:
        """The annotation that it limits loops with, given as a number; else None."""
        if self.kind != "Annotate" or len(self.inputs) != 2 or type(self.inputs[1]) is not int:
            return None
        return next((name for name in (PARALLEL, VECTORIZE) if self.attrs[:1] == [name]), None)


@dataclass(frozen=True)
class Trace:
    """A trace, read. What it holds is not to be changed.

    Attributes:
        instructions: In order.
        decisions: Index of a sampling instruction to what it drew: the factors of a tile, the index
            of a choice, the index of a loop.
    """

    instructions: tuple[Instruction, ...]
    decisions: Mapping[int, Any]

    @classmethod
    def from_json(cls, value: Any, whole: bool = False) -> Trace:
        """Reads ``[instructions, decisions]``, of this TVM or of an older one.

        Args:
            value: The JSON object.
            whole: Whether to keep what post-processors did.

        Raises:
            BadInputError: It is no trace.
        """
        try:
            written, recorded = value
            kinds = [each[0] for each in written]
            if not whole and _POSTPROCESSING in kinds:
                written = written[: kinds.index(_POSTPROCESSING)]
            instructions = tuple(_instruction(*each) for each in written)
            decisions = {int(at): decision for at, decision in recorded}
        except (TypeError, ValueError, IndexError, KeyError) as error:
            raise BadInputError(
                f"a trace is [instructions, decisions], but got {str(value)[:80]!r}: {error!r}"
            ) from error
        return cls(instructions, {at: d for at, d in decisions.items() if at < len(instructions)})

    @classmethod
    def of(cls, schedule: Schedule) -> Trace:
        """The trace of a TVM schedule."""
        return cls.from_json(plain(schedule.trace.as_json(remove_postproc=True)))

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def from_text(text: str) -> Trace:
        """Reads what ``text`` wrote; kept for the last few hundred."""
        return Trace.from_json(json.loads(text))

    @property
    def text(self) -> str:
        """The trace as canonical JSON."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    def to_json(self) -> list[Any]:
        """``[instructions, decisions]`` as TVM writes it; ``from_json`` reverses it."""
        instructions = [list(each) for each in self.instructions]
        return [instructions, [[at, self.decisions[at]] for at in sorted(self.decisions)]]


def _instruction(kind: Any, inputs: Any, attrs: Any, outputs: Any) -> Instruction:
    lists = all(isinstance(part, list) for part in (inputs, attrs, outputs))
    if not lists or not all(isinstance(name, str) for name in (kind, *outputs)):
        raise ValueError("an instruction is [kind, inputs, attributes, outputs]")
    return Instruction(_RENAMED.get(kind, kind), inputs, attrs, outputs)


def snake_case(kind: str) -> str:
    """Before → after: ``"ReverseComputeAt"`` → ``"reverse_compute_at"``, ``"RFactor"`` →
    ``"rfactor"``, ``"GetSBlock"`` → ``"get_sblock"``.
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.replace("RFactor", "Rfactor")).lower()


def plain(value: Any) -> Any:
    """TVM's arrays, maps and numbers as JSON-able Python values.

    Raises:
        BadInputError: Something else is in there.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    number = getattr(value, "value", None)
    if isinstance(number, float):
        return float(number)
    if number is not None:
        return int(number)
    try:
        return [plain(v) for v in value]
    except TypeError:
        raise BadInputError(f"a trace holds numbers and text, but got {value!r}") from None
