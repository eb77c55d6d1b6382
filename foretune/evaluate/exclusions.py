"""No model learns from what it is evaluated on.

The evaluation set (``foretune.workload.training.excluded``) is kept out of training by key, and
where the program is at hand also by what it computes on which shapes, so that a renamed copy is
found as well. Measurements of others have keys of their own and no program of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from foretune.errors import BadInputError, listed
from foretune.evaluate.families import program_of

if TYPE_CHECKING:
    from foretune.dataset import Group


def refuse_excluded(groups: Iterable[Group]) -> None:
    """Refuses groups to be learned from whose workload belongs to the evaluation set.

    Raises:
        BadInputError: There are such groups; the message names them.
    """
    from foretune.workload.training import excluded

    first = {group.workload: group for group in groups}
    forbidden = excluded()
    found = []
    for key, group in first.items():
        workload = program_of(group)
        if key in forbidden.keys or (workload is not None and forbidden.has(workload)):
            found.append(group.name)
    if found:
        raise BadInputError(
            f"nothing is learned from the evaluation set, but {len(found)} workloads of the data "
            f"belong to it ({listed(sorted(found), 5)}): leave them out with "
            "--exclude"
        )
