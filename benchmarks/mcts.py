"""Tree search and its proposers on the four kernels of the Reasoning Compiler paper.

Table 1 in shape: speed-up over the unoptimised program after so many samples (measured programs)
of evolutionary search, ours and TVM's, and of tree search with each proposer. Tables 3 and 4:
history depth, which needs a language model, and branching. One of our own: rollouts, also with the
world model, which scores their ends without making a program. All sides have batches of 16, or of
``--batch``, but those whose names end with another one (``mcts:learned@4``), and TVM's. Those
of ours have, but where they name another one, the same cost model, which is pretrained, so that
none has a warm-up; TVM's has a model of its own, with a warm-up of one batch. Two more sides of
ours start from nothing, too.
Every program that was the best of a run is measured again, those of all sides of one kernel and
seed interleaved. Ablations have fewer trials, and are compared at as many.

``--llm MODEL@URL`` (or another form of ``foretune tune --llm``) adds the language model's rows to
table 1 and makes tables 3 and 4 with it::

    python -m benchmarks.mcts --llm qwen2.5-coder@http://localhost:11434/v1 --write

Runs are kept in the work directory; called again, it goes on where it was interrupted, at the run,
so that none was ever resumed half-way. A model's answers are kept there, too, a transcript beside
each run. All of it takes hours. Programs are tuned for the cores that the process may use, so
processes with a core each, as in the paper, share the work, and a last call on one core finds all
runs::

    for core in 0 1; do taskset -c $core python -m benchmarks.mcts & done; wait
    taskset -c 0 python -m benchmarks.mcts --write

``--workloads`` and ``--seed-list`` do a part of it, in several sessions for example. Where work
directories do not outlive a session, or machines are others, ``--with`` adds what was published
before, of other seeds::

    taskset -c 0 python -m benchmarks.mcts --seed-list 1 --with docs/results/mcts.json.xz --write
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks._mcts.figures import (
    EVOLUTION,
    PEER,
    early,
    families,
    name_of,
    named,
    over_reference,
    reaching,
    speedups,
)
from benchmarks._mcts.overhead import BATCH, overhead_alone
from benchmarks._mcts.page import body
from benchmarks._mcts.parts import effort, expect_as_long, together
from benchmarks.results import conditions, publish, read_json, say
from benchmarks.sources import state_of_side
from foretune.bench import run_bench
from foretune.bench import sides as sides_of

KERNELS = ("llama3_attention", "deepseek_moe", "flux_attention", "flux_conv")
SAMPLES = (18, 36, 72, 144, 200, 600)
SIDES = (EVOLUTION, "mcts:random", "mcts:heuristic", "mcts:learned", PEER)
BRANCHING = ("mcts:learned:branching=4", "mcts:learned:branching=0")
"""Beside ``mcts:learned``, which has 2; 0 is progressive widening."""
ROLLOUTS = (
    "mcts-rollouts:learned:rollout=2",
    "mcts:learned+world",
    "mcts-rollouts:learned:rollout=2+world",
)
"""Beside ``mcts:learned``, which has none."""
SCRATCH = ("evolutionary+gbdt:scratch", "mcts:learned+gbdt:scratch")
"""With a cost model that has learned nothing, as TVM's."""
LLM = "mcts:llm"
LLM_ABLATIONS = ("mcts:llm:history=3", "mcts:llm:branching=4")
"""Beside ``mcts:llm``, which has 2 of either."""
_TITLE = "Tree search and its proposers on the kernels of the Reasoning Compiler paper"


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(KERNELS))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument(
        "--ablations",
        default=",".join([*BRANCHING, *ROLLOUTS, *SCRATCH]),
        help="sides with fewer trials",
    )
    parser.add_argument("--llm", default="", metavar="MODEL@URL", help="adds the language model")
    parser.add_argument("--cost-model", default="default", help="of sides that name none")
    parser.add_argument("--trials", type=int, default=SAMPLES[-1])
    parser.add_argument("--ablation-trials", type=int, default=200, help="--trials at most")
    parser.add_argument("--batch", type=int, default=BATCH, help="of sides of ours without @N")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed-list", type=_numbers, metavar="S[,S...]", help="these very seeds")
    parser.add_argument(
        "--with",
        dest="earlier",
        type=lambda text: [Path(name) for name in _names(text)],
        default=[],
        metavar="FILE[,FILE...]",
        help="published results of other seeds",
    )
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for a single run")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/mcts"))
    parser.add_argument("--page", default="mcts", help="name of what --write writes")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args(arguments)


