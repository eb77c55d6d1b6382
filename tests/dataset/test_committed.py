"""The data set that is committed with the package's source, as the documentation describes it."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq
import pytest

from foretune.collect import EVOLVED, PREDICTED, UNIFORM
from foretune.dataset import AUDIT, is_valid, read_dataset
from foretune.workload.training import excluded, signature
from tests import ROOT

DATA = ROOT / "data" / "cpu"


@pytest.fixture(scope="module")
def measured() -> list[dict[str, object]]:
    """A row per record that is no audit."""
    columns = ["workload", "hardware", "status", "origin"]
    rows = []
    for file in sorted(DATA.glob("records-*.parquet")):
        rows += pq.read_table(file, columns=columns).to_pylist()
    return [row for row in rows if row["origin"] != AUDIT]


def test_it_holds_what_the_documentation_states(measured: list[dict[str, object]]) -> None:
    text = " ".join((ROOT / "docs" / "data.md").read_text().split())
    workloads = pq.read_table(DATA / "workloads.parquet", columns=["key", "kind"]).to_pydict()
    keys, kinds = set(workloads["key"]), set(workloads["kind"])
    ran = sum(row["status"] in ("ok", "cut_short") for row in measured)
    stated = f"{len(measured):,} records, {ran:,} of them valid, of {len(keys)} workloads and"
    assert f"{stated} {len(kinds)} operator kinds" in text
    assert len(measured) >= 90_000 and len(keys) >= 600
    assert {row["workload"] for row in measured} == keys
    assert not keys & excluded().keys


def test_every_workload_has_its_programs_on_three_variants(
    measured: list[dict[str, object]],
) -> None:
    counts = Counter((row["hardware"], row["workload"]) for row in measured)
    sizes: dict[object, list[int]] = {}
    for (hardware, _), count in counts.items():
        sizes.setdefault(hardware, []).append(count)
    main, *others = sorted(sizes.values(), key=lambda found: -sum(found))
    assert len(others) == 2 and len({len(found) for found in (main, *others)}) == 1
    # Small spaces hold fewer programs than were asked for.
    assert sum(count >= 96 for count in main) > 0.95 * len(main)
    assert sum(count >= 256 for count in main) >= 57
    for found in others:
        assert sum(count >= 32 for count in found) > 0.95 * len(found)


def test_a_third_each_is_uniform_predicted_and_evolved(measured: list[dict[str, object]]) -> None:
    shares = Counter(row["origin"] for row in measured)
    assert set(shares) == {UNIFORM, PREDICTED, EVOLVED}
    assert all(0.3 < count / len(measured) < 0.37 for count in shares.values())


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in DATA.iterdir()) < 25e6


@pytest.mark.slow
def test_every_row_can_be_used_and_no_evaluation_workload_is_in_it_by_shape() -> None:
    data = read_dataset(DATA)
    groups = data.groups()
    assert data.skipped == {}
    assert {group.workload for group in groups} == set(data.workloads)
    valid = [r for r in data.records if r.origin != AUDIT and is_valid(r.measurement)]
    assert sum(int(group.valid.sum()) for group in groups) == len(valid)
    found = {signature(stored.workload) for stored in data.workloads.values()}
    assert len(found) > 400
    assert not found & excluded().signatures
