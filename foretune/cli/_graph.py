"""``foretune graph``: a graph network that ranks the configurations of a whole network."""

from __future__ import annotations

import argparse
import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune.cli._files import check_files, check_writable
from foretune.cli._graph_collect import add_graph_collect
from foretune.cli._options import Parser, add_command, parse_options, require_seed, say
from foretune.errors import BadInputError, listed

if TYPE_CHECKING:
    from foretune.tgraph import TGraph

_WEIGHTS = ".npz"
_SHOWN = 10
"""Rows of a ranking that are printed."""
RANK_SCHEMA = "foretune.graph.rank/1"


def add_graph(commands: Any) -> None:
    """Adds the command, with commands of its own, to the parser."""
    text = "rank the configurations of whole networks with a graph network"
    graph = commands.add_parser("graph", help=text, description=text)
    own = graph.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    add_graph_collect(own)
    _add_train(own)
    _add_eval(own)
    _add_rank(own)


def _add_train(commands: Any) -> None:
    train = add_command(commands, "train", _train, "train a graph network on measured graphs")
    _add_data(train)
    train.add_argument(
        "--config",
        default="corrected",
        metavar="NAME",
        help="corrected (default), or of the research package published or variants, see "
        "docs/tgraph.md",
    )
    train.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.npz")
    _add_training(train)


def _add_eval(commands: Any) -> None:
    judge = add_command(
        commands, "eval", _eval, "judge a graph network on what it has not learned from"
    )
    judge.add_argument(
        "model",
        metavar="NAME|FILE.npz",
        help="published or corrected, trained anew on each part, or what `graph train` wrote",
    )
    _add_data(judge)
    judge.add_argument(
        "--split",
        metavar="S",
        help="graph (the default of a NAME), configuration, or none (of a FILE.npz)",
    )
    judge.add_argument(
        "--folds", type=int, metavar="K", help="parts of the graphs or configurations (default 5)"
    )
    _add_training(judge)
    judge.add_argument("--json", type=Path, metavar="FILE", help="result as foretune.graph/1")


def _add_rank(commands: Any) -> None:
    rank = add_command(commands, "rank", _rank, "order the configurations of one graph")
    rank.add_argument("graph", type=Path, metavar="GRAPH.npz", help="run times are not needed")
    rank.add_argument(
        "--weights", type=Path, required=True, metavar="FILE.npz", help="of `graph train`"
    )
    rank.add_argument("--json", type=Path, metavar="FILE", help=f"result as {RANK_SCHEMA}")


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="PATH",
        help="a file or folder of TpuGraphs: .npz, or a raw .pb",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seeds everything random")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the configuration, for example epochs=200; may be repeated",
    )


def _train(args: argparse.Namespace) -> int:
    import numpy as np

    from foretune.plans import calibrated
    from foretune.tgraph import fold_figures, named, read_graphs, train, whole

    require_seed(args.seed)
    _require_weights(args.output, "-o")
    check_files({"-o": args.output}, {"--data": args.data})
    config = named(args.config, parse_options(args.option))
    graphs = read_graphs(args.data)
    parts = [whole(graph, config.dedup) for graph in graphs]
    without = [part.graph.name for part in parts if not part.orderable]
    if without and len(without) < len(parts):
        say(f"left out, without an order of run times: {listed(without, 4)}")
    say(f"training {args.config} on {len(parts) - len(without)} graphs of {args.data}")
    # How far the training is, which may take hours, without --verbose too.
    logging.getLogger("foretune.tgraph").setLevel(logging.INFO)
    model = calibrated(train(parts, config, name=args.config, seed=args.seed), parts, args.seed)
    model.save(args.output, shlex.join(["foretune", *args.given]))
    figures = fold_figures(model.members)
    validated = (
        "without validation (one network)"
        if np.isnan(figures["all"])
        else f"validated {figures['all']:.3f} by all members, {figures['best_four']:.3f} by the "
        "best four"
    )
    print(
        f"{args.output}: {args.config}, {len(model.members)} members for {model.kind} graphs, "
        f"{len(model.kept)} of them score; {validated}"
    )
    return 0


