"""Kernel Tuner's caches."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from foretune.dataset.readers import read
from foretune.errors import BadInputError

DATA = Path(__file__).parent / "data"
TEXT = (DATA / "kernel_tuner.json").read_text()


def _cache(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "cache.json"
    path.write_text(text)
    return path


def test_a_cache_is_one_group_of_configurations() -> None:
    reading = read(DATA / "kernel_tuner.json")
    (group,) = reading.groups
    assert (group.workload, group.name) == (
        '["convolution_kernel",[64,32]]',
        "convolution_kernel(64, 32)",
    )
    assert (group.kind, group.hardware) == ("conv2d", "Some GPU")
    np.testing.assert_allclose(group.seconds, [2.5e-3, 1.25e-3, math.nan, 5e-3])
    assert [program.configuration for program in group.programs] == [
        {"block_size_x": x, "tile": tile} for x in (16, 32) for tile in (1, 2)
    ]
    assert all(program.actions == () for program in group.programs)
    assert (reading.lines, reading.skipped) == (4, {})
    assert read(DATA / "kernel_tuner.json", hardware="mine").groups[0].hardware == "mine"


@pytest.mark.parametrize(
    "tail",
    [
        "",
        '"32',
        '"32,2"',
        '"32,2": ',
        '"32,2": {"block_size_x": 32, "tile": 2, "time": 5',
        '"32,2": {"block_size_x": 32,\n',
    ],
)
def test_an_unfinished_cache_is_read_up_to_its_end(tail: str, tmp_path: Path) -> None:
    """A run that was cut short closes neither the cache nor, perhaps, its last entry."""
    reading = read(_cache(tmp_path, TEXT[: TEXT.index('"32,2"')] + tail))
    np.testing.assert_allclose(reading.groups[0].seconds, [2.5e-3, 1.25e-3, math.nan])
    assert reading.skipped == ({"not JSON": 1} if tail else {})


@pytest.mark.parametrize("end", ["}", "},\n", "}}"])
def test_a_cache_whose_entries_are_whole_loses_none(end: str, tmp_path: Path) -> None:
    reading = read(_cache(tmp_path, TEXT[: TEXT.rindex("}}\n}")] + end))
    assert (len(reading.groups[0]), reading.skipped) == (4, {})


def test_a_torn_entry_in_the_middle_costs_itself_alone(tmp_path: Path) -> None:
    lines = TEXT.splitlines()
    torn = lines.index(next(line for line in lines if line.startswith('"16,2"')))
    lines[torn] = lines[torn][:38]
    reading = read(_cache(tmp_path, "\n".join(lines)))
    np.testing.assert_allclose(reading.groups[0].seconds, [2.5e-3, math.nan, 5e-3])
    assert reading.skipped == {"not JSON": 1}
    lines[torn] = "garbage"
    assert read(_cache(tmp_path, "\n".join(lines))).skipped == {"not JSON": 1}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ('{"block_size_x": 64, "tile": 1, "time": 0.0}', "seconds not positive and finite"),
        ('{"block_size_x": 64, "tile": 1, "time": NaN}', "seconds not positive and finite"),
        ('{"block_size_x": 64, "tile": 1, "time": null}', "damaged record"),
        ('{"block_size_x": 64, "tile": 1}', "damaged record"),
        ('{"tile": 1, "time": 1.0}', "damaged record"),
        ("3", "damaged record"),
        ("null", "damaged record"),
        ('{"block_size_x": 16, "tile": 1, "time": 9.0}', "duplicate"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_an_entry_that_cannot_be_used_is_counted(
    entry: str, reason: str, finished: bool, tmp_path: Path
) -> None:
    text = TEXT.replace('"cache": {', f'"cache": {{"odd": {entry},')
    reading = read(_cache(tmp_path, text if finished else text.rstrip("}\n") + "}"))
    assert (reading.skipped, reading.lines) == ({reason: 1}, 5)
    assert reading.records == 4
    assert reading.groups[0].best_s == pytest.approx(1.25e-3)


def test_an_old_sentinel_is_a_failure(tmp_path: Path) -> None:
    text = TEXT.replace('"time": 5.0', '"time": 1e20')
    assert np.isnan(read(_cache(tmp_path, text)).groups[0].seconds[3])


def test_keys_in_another_order_are_read(tmp_path: Path) -> None:
    path = _cache(tmp_path, json.dumps(json.loads(TEXT), sort_keys=True, indent=1))
    assert len(read(path).groups[0]) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is not JSON"),
        ("[]", "device_name, kernel_name"),
        ('{"device_name": "d"}', "kernel_name"),
        (TEXT.replace('"cache": {', '"cache": 3, "other": {'), "a cache of entries is missing"),
        (TEXT.replace('["block_size_x", "tile"]', "3"), "no list of names"),
        (TEXT[10:], "not JSON"),
    ],
)
def test_what_is_no_cache_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=message):
        read(_cache(tmp_path, text), format="kernel_tuner")
