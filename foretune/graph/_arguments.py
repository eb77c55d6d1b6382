"""Which buffers of a tensor program a caller gives, and which it gets back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretune import _tvm
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.workload import Workload


@dataclass(frozen=True)
class Arguments:
    """The parameters of a PrimFunc by what an artifact does with them.

    Attributes:
        inputs: Positions of the parameters that the caller gives, ascending.
        outputs: Positions of those that are allocated for a call and returned, ascending.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def arguments_of(workload: Workload) -> Arguments:
    """Sorts the parameters of a workload: one that is written is an output, the rest are inputs.

    Raises:
        BadInputError: A parameter is read before it is written, so that it is both, or none is
            written.
    """
    function = workload.module["main"]
    schedule = _tvm.Schedule(_tvm.IRModule({"main": function}))
    first: dict[int, str] = {}
    written: set[int] = set()
    for use, buffer in _uses(schedule, schedule.get_sblock("root")):
        # By identity: two parameters may have the same name.
        for at, parameter in enumerate(function.params):
            if parameter.same_as(buffer):
                first.setdefault(at, use)
                if use == "write":
                    written.add(at)
    for at in sorted(written):
        if first[at] == "read":
            raise BadInputError(
                "an artifact returns new outputs, but parameter "
                f"{str(function.params[at].name)!r} of {workload.name!r} is read before it is "
                "written: give the program one parameter to read and another one to write"
            )
    if not written:
        raise BadInputError(
            f"an artifact returns outputs, but {workload.name!r} writes none of its parameters: "
            "let it store its result in one"
        )
    places = range(len(function.params))
    return Arguments(tuple(at for at in places if at not in written), tuple(sorted(written)))


def _uses(schedule: Any, parent: Any) -> Iterator[tuple[str, Any]]:
    """``("read" or "write", buffer)`` for every block below ``parent``, in program order.

    A nested block comes before the block around it, which claims to read what its parts hand to
    one another.
    """
    for block in schedule.get_child_blocks(parent):
        yield from _uses(schedule, block)
        node = schedule.get(block)
        reads = [("read", region.source) for region in node.reads]
        writes = [("write", region.source) for region in node.writes]
        # A reduction that starts its result itself does not need what was there before.
        yield from (reads + writes if node.init is None else writes + reads)
