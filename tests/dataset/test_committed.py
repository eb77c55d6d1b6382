"""The data sets that are committed with the package's source, as the documentation describes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from foretune.collect import EVOLVED, UNIFORM
from foretune.dataset import AUDIT, read_dataset
from foretune.workload.training import excluded, signature

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data" / "cpu"
SEARCH = ROOT / "data" / "search"
VALID = 49_424
RAN = ("ok", "cut_short")


def test_it_holds_what_the_documentation_states() -> None:
    text = " ".join((ROOT / "docs" / "data.md").read_text().split())
    workloads = pq.read_table(DATA / "workloads.parquet", columns=["key", "kind"]).to_pydict()
    index = json.loads((DATA / "dataset.json").read_text())
    valid, measured = 0, set()
    for number in range(index["files"]):
        columns = ["workload", "hardware", "status", "origin"]
        table = pq.read_table(DATA / f"records-{number:03d}.parquet", columns=columns)
        for row in table.to_pylist():
            valid += row["origin"] != AUDIT and row["status"] in RAN
            measured.add((row["hardware"], row["workload"]))
    keys, kinds = set(workloads["key"]), set(workloads["kind"])
    stated = f"{valid:,} valid records of {len(keys)} workloads and {len(kinds)} operator kinds: "
    assert f"{stated}three instruction sets of a Zen 5" in text
    assert "one thread (all workloads) and on two (148 of them, and four more on x86" in text
    assert index["valid"] == valid == VALID
    counts = Counter(hardware for hardware, _ in measured)
    found = sorted((each["threads"], counts[each["key"]]) for each in index["hardware"])
    assert found == [(1, len(keys))] * 3 + [(2, 148)] * 2 + [(2, 152)]
    assert {workload for _, workload in measured} == keys
    assert not keys & excluded().keys


def test_programs_of_searches_are_what_the_documentation_states() -> None:
    text = " ".join((ROOT / "docs" / "data.md").read_text().split())
    data = read_dataset(SEARCH)
    assert data.skipped == {}, "every row can be used"
    valid = sum(int(group.valid.sum()) for group in data.groups())
    assert f"`data/search` has {valid:,} valid records of {len(data.workloads)} of these" in text
    (hardware,) = data.hardware.values()
    assert hardware.threads == 1 and "Xeon" in hardware.name
    origins = {(r.workload, r.origin): 0 for r in data.records}
    for record in data.records:
        origins[record.workload, record.origin] += 1
    found = {origin: {n for (_, each), n in origins.items() if each == origin}
             for origin in (UNIFORM, EVOLVED)}  # fmt: skip
    assert found == {UNIFORM: {32}, EVOLVED: {96}}
    known = set(pq.read_table(DATA / "workloads.parquet", columns=["key"])["key"].to_pylist())
    assert set(data.workloads) <= known, "the very training workloads"
    assert not set(data.workloads) & excluded().keys


@pytest.mark.slow
def test_nothing_of_the_evaluation_set_is_in_it_by_shape() -> None:
    data = read_dataset(DATA)
    groups = data.groups()
    assert data.skipped == {}, "every row can be used"
    assert {group.workload for group in groups} == set(data.workloads)
    assert sum(int(group.valid.sum()) for group in groups) == VALID
    found = {signature(stored.workload) for stored in data.workloads.values()}
    assert len(found) > 100
    assert not found & excluded().signatures