def _eval(args: argparse.Namespace) -> int:
    from foretune.tgraph import NONE, evaluate, judge_all, load, named, read_graphs
    from foretune.tgraph.evaluate import FOLDS

    require_seed(args.seed)
    trained = args.model.endswith(_WEIGHTS)
    weights = [Path(args.model)] if trained else []
    check_files({"--json": args.json}, {"MODEL": weights, "--data": args.data})
    if trained:
        _refuse_training(args, NONE)
        model = _load(load, weights[0])
        result = judge_all(model, read_graphs(args.data), seed=args.seed)
        seen = [one["name"] for one in result["graphs"] if one["seen"]]
        if seen:
            say(f"{args.model} learned from networks of this data: {listed(seen, 4)}")
    else:
        config = named(args.model, parse_options(args.option))
        folds = FOLDS if args.folds is None else args.folds
        result = evaluate(
            args.model,
            config,
            read_graphs(args.data),
            args.split or "graph",
            folds=folds,
            seed=args.seed,
            progress=say,
        )
    result |= {
        "model": args.model,
        "data": str(args.data),
        "command": shlex.join(["foretune", *args.given]),
    }
    if args.json is not None:
        write_json(args.json, result)
    _print_result(result)
    return 0


def _rank(args: argparse.Namespace) -> int:
    import numpy as np

    from foretune.tgraph import load, read_graphs

    check_files({"--json": args.json}, {"GRAPH": args.graph, "--weights": args.weights})
    check_writable(args.json)
    model = _load(load, args.weights)
    graphs = read_graphs(args.graph)
    if len(graphs) != 1:
        raise BadInputError(
            f"one graph is ranked at a time, but {args.graph} has {len(graphs)}: give one file"
        )
    scores = model.score(graphs[0])
    order = np.argsort(scores, kind="stable")
    if args.json is not None:
        write_json(
            args.json,
            {
                "schema": RANK_SCHEMA,
                "model": str(args.weights),
                "graph": str(args.graph),
                "kind": model.kind,
                "nodes": len(graphs[0].nodes),
                "configurations": len(scores),
                "order": order.tolist(),
                "scores": scores.tolist(),
                "command": shlex.join(["foretune", *args.given]),
            },
        )
    print(f"{graphs[0].name}: {len(scores)} configurations, expected fastest first")
    for place, row in enumerate(order[:_SHOWN], start=1):
        print(f"{place:4}  configuration {row:6}  score {scores[row]: .4f}")
    return 0


def _load(load: Any, weights: Path) -> TGraph:
    if not weights.is_file():
        raise BadInputError(
            f"there is no file {weights}: give one that `foretune graph train` wrote"
        )
    model: TGraph = load(weights)
    return model


def _require_weights(path: Path, option: str) -> None:
    if path.suffix != _WEIGHTS:
        raise BadInputError(f"weights are an {_WEIGHTS} file, but got {option} {path}")


def _refuse_training(args: argparse.Namespace, none: str) -> None:
    """Refuses what concerns training beside weights that are trained."""
    if args.split not in (None, none):
        raise BadInputError(
            f"{args.model} is judged as a whole, but got --split {args.split}: give --split {none}"
        )
    if args.option or args.folds is not None:
        raise BadInputError(
            f"{args.model} is used as it was trained, but got --option or --folds: leave them out"
        )


def _print_result(result: dict[str, Any]) -> None:
    names = list(result["metrics"])
    print(f"{'graph':40} {'configs':>8} " + " ".join(f"{name:>11}" for name in names))
    for one in result["graphs"]:
        figures = " ".join(f"{one[name]:11.4f}" for name in names)
        print(f"{one['name'][-40:]:40} {one['configurations']:8} {figures}")
    means = " ".join(f"{result['metrics'][name]['mean']:11.4f}" for name in names)
    print(f"{'mean':40} {'':8} {means}")
    for reason, graphs in result["skipped"].items():
        print(f"left out, {reason}: {listed(graphs, 4)}")
