"""Climbs of the perceptron beside climbs of the world model, judged by who was not climbed.

Nothing is measured. On each subgraph gradient search makes as many predictions with either guide,
frozen; the candidates that the guide likes best are its picks. As a control, it picks from as many
random candidates without a climb. A guide cannot judge its own: where
it errs is what a climb finds. So every pick is judged by the cost model that a run starts with,
which reads decisions only and was climbed by nobody, and by both guides; the column of the other
guide is the one to compare. A speed-up is what a judge believes of the picks, over the mean of
random candidates of the same space. Whether it is so, only measurements say.

The judge that comes with the package may have learned from workloads like these; so may the world
of the file, which has to be trained with a head::

    foretune train world --option head=true -o world.npz
    python -m benchmarks.guides --world world.npz --write

Cells are kept in the work directory; called again, it goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gradient import Frozen, Watched
from benchmarks.results import conditions, publish, read_json, say, table
from benchmarks.sources import state_of_ours
from foretune import cost
from foretune.bench import geometric_mean, write_json
from foretune.cli._options import parse_options
from foretune.cost import CostModel, pretrained
from foretune.hardware import Hardware
from foretune.search._gradient_config import GUIDE_NAMES
from foretune.search._guide import Guide
from foretune.space import Candidate, Space
from foretune.workload import Workload, catalog, load_input
from foretune_research.climbs import GradientStudy, StudyConfig, study_guide

PREDICTIONS = 4096
PICKS = 16
LOOKED = ("gradient", "random")
"""Who looks for candidates that a guide likes."""
_OF_GUIDES = ("variables",)
_RANDOM = 256
_DEFAULT = "default"
_SAID = {"gradient": "climbs", "random": "random candidates"}
_TITLE = "Climbs of the perceptron and of the world model, each judged by the other"

Judge = Callable[[Sequence[Candidate]], npt.NDArray[np.float64]]
"""Candidates to log2 of a speed-up, up to a constant per workload."""


class Picking(Watched):
    """Another guide, with the candidates that it has scored highest.

    Attributes:
        picks: At most ``PICKS``, the best first.
    """

    def __init__(self, guide: Guide) -> None:
        super().__init__(guide)
        self._ranked: dict[str, tuple[float, Candidate]] = {}

    @property
    def picks(self) -> list[Candidate]:
        """At most ``PICKS`` candidates, the best first."""
        return [candidate for _, candidate in self._ranked.values()]

    def scores(self, candidates: Sequence[Any]) -> Any:
        """The other guide's; the best are kept."""
        found = super().scores(candidates)
        for candidate, score in zip(candidates, found.tolist(), strict=True):
            if not math.isnan(score):
                self._ranked[candidate.key] = (score, candidate)
        best = sorted(self._ranked.items(), key=lambda item: (-item[1][0], item[0]))[:PICKS]
        self._ranked = dict(best)
        return found


def guides_of(
    model: CostModel, hardware: Hardware, world: str, options: Mapping[str, Any]
) -> dict[str, Guide]:
    """Both guides, by name; the perceptron is that of the package.

    Args:
        model: Has no ranker that could be climbed.
        hardware: Of the space.
        world: A file.
        options: Of gradient search; those of guides are for both.
    """
    own = {name: options[name] for name in _OF_GUIDES if name in options}
    found = {}
    for name in GUIDE_NAMES:
        config = StudyConfig(guide=name, weights=world if name == "world" else "", **own)
        guide = study_guide(model, hardware, config)
        assert guide is not None, f"no {name} is trained for {hardware.kind}"
        found[name] = guide
    return found


def picked(
    space: Any, guide: Guide, seed: int, predictions: int, options: Mapping[str, Any]
) -> list[Candidate]:
    """What a guide likes best of what its climbs, or random draws, find.

    Args:
        space: Where candidates come from.
        guide: What is climbed.
        seed: Of everything random.
        predictions: After which it ends; a round is not broken off.
        options: Of gradient search, ``objective`` among them.
    """
    watched = Picking(guide)
    if options.get("objective") == "random":
        options = {"objective": "random", "seeds": predictions, "steps": 1}
    strategy = GradientStudy(
        space, Frozen(watched), np.random.default_rng(seed), guide=watched, **options
    )
    while watched.predictions < predictions:
        before = watched.predictions
        if not strategy.explore() or watched.predictions == before:
            break
    return watched.picks


def judged(
    picks: Sequence[Candidate], drawn: Sequence[Candidate], judges: Mapping[str, Judge]
) -> dict[str, list[float]]:
    """By each judge, log2 of the picks' speed-up over random candidates: the mean, and the best."""
    found = {}
    for name, judge in judges.items():
        own, base = judge(picks), float(np.nanmean(judge(drawn)))
        found[name] = [float(np.nanmean(own)) - base, float(np.nanmax(own)) - base]
    return found