def _with_batch(name: str, batch: int) -> str:
    """A side's name with the batch of this call, if it has no other one and takes one."""
    (side,) = sides_of([name], ["default"])
    return name if side.is_peer or side.batch else f"{name}@{batch}"


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    seeds = options.seed_list or list(range(options.seeds))
    where = conditions("mcts", seeds)
    sides, ablations = _names(options.sides), _names(options.ablations)
    if options.llm:
        sides.append(LLM)
        ablations += LLM_ABLATIONS
    sides, ablations = (
        list(dict.fromkeys(_with_batch(name, options.batch) for name in some))
        for some in (sides, ablations)
    )
    ablations = [name for name in ablations if name not in sides]
    kernels = options.workloads.split(",")
    earlier = [read_json(path) for path in options.earlier]
    expect_as_long(options.trials, earlier)
    fewer = min(options.ablation_trials, options.trials)
    result = run_bench(
        kernels,
        [*sides, *ablations],
        options.trials,
        seeds,
        own_trials=dict.fromkeys(ablations, fewer),
        cost_models=[options.cost_model],
        hardware=where.hardware,
        work_dir=options.work_dir,
        timeout_s=options.timeout,
        state=state_of_side,
        llm=options.llm,
        progress=say,
    )
    (plain,) = sides_of([EVOLUTION], [options.cost_model])
    full, less = (sides_of(some, [options.cost_model]) for some in (sides, ablations))
    result["states"] = {
        replace(side, batch=None).name: state_of_side(side)
        for side in [*full, *less]
        if not side.is_peer
    }
    result = together(result, earlier)
    runs = named(result["runs"], plain.cost_model, options.batch)
    samples = sorted({n for n in SAMPLES if n < options.trials} | {options.trials, fewer})
    names = [
        [name_of(side, plain.cost_model, options.batch) for side in some] for some in (full, less)
    ]
    for run in runs:
        # What was published before may have sides that this call does not name.
        if not any(run["side"] in some for some in names):
            names[run.get("budget", options.trials) < options.trials].append(run["side"])
    result["mcts"] = {
        "samples": samples,
        "ablation_trials": fewer,
        "speedups": speedups(runs, samples),
        "families": families(runs, names[1], [count for count in samples if count <= fewer]),
        "references": [
            {
                "side": reference,
                "over": over_reference(runs, samples, reference),
                "early": early(runs, options.trials, reference),
                "reaching": reaching(runs, options.trials, reference),
            }
            for reference in (EVOLUTION, PEER)
            if any(run["side"] == reference for run in runs)
        ],
        "effort": {"batch": options.batch},
        "overhead": effort(
            [
                {"workload": kernel, "side": name_of(side, plain.cost_model, options.batch), **row}
                for kernel in kernels
                for side in ([*full, *less] if kernel == kernels[-1] else full)
                # A call that only runs a part of it leaves this to the one that writes the page.
                if options.write and not side.is_peer and ":llm" not in side.strategy
                for row in overhead_alone(kernel, where.hardware, side)
            ],
            earlier,
        ),
    }
    page = body(result, names[0], names[1], fewer)
    publish(options.page, _TITLE, page, result, where.end(), options.write)


if __name__ == "__main__":
    main()
