"""Whole networks, one time budget, several tuners: the Felix paper's Table 2 on this machine.

For each network every side tunes for the same time, counted from the start of its process: foretune
with several strategies and cost models, and TVM MetaSchedule on the same tasks, with its own task
scheduler. A side is ``strategy+cost model`` (``evolutionary+default``, ``mcts:learned+default``) or
the name of a peer. Afterwards what all sides found is measured again side by side, which gives the
network's estimated latency over time, and the compiled networks are timed in turns. The tables say
what each side has in the end and how long it takes until it is near the best latency known: that of
any run here.

Finished runs are kept in the work directory; called again, it goes on where it was interrupted, and
a run that was broken off starts anew. Each network takes sides x seeds x time, and some minutes for
the comparison.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks._tuner import compare as comparison
from benchmarks._tuner import tables
from benchmarks._tuner.runs import NetworkRun, Plan, label, run, side_of
from benchmarks._tuner.tables import section
from benchmarks.results import conditions, say
from foretune.bench import Side, SideError
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.metaschedule import peer_options
from foretune.tuning import prepare
from foretune.workload import Model

PAGE = "tuners"
NETWORKS = ("resnet50", "mobilenet_v2", "resnet18_3d", "dcgan", "vit_b_32", "llama_block")
"""Those of the paper's Table 2, in its order."""
DEFAULT, WORLD = "evolutionary+default", "evolutionary+world"
JUDGED = (DEFAULT, WORLD)
"""Sides that are to be near the best latency known in time (``benchmarks._tuner.tables``)."""
SIDES = (
    DEFAULT,
    "gradient+mlp:formulas",
    tables.label(tables.SAME_MODEL),
    WORLD,
    "metaschedule-quick-start",
    "metaschedule-early",
)
TIME_S = 1200.0


def _of_network(
    name: str, contestants: Sequence[Side], hardware: Hardware, options: argparse.Namespace
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """What was found for one network, None if every run failed, and the failures."""
    prepared = prepare(name, hardware)
    if not isinstance(prepared.source, Model) or prepared.extraction is None:
        raise BadInputError(
            f"`--networks` takes models, but {name!r} is a single workload: compare tuners on it "
            "with `foretune bench`"
        )
    runs: list[NetworkRun] = []
    failures = []
    for seed in range(options.seeds):
        # No side always runs first.
        shift = seed % len(contestants)
        for side in [*contestants[shift:], *contestants[:shift]]:
            plan = Plan(name, side, seed, options.time)
            try:
                runs.append(run(plan, hardware, prepared.workloads, options.work_dir))
            except SideError as error:
                say(f"{name}  {label(side)}  seed {seed}: failed: {error}")
                failure = {"network": name, "side": label(side), "seed": seed, "error": str(error)}
                failures.append(failure)
    if not runs:
        return None, failures
    network = comparison.Network.of(prepared.source, hardware, prepared.extraction)
    found = comparison.compared(network, runs, options.rounds, options.work_dir, say, options.time)
    return found, failures


def _notes(contestants: Sequence[Side], failures: Sequence[Mapping[str, Any]]) -> list[str]:
    peers = [side.strategy for side in contestants if side.is_peer]
    lines = [f"- {name}: {peer_options(name).note}." for name in peers]
    if peers:
        lines.append(
            "- MetaSchedule's results come in batches, and a batch that is not finished when the "
            "time is over is lost. It is not told of the default schedules; where it has nothing "
            "for a task, the default schedule is what it ships."
        )
    return lines + [
        f"- failed: {f['network']} {f['side']} seed {f['seed']}: {f['error'][:200]}"
        for f in failures
    ]


def main(arguments: list[str] | None = None) -> None:
    """``python -m benchmarks.tuners [--networks A,B] [--sides S,T] [--time N] [--write]``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="INPUTs, comma-separated")
    parser.add_argument("--sides", default=",".join(SIDES), help="STRATEGY+COST_MODEL, or peers")
    parser.add_argument("--time", type=float, default=TIME_S, help="seconds for each run")
    parser.add_argument("--seeds", type=int, default=1, help="runs with seeds 0 to K-1")
    parser.add_argument("--rounds", type=int, default=15, help="of whole networks; 0 for none")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/tuners"))
    parser.add_argument("--page", default=PAGE, help="name of what --write writes")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    contestants = list(dict.fromkeys(side_of(name) for name in options.sides.split(",")))
    where = conditions("tuners", list(range(options.seeds)))
    options.work_dir.mkdir(parents=True, exist_ok=True)
    networks, failures = {}, []
    for name in options.networks.split(","):
        found, failed = _of_network(name, contestants, where.hardware, options)
        failures += failed
        if found is not None:
            networks[name] = found
    summary = tables.summarise(networks)
    data = {
        "time_s": options.time,
        "networks": networks,
        "summary": summary,
        "failures": failures,
        "goals": [line for name in JUDGED for line in tables.goal(summary, label(side_of(name)))],
        "notes": _notes(contestants, failures),
    }
    pages.publish(options.page, section, data, where.end(), options.write)


if __name__ == "__main__":
    main()
