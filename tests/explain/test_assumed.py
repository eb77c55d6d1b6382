"""Which figures of a device are told to be assumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretune.explain import MEASURABLE, assumed
from foretune.hardware import Device, Hardware, device, device_of
from tests.describe.nest_builder import DESKTOP

UNKNOWN = Hardware("a board", '{"kind": "llvm"}', 4, simd_bits=128, l1_bytes=1 << 15)


def without(*names: str) -> Device:
    return replace(DESKTOP, factors={n: v for n, v in DESKTOP.factors.items() if n not in names})


def test_of_a_whole_data_sheet_nothing_is_assumed() -> None:
    assert assumed(DESKTOP) == {}
    assert assumed(device("i7-3770")) == {}


def test_one_clock_stands_for_the_other_and_none_for_both() -> None:
    assert assumed(replace(without("boost_mhz"), factors={
        **without("boost_mhz").factors, "base_mhz": 3000.0})) == {}  # fmt: skip
    assert assumed(without("boost_mhz")) == {"boost_mhz": 2000.0}


@pytest.mark.parametrize("name", ["memory_gb_per_s", "l2_kib"])
def test_what_is_left_out_is_told_with_what_stands_in(name: str) -> None:
    (found,) = assumed(without(name)).items()
    assert found[0] == name and found[1] > 0


def test_measuring_a_machine_that_nobody_knows_leaves_less_to_assume() -> None:
    before = assumed(device_of(UNKNOWN), UNKNOWN)
    measured = replace(UNKNOWN, peak_gflops=100.0, bandwidth_gbs=20.0)
    after = assumed(device_of(measured), measured)
    assert set(before) >= MEASURABLE and MEASURABLE.isdisjoint(after)
    assert set(after) < set(before) and "fp32_flop_per_cycle_per_core" in after
