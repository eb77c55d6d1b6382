"""What the local measurer refuses to start for, because every child would die of it."""

from __future__ import annotations

import platform

import pytest

from foretune.errors import BadInputError
from foretune.hardware import Hardware, preset, probe, usable_cores
from foretune.measure import LocalMeasurer


def refusal(hardware: Hardware) -> str:
    with pytest.raises(BadInputError) as caught:
        LocalMeasurer(hardware)
    return str(caught.value)


def test_another_architecture_is_named_with_the_remedy() -> None:
    other = "graviton3" if "86" in platform.machine() else "zen4"
    message = refusal(preset(other, threads=1))
    assert f"target '{other}' cannot be measured here" in message
    assert "measure on the device itself, or replay records" in message


def test_too_many_threads_are_refused_with_the_number_that_fits() -> None:
    here = probe()
    cores = usable_cores()
    crowded = Hardware(here.name, here.target, cores + 1, here.simd_bits)
    assert f"pass --threads {cores}" in refusal(crowded)
