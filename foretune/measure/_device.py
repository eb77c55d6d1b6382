"""What is known of a device elsewhere while it is measured on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from foretune._options import NotNegative, require_options

if TYPE_CHECKING:
    from foretune.measure.devices import DeviceAddress
    from foretune.measure.transport import Slot, Worker

HERE = "this machine"
"""What a child that times on this machine is called among devices."""


@dataclass(frozen=True)
class Patience:
    """How long a device that is lost is asked for again.

    Attributes:
        reboot_s: Seconds after which it is given up: more than a board takes to restart.
        answer_s: Seconds within which it must take a connection to count as being there.
    """

    reboot_s: NotNegative = 300.0
    answer_s: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        require_options("waiting for a device", self)


@dataclass(eq=False)
class Device:
    """One place for a session.

    Attributes:
        label: Its address, with a number where a tracker has several of the key.
        address: Where it is asked for; None for this machine.
        slot: The child that holds the session.
        name: ``"host:port"`` of the server that it got last; empty before the first.
        lost_at: Monotonic time since when there is no session; None while there is.
        failures: Connections that failed in a row.
        faults: Untuned programs that failed there in a row.
        slow: Sessions in a row whose canary was far slower than at first.
        since: When the session began.
        used: When it was last asked to time something.
        given_up: Why it is not asked for any more; empty while it is.
        last: What went wrong last.
    """

    label: str
    address: DeviceAddress | None
    slot: Slot
    name: str = ""
    lost_at: float | None = None
    failures: int = 0
    faults: int = 0
    slow: int = 0
    since: float = 0.0
    used: float = 0.0
    given_up: str = ""
    last: str = ""
    greeted: Worker | None = field(default=None, repr=False)

    @property
    def here(self) -> bool:
        """Whether it is a child process of this machine."""
        return self.address is None
