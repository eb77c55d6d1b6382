"""Who measures a run: this machine, or devices elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from foretune.cluster import Cluster
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.measure import (
    DeviceAddress,
    JobMeasurer,
    LocalMeasurer,
    MeasurePolicy,
    RemoteMeasurer,
    check_devices,
    parse_devices,
)


def devices_for(
    remote: Sequence[str], hardware: Hardware, unnamed: bool
) -> tuple[DeviceAddress, ...]:
    """The devices to measure on, once it is sure that they can be asked.

    Args:
        remote: Addresses as given.
        hardware: What is compiled for.
        unnamed: Whether nobody said what that is.

    Raises:
        BadInputError: An address makes no sense, leads nowhere, or nobody said what is there.
    """
    addresses = parse_devices(remote)
    if not addresses:
        return ()
    if unnamed:
        raise BadInputError(
            f"a device elsewhere must be described by --target, but got only --device "
            f"{addresses[0]}: for example --target raspberry-pi-5, or --target host where it is "
            "like this machine"
        )
    from foretune.graph import linker_for

    linker_for(hardware.target)
    check_devices(addresses)
    return addresses


def measurer_for(
    hardware: Hardware,
    addresses: Sequence[DeviceAddress],
    policy: MeasurePolicy,
    cluster: Cluster | None = None,
) -> JobMeasurer:
    """The measurer of a run; the caller closes it, and the cluster."""
    if addresses or cluster is not None:
        return RemoteMeasurer(hardware, addresses, policy, cluster=cluster)
    return LocalMeasurer(hardware, policy)
