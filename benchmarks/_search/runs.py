"""How benchmarks of searches make their runs: options, seeds, and what finished ones are found by.

Runs are kept in a work directory; called again, a benchmark goes on where it was interrupted. Those
of foretune count only for the code and the weights that made them. Calls side by side, each pinned
to a core of its own, share the work, and a last one finds all runs. It has to be pinned to as many
cores, since runs are kept by what they were tuned for, the number of cores among it. A call with
``--seed`` makes the runs of some seeds and publishes nothing, for example in several sessions.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._search.figures import Run, label, present
from benchmarks.results import say
from benchmarks.sources import state_of_side
from foretune.bench import run_bench, sides
from foretune.errors import BadInputError
from foretune.hardware import Hardware, probe


def search_options(
    description: str | None,
    *,
    page: str,
    workloads: Sequence[str],
    trials: int,
    seeds: int,
    timeout_s: float,
) -> argparse.ArgumentParser:
    """A parser of what the searches of a benchmark have in common.

    Args:
        description: Of the benchmark.
        page, workloads, trials, seeds, timeout_s: Defaults.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default=",".join(workloads))
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seeds", type=int, default=seeds, help="how many, from 0 on")
    parser.add_argument("--seed", help="numbers: make the runs of these, and do not publish")
    parser.add_argument("--target", help="to tune for, which must run here; else this machine")
    parser.add_argument("--timeout", type=float, default=timeout_s, help="seconds for a single run")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work") / page)
    parser.add_argument("--page", default=page, help="name of what --write writes")
    parser.add_argument("--write", action="store_true")
    return parser


def seeds_of(options: argparse.Namespace) -> list[int]:
    """The seeds whose runs are to be made.

    Raises:
        BadInputError: ``--seed`` holds something other than numbers below ``--seeds``.
    """
    if options.seed is None:
        return list(range(options.seeds))
    named = [word.strip() for word in options.seed.split(",")]
    known = [str(seed) for seed in range(options.seeds)]
    if not set(named) <= set(known):
        raise BadInputError(
            f"`0 <= seed < seeds` must hold for each, but got --seed {options.seed} with --seeds "
            f"{options.seeds}: name some of {', '.join(known)}, or raise --seeds"
        )
    return sorted(map(int, set(named)))


def hardware_of(options: argparse.Namespace) -> Hardware | None:
    """What ``--target`` says, with measured peaks; None without one."""
    return None if options.target is None else probe(options.target, measure=True)


def search(
    options: argparse.Namespace,
    hardware: Hardware,
    strategies: Sequence[str],
    models: Sequence[str],
    seeds: Sequence[int],
    peer_trials: int | None = None,
    own_seeds: Mapping[str, int] | None = None,
    llm: str = "",
) -> dict[str, Any]:
    """What ``run_bench`` gives for the workloads of some options; finished runs are found again.

    Args:
        options: As ``search_options`` reads them.
        hardware: What to tune for.
        strategies: Names of strategies and peers.
        models: Names of cost models, and files of weights.
        seeds: Of the runs.
        peer_trials: Trials of peers, if not as many.
        own_seeds: The first so many seeds only, for some strategies.
        llm: The language model of sides that ask one.

    Raises:
        BadInputError: The tables could not tell two sides apart, or a name is unknown.
    """
    labels = [label(side) for side in sides(strategies, models)]
    twice = sorted({name for name in labels if labels.count(name) > 1})
    if twice:
        raise BadInputError(
            f"sides must have different names, but {twice[0]!r} is that of several: give the files "
            "of cost models different names"
        )
    return run_bench(
        options.workloads.split(","),
        strategies,
        options.trials,
        seeds,
        peer_trials=peer_trials,
        own_seeds=own_seeds,
        cost_models=models,
        hardware=hardware,
        work_dir=options.work_dir,
        timeout_s=options.timeout,
        state=state_of_side,
        llm=llm,
        progress=say,
    )


def states_of(runs: Sequence[Run]) -> dict[str, str]:
    """Label of every side of ours -> the state of code and weights that its runs are kept by."""
    return {label(side): state_of_side(side) for side in present(runs) if not side.is_peer}
