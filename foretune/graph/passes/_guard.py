"""One guard around every pass over a network: a pass that fails on it is left out and named.

The rules of a pass are written against the operators somebody thought of; a network may hold
others. Leaving a pass out costs speed, so that the network still compiles to what it computed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from foretune.errors import last_line

if TYPE_CHECKING:
    from foretune._tvm import IRModule
    from foretune.hardware import Hardware

logger = logging.getLogger(__name__)

Change = Callable[["IRModule"], "IRModule"]

_FAILED = "failed"


@dataclass(frozen=True)
class PassReport:
    """What became of a pass on one network.

    Attributes:
        name: Of the pass.
        on: Whether it ran, and what it did counts.
        reason: Why it is not on; empty if it is.
        changed: Whether the network is another one because of it.
    """

    name: str
    on: bool = True
    reason: str = ""
    changed: bool = False

    @property
    def failed(self) -> bool:
        """Whether it is off because it failed."""
        return self.reason.startswith(_FAILED)

    def to_json(self) -> dict[str, Any]:
        """An entry of ``network.passes`` in ``foretune.tune/1``."""
        return asdict(self)


def failure(fault: str) -> str:
    """Why a pass is off that failed."""
    return f"{_FAILED}: {fault}"


def why_off(name: str, only: str, hardware: Hardware, without: Collection[str]) -> str:
    """Why a pass has no turn; empty if it has one.

    Args:
        name: Of the pass.
        only: Kind of target that it is for; empty if it is for all.
        hardware: What the network is compiled for.
        without: Names of passes that are not wanted.
    """
    if name in without:
        return "switched off"
    return f"for targets of the kind {only}" if only not in ("", hardware.kind) else ""


class Passes:
    """Runs passes on the module of one network.

    Args:
        network: Its name, for messages.
        without: Names of passes that do not run.
        checked: Whether what a pass makes is looked at, which takes a third of the time. Else a
            pass fails only if it raises, and reports say nothing of changes.

    Attributes:
        without: Names of those that do not run.
    """

    def __init__(self, network: str, without: Collection[str] = (), checked: bool = True) -> None:
        self.network = network
        self.without = frozenset(without)
        self._checked = checked
        self._reports: dict[str, PassReport] = {}

    def again(self, checked: bool = True, without: Collection[str] = ()) -> Passes:
        """Goes on from here, while another one may go on from here, too.

        Args:
            checked: As for the first one.
            without: Further passes that do not run.
        """
        other = Passes(self.network, self.without.union(without), checked)
        other._reports = dict(self._reports)
        return other

    @property
    def reports(self) -> tuple[PassReport, ...]:
        """What became of each pass, in the order in which they first had their turn."""
        return tuple(self._reports.values())

    def skip(self, name: str, reason: str) -> None:
        """Notes that a pass is not for this network."""
        self._reports.setdefault(name, PassReport(name, on=False, reason=reason))

    def is_on(self, name: str) -> bool:
        """Whether a pass had a turn, and what it did counts."""
        return name in self._reports and self._reports[name].on

    def run(self, name: str, module: IRModule, *changes: Change) -> IRModule:
        """``module`` after all ``changes``, or as it was if one fails or breaks the module.

        A pass may have several turns. One that failed has no further ones, so that what its report
        says holds.

        Args:
            name: Of the pass.
            module: Is left as it is.
            changes: What the pass consists of, in order: all of them count or none.
        """
        before = self._reports.get(name, PassReport(name))
        if not before.on:
            return module
        changed = module
        try:
            for change in changes:
                changed = change(changed)
            fault = _fault(module, changed) if self._checked else None
        # TVM's passes raise what they like: InternalError, TypeError, even std::bad_alloc.
        except Exception as error:
            fault = f"{type(error).__name__}: {last_line(error, 160)}"
        if fault is not None:
            # What its earlier turns did stays: the network is sound as it is.
            self._reports[name] = PassReport(name, False, failure(fault), before.changed)
            logger.warning("%s: %r is left out for this network (%s)", self.network, name, fault)
            return module
        differs = before.changed or (self._checked and _differ(module, changed))
        self._reports[name] = PassReport(name, changed=differs)
        return changed


def _differ(before: IRModule, after: IRModule) -> bool:
    from foretune import _tvm

    return not before.same_as(after) and not _tvm.same_program(before, after)


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
