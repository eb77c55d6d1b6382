"""Which buffers of a tensor program a caller gives, and which it gets back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretune.errors import BadInputError
from foretune.workload import parameter_roles

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
    roles = parameter_roles(function)
    written = [at for at, role in enumerate(roles) if role != "input"]
    for at in written:
        if roles[at] == "inout":
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
    inputs = tuple(at for at, role in enumerate(roles) if role == "input")
    return Arguments(inputs, tuple(written))
