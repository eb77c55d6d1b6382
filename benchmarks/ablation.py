"""What a search loses without a part of the world model: figure 9 of its paper.

Every variant is a file of weights: trees grown on what the world has learned, which is learned once
and shared. They are trained like the weights of the package (all workloads of the data, none held
out to stop early), but without a head, and of each group as many programs as ``benchmarks.world``
takes. Then each searches the 22 subgraphs, and is compared with the full model at equal trials.

In these searches the model learns nothing from measurements, and every variant drafts by itself:
the ranker alone says what is looked at and what is measured (``ALONE``). Otherwise trees that read
all features of actions and of the machine would make up for what a variant lacks, and a variant
that reads programs would be drafted for by the package's default. ``--online`` adds a table of the
same searches with such trees.

``state=none`` and ``state=initial`` are the same trees, as z0 is the same for all programs of a
workload: what these two rows differ by is noise.

With the default settings a seed takes ten variants on 22 subgraphs, 220 runs of 64 trials. A run is
well under a minute of a core, but ``state=final`` makes every program that it drafts, about 12,000
in a run at some 13 ms each. That is three to four hours of a core for a seed, as much again with
``--online``, and half an hour for training. So there is one seed by default.

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

from benchmarks._search.figures import changes, made
from benchmarks._search.runs import hardware_of, search, search_options, seeds_of, states_of
from benchmarks._world.cells import DIRECT, FULL, NONE, VARIANTS, Variant
from benchmarks._world.folds import MODELS, told, world_code
from benchmarks._world.learned import Learned
from benchmarks.results import ROOT, conditions, publish, say, table
from foretune.bench import sides
from foretune.dataset import Group
from foretune.evaluate import keep_judgeable, read_data, refuse_excluded, thinned, train
from foretune.evaluate.weights import provenance_path
from foretune.workload import catalog
from foretune_research.world.config import WorldStudyConfig
from foretune_research.world.ranker import WorldVariants

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
ALONE, LEARNING = ":online=false:draft=ranker", ":draft=ranker"
"""Behind a file's name: every variant drafts by itself, and nothing is learned in the run, or trees
are (``foretune.cost.pretrained``)."""
_NONE_HELD = 0.0
_TITLE = "What a search loses without a part of the world model"
_HEADINGS = {ALONE: "The ranker alone", LEARNING: "With trees that learn in the run"}
_NOTES = {
    ALONE: "Scores and drafts are those of the variant alone, from the first trial to the last; "
    "evolution breeds from the fastest programs that were measured, as ever.",
    LEARNING: "Beside the ranker are trees that learn from the run's measurements, as in a tuning "
    "run. They read all features of actions and of the machine, whatever the variant leaves out; "
    "with `state=final` they read per-store features of the programs instead. So these rows "
    "say less of the parts of the model.",
}


class Training:
    """The weights of all variants, made where they are not there.

    Args:
        groups: Judgeable groups.
        options: Where everything is kept, and how much is learned from.
        config: Of the world.
    """

    def __init__(
        self, groups: Sequence[Group], options: argparse.Namespace, config: WorldStudyConfig
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
        ranker = WorldVariants(
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
            name=WorldVariants.name,
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
        seeds=1,
        timeout_s=1800.0,
    )
    parser.add_argument("--variants", default=",".join(SEARCHED), help=f"{FULL} among them")
    parser.add_argument("--online", action="store_true", help="a table with trees of the run, too")
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
        training = Training(groups, options, WorldStudyConfig())
        weights = {name: str(training.weights(name)) for name in variants}
    if options.train:
        return
    where = conditions("ablation", seeds, hardware_of(options))
    ways = [ALONE, LEARNING] if options.online else [ALONE]
    models = [f"{weights[name]}{way}" for way in ways for name in variants]
    result = search(options, where.hardware, [STRATEGY], models, seeds)
    if options.seed is not None:
        return
    result["ablation"] = {
        "tables": [
            {"way": way, "changes": _changes(result, weights, way, options.trials)} for way in ways
        ],
        "states": states_of(result["runs"]),
        "programs_per_group": options.programs,
    }
    publish(options.page, _TITLE, _body(result), result, where.end(), options.write)


def _changes(
    result: Mapping[str, Any], weights: Mapping[str, str], way: str, trials: int
) -> list[dict[str, Any]]:
    """What the variants lose that search in one way."""
    own = {f"{file}{way}" for file in weights.values()}
    runs = [run for run in result["runs"] if run["cost_model"] in own]
    (full,) = sides([STRATEGY], [f"{weights[FULL]}{way}"])
    return changes(runs, full, trials)


def _body(result: Mapping[str, Any]) -> str:
    found = result["ablation"]
    parts = [
        f"Latency of each variant over that of {FULL}, with equal trials; above 0 % the variant's "
        "programs are slower. Of a workload it is the geometric mean over seeds; the median and "
        "the number of slower ones are over workloads, the interval is from a bootstrap over "
        "workloads and seeds. Every program that was the best of a run was measured again, those "
        "of all variants of one workload and seed interleaved by one measurer.",
        "All variants share what the world has learned, and their trees learned from "
        f"{found['programs_per_group']} programs of a group at most. Each drafts by itself: "
        "`state=final` makes the thousands of programs that it drafts, so that its runs take "
        "minutes longer. `state=none` and `state=initial` are the same trees: what these two rows "
        "differ by is noise.",
        *(part for each in found["tables"] for part in _table(each)),
        made(result["runs"]),
        "\n".join(
            f"- failed: {f['workload']} {f['cost_model']} seed {f['seed']}: {f['error'][:200]}"
            for f in result["failures"]
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(found: Mapping[str, Any]) -> list[str]:
    """One way to search: what it is, and what the variants lose."""
    way = found["way"]
    rows = [
        [
            Path(row["side"].removesuffix(way)).stem.removeprefix(f"{STRATEGY} + "),
            str(row["trials"]),
            _percent(row["median"]),
            _percent(row["ratio"]),
            f"{_percent(row['low'])} to {_percent(row['high'])}",
            f"{row['slower']} of {row['workloads']}",
            str(row["pairs"]),
        ]
        for row in found["changes"]
    ]
    header = ["variant", "trials", "median", "mean (geometric)", "95 % interval", "slower", "pairs"]
    return [f"## {_HEADINGS[way]}", _NOTES[way], table(header, rows)]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


if __name__ == "__main__":
    main()
