"""What a search loses without a part of the world model: figure 9 of its paper.

Every variant is a file of weights: trees grown on what the world has learned, which is learned once
and shared. They are trained like the weights of the package (all workloads of the data, none held
out to stop early), but without a head, and of each group as many programs as ``benchmarks.world``
takes. Then each searches the 22 subgraphs, and is compared with the full model at equal trials.

``state=none`` and ``state=initial`` are the same trees, as z0 is the same for all programs of a
workload: what these two rows differ by is noise.

Two cores are used best in this order; training shares no work, so that the variants are divided::

    python -m benchmarks.ablation --train --variants world
    taskset -c 0 python -m benchmarks.ablation --train --variants state=none,state=initial,... &
    taskset -c 1 python -m benchmarks.ablation --train --variants objective=regression,...; wait
    for core in 0 1; do taskset -c $core python -m benchmarks.ablation & done; wait
    taskset -c 0 python -m benchmarks.ablation --write

Weights and runs are kept in the work directory; called again, it goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._search.figures import changes, label, made
from benchmarks._search.runs import search, search_options, seeds_of, states_of
from benchmarks._world.cells import DIRECT, FULL, NONE, VARIANTS, Variant
from benchmarks._world.folds import MODELS, told, world_code
from benchmarks._world.learned import Learned
from benchmarks.results import ROOT, conditions, publish, say, table
from foretune.bench import sides
from foretune.cost.world import WorldRanker
from foretune.cost.world.learning import WorldConfig
from foretune.dataset import Group
from foretune.evaluate import keep_judgeable, read_data, refuse_excluded, thinned, train
from foretune.evaluate.weights import provenance_path
from foretune.workload import catalog

STRATEGY = "evolutionary"
SEARCHED: Mapping[str, Variant] = {
    FULL: VARIANTS[FULL],
    "state=none": VARIANTS[NONE],
    "state=initial": Variant({"state": "initial"}),
    **{
        name: variant
        for name, variant in VARIANTS.items()
        if name not in (FULL, NONE) and not variant.aware and variant.transition not in DIRECT
    },
}
"""The variants by the names of their files."""
_NONE_HELD = 0.0
_TITLE = "What a search loses without a part of the world model"


class Training:
    """The weights of all variants, made where they are not there.

    Args:
        groups: Judgeable groups.
        options: Where everything is kept, and how much is learned from.
        config: Of the world.
    """

    def __init__(
        self, groups: Sequence[Group], options: argparse.Namespace, config: WorldConfig
    ) -> None:
        self.groups = thinned(groups, options.programs)
        refuse_excluded(self.groups)
        self.options = options
        self.learned = Learned(
            "world",
            self.groups,
            options.work_dir / "learned",
            config,
            seed=options.training_seed,
            threads=options.threads,
            cache=options.cache,
        )
        settings = {"learned": self.learned.folder.name, "code": world_code()}
        digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=6).hexdigest()
        self.folder = options.work_dir / "weights" / digest
        self.folder.mkdir(parents=True, exist_ok=True)

    def weights(self, name: str) -> Path:
        """The file of a variant, trained now if it is not there."""
        path = self.folder / f"{name}.npz"
        # Provenance is written after the weights: it says that they are whole.
        if not provenance_path(path).exists():
            say(f"{name} ...")
            started = time.perf_counter()
            self._train(name, path)
            say(f"{name}: {time.perf_counter() - started:.0f} s")
        return path

    def _train(self, name: str, path: Path) -> None:
        variant, seed = SEARCHED[name], self.options.training_seed
        needs_world = variant.options.get("state") != "none"
        ranker = WorldRanker(
            seed=seed,
            threads=self.options.threads,
            world=self.learned.world(variant.transition) if needs_world else None,
            cache=self.options.cache,
            **variant.options,
        )
        train(
            ranker,
            self.groups,
            path,
            name=WorldRanker.name,
            options={**variant.options, "transition": variant.transition},
            seed=seed,
            command=shlex.join(["python", "-m", "benchmarks.ablation", *sys.argv[1:]]),
            data=[str(self.options.data)],
            validation=_NONE_HELD,
        )


def main(arguments: list[str] | None = None) -> None:
    parser = search_options(
        __doc__,
        page="ablation",
        workloads=catalog.names("subgraph"),
        trials=64,
        seeds=3,
        timeout_s=1800.0,
    )
    parser.add_argument("--variants", default=",".join(SEARCHED), help=f"{FULL} among them")
    parser.add_argument("--train", action="store_true", help="make the weights only")
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "cpu")
    parser.add_argument("--programs", type=int, default=32, help="learned from per group, at most")
    parser.add_argument("--threads", type=int, default=1, help="of training")
    parser.add_argument("--training-seed", type=int, default=0)
    parser.add_argument(
        "--cache",
        type=Path,
        default=MODELS / "features",
        help="folder of replayed states and features; benchmarks.models fills the default one",
    )
    options = parser.parse_args(arguments)
    variants = [name for name in options.variants.split(",") if name]
    if not set(variants) <= set(SEARCHED) or (FULL not in variants and not options.train):
        parser.error(f"variants are {', '.join(SEARCHED)}; {FULL} has to be among those searched")
    seeds = seeds_of(options)
    say("reading the data")
    groups, _few = keep_judgeable(read_data([options.data]).groups)
    with told():
        training = Training(groups, options, WorldConfig())
        weights = {name: str(training.weights(name)) for name in variants}
    if options.train:
        return
    where = conditions("ablation", seeds)
    result = search(options, where.hardware, [STRATEGY], list(weights.values()), seeds)
    if options.seed is not None:
        return
    (full,) = sides([STRATEGY], [weights[FULL]])
    result["ablation"] = {
        "full": label(full),
        "changes": changes(result["runs"], full, options.trials),
        "states": states_of(result["runs"]),
        "programs_per_group": options.programs,
    }
    publish(options.page, _TITLE, _body(result), result, where.end(), options.write)


def _body(result: Mapping[str, Any]) -> str:
    found = result["ablation"]
    parts = [
        f"Latency of each variant over that of {found['full']}, with equal trials; above 0 % the "
        "variant's programs are slower. Of a workload it is the geometric mean over seeds; the "
        "median and the number of slower ones are over workloads, the interval is from a bootstrap "
        "over workloads and seeds.",
        table(
            ["variant", "trials", "median", "mean (geometric)", "95 % interval", "slower", "pairs"],
            [
                [
                    row["side"],
                    str(row["trials"]),
                    _percent(row["median"]),
                    _percent(row["ratio"]),
                    f"{_percent(row['low'])} to {_percent(row['high'])}",
                    f"{row['slower']} of {row['workloads']}",
                    str(row["pairs"]),
                ]
                for row in found["changes"]
            ],
        ),
        "Every program that was the best of a run was measured again, those of all variants of one "
        "workload and seed interleaved by one measurer. `state=none` and `state=initial` are the "
        "same trees: what these two rows differ by is noise. All variants share what the world has "
        f"learned, and their trees learned from {found['programs_per_group']} programs of a group "
        "at most.",
        made(result["runs"]),
        "\n".join(
            f"- failed: {f['workload']} {f['cost_model']} seed {f['seed']}: {f['error'][:200]}"
            for f in result["failures"]
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


if __name__ == "__main__":
    main()
