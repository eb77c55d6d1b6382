"""``foretune bench`` and ``foretune compare``: against other tuners, against other engines."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from foretune._files import write_json
from foretune.cli._files import check_files, files_named
from foretune.cli._options import (
    add_cluster,
    add_command,
    add_hardware,
    add_input,
    open_llm,
    parse_shapes,
    parse_until,
    probe_hardware,
    require_cluster,
    require_temporary_files,
    say,
    split_names,
)
from foretune.engines import ENGINES
from foretune.errors import BadInputError, NothingMeasuredError, WrongResultError


def add_bench(commands: Any) -> None:
    """Adds the command to the parser."""
    bench = add_command(commands, "bench", _bench, "compare strategies on workloads")
    bench.add_argument(
        "--workloads", required=True, metavar="W[,W...]", help="INPUTs, comma-separated"
    )
    bench.add_argument(
        "--strategies",
        required=True,
        metavar="S[,S...]",
        help="strategies, with their proposers and options as mcts:heuristic:branching=4; "
        "S+C is a strategy with a cost model of its own, S@N or S+C@N one with batches of N; "
        "`metaschedule` is TVM's tuner",
    )
    bench.add_argument(
        "--cost-models",
        default="default",
        metavar="C[,C...]",
        help="cost models to cross with the strategies that name none",
    )
    bench.add_argument(
        "--llm",
        metavar="MODEL@URL",
        help="language model of strategies with the proposer `llm`, such as mcts:llm; as in `tune`",
    )
    bench.add_argument("--trials", type=int, required=True, metavar="N", help="trials of each run")
    bench.add_argument("--seeds", type=int, default=1, metavar="K", help="runs with seeds 0 to K-1")
    bench.add_argument(
        "--json",
        type=Path,
        required=True,
        metavar="FILE",
        help="result as foretune.bench/1; an unfinished one is resumed",
    )
    add_hardware(bench)
    add_cluster(bench, "nodes of this machine's processor make the runs")


def add_compare(commands: Any) -> None:
    """Adds the command to the parser."""
    compare = add_command(commands, "compare", _compare, "compare an artifact with other engines")
    add_input(compare)
    compare.add_argument(
        "--artifact", type=Path, required=True, metavar="A.so", help="what `tune -o` wrote"
    )
    compare.add_argument(
        "--against", default="eager", metavar="E[,E...]", help=f"of {', '.join(ENGINES)}"
    )
    compare.add_argument("--json", type=Path, metavar="FILE", help="result as foretune.compare/1")
    compare.add_argument("--rounds", type=int, default=15, metavar="N", help="interleaved rounds")
    add_hardware(compare)


def _bench(args: argparse.Namespace) -> int:
    from foretune.bench import print_bench, run_bench
    from foretune.cluster import open_cluster

    inputs = files_named(args.workloads, args.strategies, args.cost_models, args.llm)
    check_files({"--json": args.json}, {"an input": inputs})
    require_temporary_files()
    if args.trials < 1 or args.seeds < 1:
        raise BadInputError(
            f"`trials >= 1` and `seeds >= 1` must hold, but got {args.trials} and {args.seeds}"
        )
    require_cluster(args)
    if args.llm is not None and args.cluster is not None:
        raise BadInputError(
            f"a language model is asked from this machine, but got --cluster {args.cluster}: leave "
            "--llm or --cluster out"
        )
    if args.llm is not None:
        # Each run opens it anew: what cannot work is refused here.
        open_llm(args.llm).close()
    with ExitStack() as stack:
        nodes = None if args.cluster is None else stack.enter_context(open_cluster(args.cluster))
        data = run_bench(
            split_names(args.workloads),
            split_names(args.strategies),
            trials=args.trials,
            seeds=args.seeds,
            cost_models=split_names(args.cost_models),
            hardware=probe_hardware(args, measure=True),
            path=args.json,
            llm=args.llm or "",
            progress=say,
            cluster=nodes,
        )
    print_bench(data)
    return 0


def _compare(args: argparse.Namespace) -> int:
    from foretune.engines import compare
    from foretune.graph import Artifact, artifact_files
    from foretune.report import print_comparison
    from foretune.workload import Model, load_input

    check_files(
        {"--json": args.json},
        {"INPUT": files_named(args.input), "--artifact": artifact_files(args.artifact)},
    )
    # Says what is wrong with it before other engines start.
    manifest = Artifact.load(args.artifact).manifest
    until = parse_until(args.until) or tuple(manifest.get("until", ()))
    source = load_input(args.input, shapes=parse_shapes(args.shape), until=until)
    if not isinstance(source, Model):
        raise BadInputError(
            f"{args.input} is a single workload, and other engines run models: "
            "compare a model, or use `foretune bench` for a workload"
        )
    hardware = probe_hardware(args)
    results = compare(
        source,
        args.artifact,
        split_names(args.against),
        threads=hardware.threads,
        rounds=args.rounds,
        progress=say,
    )
    data = {
        "schema": "foretune.compare/1",
        "input": args.input,
        "hardware": hardware.to_json(),
        "latency_s": {name: result.to_json() for name, result in results.items()},
        "max_abs_error": {name: result.max_abs_error for name, result in results.items()},
    }
    if args.json is not None:
        write_json(args.json, data)
    print_comparison(data)
    own = results["foretune"]
    if own.median is None:
        raise NothingMeasuredError(f"the artifact {args.artifact} could not be timed: {own.error}")
    if own.within_tolerance is False:
        raise WrongResultError(
            f"the artifact {args.artifact} does not compute what {args.input} does: "
            f"{own.difference or own.max_abs_error}; compile it again from this input"
        )
    return 0
