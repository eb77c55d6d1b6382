from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from foretune.explain import Kernel, NoCountersError, counted
from foretune.explain._counters import parse
from foretune.hardware import Hardware
from foretune.space import Space
from foretune.workload import catalog

# Lines of `perf stat -x,` 6.1 on a desktop: value, unit, event, time running, share, more.
PRINTED = """\
123456789,,instructions,1000000,100.00,1.23,insn per cycle
99999999,,cycles:u,1000000,100.00,,
4000,,L1-dcache-loads,500000,50.00,,
<not supported>,,LLC-loads,0,100.00,,
"""


def test_counts_are_read_by_our_names_and_unknown_ones_left_out() -> None:
    assert parse(PRINTED) == {"instructions": 123456789.0, "cycles": 99999999.0, "l1_loads": 4000.0}


def test_a_machine_that_shows_nothing_is_told_from_one_that_counts_zero() -> None:
    with pytest.raises(NoCountersError, match=r"instructions <not supported>"):
        parse("<not supported>,,instructions,0,100.00,,\n")
    assert parse("0,,cycles,1,100.00,,\n") == {"cycles": 0.0}


def fake_perf(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = folder / "perf"
    perf.write_text(f"#!/bin/sh\n{script}\n")
    perf.chmod(perf.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def kernel(hardware: Hardware) -> Kernel:
    # On one thread: several wait long for each other where other tests run beside them.
    space = Space.generate(catalog.get("matmul:64x64x64"), replace(hardware, threads=1))
    assert space.default is not None
    # As if a call took long: then few of them are enough to count.
    return Kernel(space.default, 0.05)


def test_the_difference_of_two_numbers_of_calls_is_that_of_the_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hardware: Hardware
) -> None:
    # It runs the kernel for real, then counts a thousand for starting and seven for each call.
    script = """
while [ "$1" != "--" ]; do shift; done; shift
"$@" || exit 1
for calls in "$@"; do :; done
echo "$((1000 + 7 * calls)),,instructions,1,100.00,," >&2"""
    fake_perf(tmp_path, script, monkeypatch)
    assert counted(kernel(hardware)) == {"instructions": 7.0}


def test_a_perf_that_may_not_count_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hardware: Hardware
) -> None:
    fake_perf(tmp_path, "echo 'Access to performance monitoring is limited.' >&2; exit 255",
              monkeypatch)  # fmt: skip
    with pytest.raises(NoCountersError, match="is limited"):
        counted(kernel(hardware))


def test_without_perf_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hardware: Hardware
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCountersError, match="linux-perf"):
        counted(kernel(hardware))
