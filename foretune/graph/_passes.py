"""One guard around every pass over a network: a pass that fails on it is left out and named.

The rules of a pass are written against the operators somebody thought of; a network may hold
others. Leaving a pass out costs speed, so that the network still compiles to what it computed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from foretune.errors import last_line

if TYPE_CHECKING:
    from foretune._tvm import IRModule

logger = logging.getLogger(__name__)

Change = Callable[["IRModule"], "IRModule"]


class Passes:
    """Runs passes on the module of one network.

    Attributes:
        ran: Names of the passes that were applied, in order, each once.
        without: Names of those that do not run.
        left_out: Names of those that failed on this network.
    """

    def __init__(self, network: str, without: Collection[str] = ()) -> None:
        self.network = network
        self.without = without
        self.ran: list[str] = []
        self.left_out: list[str] = []

    def run(self, name: str, module: IRModule, *changes: Change) -> IRModule:
        """``module`` after all ``changes``, or as it was if one fails or breaks the module.

        Args:
            name: What the pass does, for people.
            module: Is left as it is.
            changes: What the pass consists of, in order: all of them count or none.
        """
        if name in self.without:
            return module
        changed = module
        try:
            for change in changes:
                changed = change(changed)
            fault = _fault(module, changed)
        # TVM's passes raise what they like: InternalError, TypeError, even std::bad_alloc.
        except Exception as error:
            fault = f"{type(error).__name__}: {last_line(error, 160)}"
        names = self.ran if fault is None else self.left_out
        if name not in names:
            names.append(name)
        if fault is None:
            return changed
        logger.warning("%s: %r is left out for this network (%s)", self.network, name, fault)
        return module


def _fault(before: IRModule, after: IRModule) -> str | None:
    """What a pass must not do: break the module, or change what its ``main`` takes and returns."""
    from foretune import _tvm

    analysis = _tvm.tvm.relax.analysis
    if not analysis.check_well_formed(after):
        return "its result is not well formed"
    one, other = before["main"], after["main"]
    old = [str(p.ty) for p in one.params], str(one.ret_ty)
    new = [str(p.ty) for p in other.params], str(other.ret_ty)
    return None if old == new else f"it returns {new[1]} in place of {old[1]}"
