"""``benchmarks.training_workloads``: from networks to the list of workloads to learn from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks import training_workloads as benchmark
from benchmarks._training import extraction, selection
from benchmarks._training.extraction import Extracted, Variant
from benchmarks._training.selection import Rules, Selected
from foretune.dataset import StoredWorkload
from foretune.hardware import probe
from foretune.workload import Workload, load_input, training
from foretune.workload.training import Excluded

ANY = Rules(flops=(0, 1e12), buffer_bytes=(0, 1 << 40), share=1 - 1e-9)


def tiny() -> Any:
    """A convolution, pooling and a dense layer."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    layers = nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(24 * 64, 40), nn.Sigmoid()), (torch.ones(1, 3, 16, 16),)


def program(name: str, network: str = "net") -> Extracted:
    source = load_input(name)
    assert isinstance(source, Workload)
    return Extracted(network, "plain", source)


def chosen(found: list[Extracted], rules: Rules = ANY, **options: Any) -> tuple[list[str], Any]:
    dropped: Counter[str] = Counter()
    searchable = options.get("searchable", lambda _: True)
    selected = selection.select(found, rules, searchable, dropped)
    return [stored.workload.name for stored in selection.named(selected)], +dropped


@pytest.fixture(autouse=True)
def nothing_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Excluded(frozenset(), frozenset())
    monkeypatch.setattr(training, "excluded", lambda: known)


def test_a_network_becomes_a_list_of_its_kernels() -> None:
    variant = Variant(probe("llvm -mcpu=x86-64-v3", 1))
    (workloads,) = extraction.workloads_of(tiny, [variant])
    found = [Extracted("tiny", "plain", workload) for workload in workloads]
    dropped: Counter[str] = Counter()
    selected = selection.select(
        found, ANY, lambda e: not selection.has_space(e.workload, variant.hardware, 8), dropped
    )
    stored = selection.named(selected)
    assert {"conv2d", "dense"} <= {each.kind for each in stored}
    assert all(each.workload.name.startswith("tiny/") for each in stored)
    assert len(stored) + dropped.total() == len(workloads)


def test_of_workloads_that_are_alike_the_first_stays() -> None:
    same, renamed = program("matmul:48x48x48"), program("matmul:48x48x48", "other")
    transposed = program("matmul:64x32x48")
    names, dropped = chosen([same, renamed, transposed])
    assert names == ["net/" + same.workload.name, "net/" + transposed.workload.name]
    assert dropped == {"same key": 1}


def test_size_evaluation_set_and_space_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [program(f"matmul:{n}x{n}x{n}") for n in (8, 40, 48, 56, 64, 80, 400)]
    known = Excluded(frozenset({found[2].workload.key}), frozenset())
    monkeypatch.setattr(training, "excluded", lambda: known)
    rules = Rules(flops=(0.02e6, 100e6), buffer_bytes=(20_000, 60_000), share=1 - 1e-9)
    names, dropped = chosen(found, rules, searchable=lambda each: each is not found[3])
    assert names == ["net/" + found[4].workload.name]
    assert dropped == dict.fromkeys(
        ("little work", "small buffers", "evaluation set", "space", "large buffers", "much work"), 1
    )


def test_no_kind_has_more_than_its_share_and_networks_take_turns() -> None:
    dense = [program(f"matmul:48x{n}x48", "a") for n in (16, 32, 48, 64)]
    dense += [program(f"matmul:48x{n}x96", "b") for n in (16, 32)]
    others = [program(f"conv2d:1x8x8x16x{n}x3x1") for n in (16, 32)]
    names, dropped = chosen([*dense, *others], Rules((0, 1e9), (0, 1 << 30), share=0.5))
    networks = [name.partition("/")[0] for name in names]
    assert networks == ["a", "net", "b", "net"]
    assert dropped == {"enough of dense": 4}
    several = [Selected(dense[0], "dense"), Selected(dense[0], "dense")]
    assert len({stored.workload.name for stored in selection.named(several)}) == 2


def test_what_was_extracted_is_not_extracted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program("matmul:64x32x48").workload
    known = {"plain": Variant(probe("llvm -mcpu=x86-64-v3", 1))}
    monkeypatch.setattr(extraction, "workloads_of", lambda *_: [[made]])
    first = benchmark.collect([tiny], known, tmp_path, ANY)
    monkeypatch.setattr(extraction, "workloads_of", broken)
    again = benchmark.collect([tiny, other], known, tmp_path, ANY)
    assert [each.origin.workload for each in first.selected] == [made]
    assert again.selected == first.selected
    assert again.failures == {"other": "ValueError: will not export"}
    said = benchmark.report(again)
    assert "1 workloads" in said and "dense" in said and "other: ValueError" in said


def broken(*_: Any) -> Any:
    raise ValueError("will not export")


def other() -> Any:
    """Never built."""


def test_networks_have_names_of_their_own_and_say_what_they_are() -> None:
    pytest.importorskip("torch")
    from benchmarks._training.networks import NETWORKS
    from foretune.workload import catalog

    names = [build.__name__ for build in NETWORKS]
    assert len(set(names)) == len(names) >= 50
    assert not set(names) & set(catalog.names("network"))
    assert all((build.__doc__ or "").strip().endswith(".") for build in NETWORKS)
    known = dict.fromkeys(("plain", "avx2", "parts"), Variant(probe("llvm", 1)))
    given = Counter(v for name in names for v in benchmark.variants_of(name, known))
    assert given["plain"] == len(names)
    assert min(given["avx2"], given["parts"]) > len(names) // 5


def test_the_built_in_list_and_kernels_of_networks_take_turns() -> None:
    built_in = training.training_workloads()
    others = [
        StoredWorkload(program(f"matmul:72x{n}x72").workload, "dense") for n in range(24, 324, 3)
    ]
    listed = benchmark.beside_built_in(others, len(built_in) + 50)
    assert len({stored.workload.key for stored in listed}) == len(listed) > len(built_in)
    assert not any(training.excluded().has(stored.workload) for stored in listed)
    half = listed[: len(listed) // 2]
    assert 20 <= sum(stored in others for stored in half) <= 30