def compared(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Believed speed-ups by guide, who looks, and judge: means over workloads and seeds."""
    rows = []
    for guide, looked in itertools.product(GUIDE_NAMES, LOOKED):
        own = [c for c in cells if (c["guide"], c["looked"]) == (guide, looked) and c["judged"]]
        for judge in (_DEFAULT, *GUIDE_NAMES):
            row: dict[str, Any] = {"guide": guide, "looked": looked, "judge": judge}
            row["pairs"] = len(own)
            for at, name in enumerate(("mean", "best")):
                logs: dict[str, list[float]] = {}
                for cell in own:
                    value = cell["judged"][judge][at] * math.log(2)
                    logs.setdefault(cell["workload"], []).append(value)
                if logs:
                    row[name] = geometric_mean(logs, np.random.default_rng(0))
            if own:
                rows.append(row)
    return rows


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table."""
    body = table(
        ["guide", "picks from", "judge", "mean pick", "95 % interval", "best pick",
         "95 % interval", "pairs"],
        [
            [row["guide"], _SAID[row["looked"]],
             row["judge"] + (" (itself)" if row["guide"] == row["judge"] else ""),
             *_interval(row["mean"]), *_interval(row["best"]), str(row["pairs"])]
            for row in rows
        ],
    )  # fmt: skip
    return (
        f"Speed-up over the mean random candidate that a judge believes in, of the {PICKS} "
        "candidates that a guide likes best, of its climbs or of as many random candidates. "
        "Nothing was measured. Geometric means, "
        f"bootstrap over workloads and seeds.\n\n{body}"
    )


def _interval(found: Sequence[float]) -> list[str]:
    mean, low, high = found
    return [f"{mean:.2f}", f"{low:.2f} to {high:.2f}"]


def cell(
    name: str, hardware: Hardware, guide: str, seed: int, predictions: int,
    options: Mapping[str, Any], world: str,
) -> dict[str, list[float]]:  # fmt: skip
    """``judged`` for one guide on one workload; empty where it finds nothing."""
    workload = load_input(name)
    assert isinstance(workload, Workload)
    space = Space.generate(workload, hardware)
    guides = guides_of(cost.create("random", rng=0), hardware, world, options)
    default = pretrained.gbdt(rng=np.random.default_rng(0), hardware=hardware)
    judges: dict[str, Judge] = {_DEFAULT: lambda some: default.predict(some).score}
    judges |= {other: found.scores for other, found in guides.items()}
    picks = picked(space, guides[guide], seed, predictions, options)
    drawn = space.sample(np.random.default_rng([seed, 1]), _RANDOM)
    return judged(picks, drawn, judges) if picks else {}


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m benchmarks.guides --world FILE [--workloads A,B] [--seeds K] [--write]``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", required=True, metavar="FILE")
    parser.add_argument("--workloads", default=",".join(catalog.names("subgraph")))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--predictions", type=int, default=PREDICTIONS)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/guides"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(None if arguments is None else list(arguments))
    where = conditions("guides", list(range(options.seeds)))
    chosen = parse_options(options.option)
    common = {
        "state": state_of_ours(more=["foretune_research.climbs"]),
        "world": hashlib.blake2b(Path(options.world).read_bytes(), digest_size=8).hexdigest(),
        "predictions": options.predictions,
        "options": chosen,
        "hardware": where.hardware.key,
    }
    cells = []
    for name in options.workloads.split(","):
        for seed in range(options.seeds):
            for guide, looked in itertools.product(GUIDE_NAMES, LOOKED):
                found = {"workload": name, "guide": guide, "looked": looked, "seed": seed, **common}
                file = options.work_dir / f"{name.replace(':', '_')}-{guide}-{looked}-{seed}.json"
                kept = read_json(file) if file.exists() else {}
                if {key: kept.get(key) for key in found} != found:
                    made = cell(
                        name, where.hardware, guide, seed, options.predictions,
                        {**chosen, "objective": looked}, options.world,
                    )  # fmt: skip
                    kept = {**found, "judged": made}
                    options.work_dir.mkdir(parents=True, exist_ok=True)
                    write_json(file, kept)
                cells.append(kept)
                told = ", ".join(f"{who} {mean:.2f}" for who, (mean, _) in kept["judged"].items())
                say(f"{name} {guide} {looked} {seed}: {told or 'nothing to climb'}")
    rows = compared(cells)
    data = {"cells": cells, "compared": rows, "options": chosen}
    publish("guides", _TITLE, report(rows), data, where.end(), options.write)


if __name__ == "__main__":
    main()
