"""Which figures of a device are neither stated nor measured, so that a typical one stands in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foretune.describe import machine_of

if TYPE_CHECKING:
    from foretune.hardware import Device, Hardware

_CLOCKS = ("base_mhz", "boost_mhz")
_OPEN: Mapping[str, tuple[str, ...]] = {
    "cpu": ("boost_mhz", "memory_gb_per_s", "l2_kib"),
    "gpu": (
        "boost_mhz",
        "memory_gb_per_s",
        "l2_kib",
        "registers_kib_per_unit",
        "l1_kib_per_unit",
        "max_threads_per_unit",
        "max_threads_per_block",
    ),
}
"""Factors that judgements are made of and a data sheet may lack. A third cache that is not stated
is taken to be none, threads are cores, and a peak follows from the rest."""
MEASURABLE = frozenset({"boost_mhz", "memory_gb_per_s"})
"""What measuring this machine's peaks tells."""


def assumed(device: Device, hardware: Hardware | None = None) -> dict[str, float]:
    """Factors that stand in for unknown ones, by their names in files of devices.

    Args:
        device: Of which figures are used.
        hardware: What it was made of, if it was probed: its figures may be open, too.
    """
    known = device.factors
    figures = {name: device.value(name) for name in _OPEN[device.kind] if name not in known}
    if any(clock in known for clock in _CLOCKS):
        figures.pop("boost_mhz", None)
    if device.has_cores:
        if "memory_gb_per_s" in figures:
            figures["memory_gb_per_s"] = machine_of(device).memory / 1e9
        if hardware is not None and device.key == hardware.key:
            figures |= _of_probed(device, hardware)
    return figures


def _of_probed(device: Device, hardware: Hardware) -> dict[str, float]:
    """Required factors of a processor that no data sheet describes."""
    names = ["fp32_flop_per_cycle_per_core"]
    names += [] if hardware.simd_bits else ["simd_fp32_lanes"]
    names += [] if hardware.l1_bytes else ["l1d_kib_per_core"]
    return {name: device.value(name) for name in names}
