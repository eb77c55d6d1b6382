"""Does the first stage keep what is worth keeping? Recall of the fastest programs by its losses.

Of each source of data the classifier learns from some workloads and is asked about the programs of
others: whether the fastest, or one within 2 % of it, is among the first 10, 16, 32 or 64. The
paper's weighted squares, the cross entropy of the same labels and ranking within a group are
compared, and the sampling of borderline programs, with several seeds.

A file per source, variant and seed is kept in the work directory; so the benchmark goes on where it
was interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._devices.families import SHARED
from benchmarks.results import ROOT, conditions, publish, read_json, say, table
from benchmarks.sources import code_of
from foretune._files import write_json
from foretune.dataset import Group
from foretune.evaluate import Split, cross_validation, keep_judgeable, read_data
from foretune_research.neural import ClassifierVariants
from foretune_research.recall import Recall, recalls

KEPT = (1, 10, 16, 32, 64)
SOURCES: Mapping[str, tuple[tuple[Path, ...], int]] = {
    "autotvm, CPUs": (
        tuple(
            SHARED / "devices" / f"cpu-{name}.jsonl.gz"
            for name in ("cortex-a7", "i5-1035g1", "i7-3770", "ryzen-3700x")
        ),
        256,
    ),
    "autotvm, GTX 1650": ((SHARED / "devices" / "gpu-gtx1650.jsonl.gz",), 256),
    "ansor, K80": ((SHARED / "ansor" / "k80.tar.gz",), 256),
    "ours": ((ROOT / "data" / "cpu",), 90),
}
"""Where programs are from, and how many of a group are tested at least."""
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "mse": {"loss": "mse"},
    "bce": {"loss": "bce"},
    "rank": {"loss": "rank"},
    "rank, borderline": {"loss": "rank", "sampling": "good_borderline_bad"},
}


def split_of(source: str, groups: int, tests: int) -> Split:
    """Workloads to learn from and others to be asked about, the same for all variants.

    Args:
        source: One of ``SOURCES``.
        groups: To learn from at most.
        tests: To be asked about at most.
    """
    paths, least = SOURCES[source]
    found, _ = keep_judgeable(read_data(list(paths)).groups)
    part = next(iter(cross_validation(found, "workload", folds=4, seed=0)))
    rng = np.random.default_rng(0)
    large = [group for group in part.test if group.valid.sum() >= least]
    return Split(
        part.name,
        _some(part.train, groups, rng),
        _some(part.validation, max(4, groups // 8), rng),
        _some(large, tests, rng),
    )


def _some(groups: Sequence[Group], most: int, rng: np.random.Generator) -> tuple[Group, ...]:
    chosen = np.sort(rng.permutation(len(groups))[:most])
    return tuple(groups[at] for at in chosen.tolist())


def judged(split: Split, seed: int, epochs: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a classifier keeps of the tested groups, and how long it took."""
    ranker = ClassifierVariants(seed=seed, threads=1, device="cpu", epochs=epochs, **options)
    began = time.perf_counter()
    ranker.fit(split.train, split.validation)
    trained = time.perf_counter()
    found = []
    for group in split.test:
        rng = np.random.default_rng([seed, zlib.crc32(group.key.encode())])
        each = recalls(ranker.score_group(group), group.seconds, KEPT, rng)
        found.append({"group": group.key, "recalls": [asdict(one) for one in each]})
    programs = sum(map(len, split.test))
    return {
        "train_s": trained - began,
        "score_s_per_program": (time.perf_counter() - trained) / programs,
        "groups": found,
    }


def _cell(
    source: str, variant: str, seed: int, args: argparse.Namespace, split: list[Split]
) -> dict[str, Any]:
    code = code_of("foretune_research.neural", "foretune_research.logs", within=["cost"])
    settings = json.dumps([source, variant, seed, args.groups, args.tests, args.epochs, code])
    digest = hashlib.blake2b(settings.encode(), digest_size=6).hexdigest()
    file = args.work_dir / f"{source}-{variant}-{seed}-{digest}.json".replace(", ", "_")
    if not file.exists():
        if not split:
            split.append(split_of(source, args.groups, args.tests))
        cell = judged(split[0], seed, args.epochs, VARIANTS[variant])
        args.work_dir.mkdir(parents=True, exist_ok=True)
        write_json(file, cell)
        say(f"{source}, {variant}, seed {seed}: {cell['train_s']:.0f} s")
    cell = read_json(file)
    assert isinstance(cell, dict)
    return cell


def means(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Of each K the mean over groups, and seeds."""
    each = [[Recall(**one) for one in g["recalls"]] for cell in cells for g in cell["groups"]]
    return [
        {name: float(np.mean([asdict(group[at])[name] for group in each])) for name in asdict(one)}
        for at, one in enumerate(each[0])
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is asked for and prints a table per source."""
    parser = argparse.ArgumentParser(prog="benchmarks.recall", description=__doc__)
    parser.add_argument("--source", action="append", choices=list(SOURCES), default=[])
    parser.add_argument("--variant", action="append", choices=list(VARIANTS), default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--tests", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/recall"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(arguments)
    where = conditions("recall", range(args.seeds))
    data: dict[str, Any] = {}
    body = []
    for source in args.source or SOURCES:
        split: list[Split] = []
        cells = {
            variant: [_cell(source, variant, seed, args, split) for seed in range(args.seeds)]
            for variant in args.variant or VARIANTS
        }
        data[source] = {
            variant: {
                "recalls": means(own),
                "groups": len(own[0]["groups"]),
                "train_s": float(np.mean([cell["train_s"] for cell in own])),
                "score_s_per_program": float(np.mean([c["score_s_per_program"] for c in own])),
            }
            for variant, own in cells.items()
        }
        body.append(_section(source, data[source]))
    publish(
        "recall",
        "What the first stage keeps",
        "\n\n".join([_INTRODUCTION.format(**vars(args)), *body]),
        {"schema": "foretune.bench.recall/1", "sources": data},
        where.end(),
        args.write,
    )


_INTRODUCTION = (
    "The classifier (`foretune.cost.behaviour.classifier`) learns from up to {groups} groups, "
    "{epochs} epochs, and orders up to {tests} groups of workloads that it has not seen: the share "
    "of groups in which the fastest program / one within 2 % of it is among the first K, and the "
    "fastest over the first choice (top-1)."
)


def _section(source: str, found: Mapping[str, Any]) -> str:
    header = ["loss", "top-1", *(f"K = {kept}" for kept in KEPT[1:]), "ms per program"]
    rows = [
        [
            variant,
            f"{one['recalls'][0]['ratio']:.3f}",
            *(f"{r['best']:.2f} / {r['near']:.2f}" for r in one["recalls"][1:]),
            f"{1e3 * one['score_s_per_program']:.2f}",
        ]
        for variant, one in found.items()
    ]
    luck = next(iter(found.values()))["recalls"][1:]
    rows.append(
        ["at random", "", *(f"{r['random_best']:.2f} / {r['random_near']:.2f}" for r in luck), ""]
    )
    groups = next(iter(found.values()))["groups"]
    return f"## {source}, {groups} groups\n\n{table(header, rows)}"


if __name__ == "__main__":
    main()
