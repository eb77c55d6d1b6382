"""``foretune train``, ``foretune eval`` and ``foretune rankers``: models that learn from data."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune.cli._options import (
    add_command,
    check_writable,
    parse_options,
    require_seed,
    say,
    split_names,
)
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.cost import Ranker
    from foretune.dataset import Group
    from foretune.evaluate import MeasuredData, Provenance

_WEIGHTS = ".npz"
_SPLIT = "workload"


def add_train(commands: Any) -> None:
    """Adds the command to the parser."""
    train = add_command(commands, "train", _train, "train a ranker on measured data")
    train.add_argument("model", metavar="MODEL", help="see `foretune rankers`")
    _add_data(train)
    train.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE.npz",
        help="the weights; what they were trained on goes into FILE.json",
    )
    train.add_argument("--seed", type=int, default=0, metavar="N", help="seeds everything random")
    train.add_argument(
        "--validation",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="workloads held out to stop early by (default 0.1)",
    )


def add_eval(commands: Any) -> None:
    """Adds the command to the parser."""
    judge = add_command(
        commands, "eval", _eval, "judge a ranker on workloads that it has not learned from"
    )
    judge.add_argument(
        "model",
        metavar="MODEL|FILE.npz",
        help="a name (see `foretune rankers`), trained anew on each split, or what `train` wrote",
    )
    _add_data(judge)
    judge.add_argument(
        "--split",
        metavar="S",
        help="workload (the default), kind, hardware, hardware_seen, or none for a FILE.npz",
    )
    judge.add_argument(
        "--folds", type=int, metavar="K", help="parts of the workloads or kinds (default 5)"
    )
    judge.add_argument(
        "--seeds", type=int, default=1, metavar="K", help="train with seeds 0 to K-1 (default 1)"
    )
    judge.add_argument(
        "--allow-seen",
        action="store_true",
        help="judge a FILE.npz on workloads that it was trained on, too",
    )
    judge.add_argument("--json", type=Path, metavar="FILE", help="result as foretune.eval/1")


def add_rankers(commands: Any) -> None:
    """Adds the command to the parser."""
    add_command(commands, "rankers", _rankers, "list the models that `train` and `eval` take")


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        required=True,
        metavar="PATH[,PATH...]",
        help="data sets of `foretune collect`, or logs and databases of other tools",
    )
    parser.add_argument(
        "--hardware", metavar="KEY[,KEY...]", help="use only what was measured on these"
    )
    parser.add_argument(
        "--exclude",
        "--holdout",
        metavar="X[,X...]",
        help="leave out workloads (keys or names, `*` allowed) or operator kinds",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the model; may be repeated",
    )
    parser.add_argument(
        "--features-cache",
        type=Path,
        metavar="DIR",
        help="where models that read programs keep their features for later calls",
    )


def _train(args: argparse.Namespace) -> int:
    from foretune.evaluate import provenance_path, train

    require_seed(args.seed)
    if not 0 <= args.validation < 1:
        raise BadInputError(
            f"`0 <= validation < 1` must hold, but got --validation {args.validation}"
        )
    if args.output.suffix != _WEIGHTS:
        raise BadInputError(
            f"weights are a {_WEIGHTS} file, but got -o {args.output}: name it weights{_WEIGHTS}"
        )
    check_writable(args.output)
    options = parse_options(args.option)
    ranker = _create(args, args.seed, options)
    data, groups = _read(args)
    say(f"training {args.model} on {len(groups)} groups of {', '.join(data.paths)}")
    done = train(
        ranker,
        groups,
        args.output,
        name=args.model,
        options=options,
        seed=args.seed,
        command=shlex.join(["foretune", *args.given]),
        data=data.paths,
        skipped=data.skipped,
        validation=args.validation,
    )
    print(
        f"{args.output}: {args.model}, trained in {done.train_s:.1f} s on {done.groups} groups "
        f"({len(done.training_workloads)} workloads, {done.programs} programs), stopped by "
        f"{done.validation_groups} others; see {provenance_path(args.output)}"
    )
    return 0


def _eval(args: argparse.Namespace) -> int:
    from foretune.evaluate import NONE, check_request, evaluate, print_evaluation

    trained = args.model.endswith(_WEIGHTS)
    by = args.split or (NONE if trained else _SPLIT)
    check_request(trained, by, args.folds, args.seeds)
    check_writable(args.json)
    options = parse_options(args.option)
    if trained and (options or args.features_cache is not None):
        raise BadInputError(
            f"{args.model} is used as it was trained, but got --option or --features-cache: "
            "leave them out"
        )
    # Unknown names and options are refused before data is read.
    ranker = _load(Path(args.model)) if trained else _create(args, 0, options)
    data, groups = _read(args)
    seen = _provenance(args, groups) if trained else {}
    result = evaluate(
        ranker if trained else lambda seed: _create(args, seed, options),
        groups,
        by,
        folds=args.folds,
        seeds=args.seeds,
        model=args.model,
        data=data.paths,
        skipped=data.skipped,
        progress=say,
    )
    result |= {"command": shlex.join(["foretune", *args.given]), "options": options, **seen}
    if args.json is not None:
        write_json(args.json, result)
    print_evaluation(result)
    return 0


def _rankers(args: argparse.Namespace) -> int:
    from foretune.cost import rankers

    for name, text in rankers.descriptions().items():
        print(f"{name:18} {text}")
    return 0


def _create(args: argparse.Namespace, seed: int, options: dict[str, Any]) -> Ranker:
    from foretune.cost import rankers

    ranker = rankers.create(args.model, seed=seed, **options)
    if args.features_cache is None or not ranker.reads_programs:
        return ranker
    return rankers.create(args.model, seed=seed, **{**options, "cache": args.features_cache})


def _load(weights: Path) -> Ranker:
    from foretune.cost import rankers

    if not weights.is_file():
        raise BadInputError(
            f"there is no file {weights}: give one that `foretune train` wrote, or the name of a "
            "model (see `foretune rankers`)"
        )
    return rankers.load(weights)


def _read(args: argparse.Namespace) -> tuple[MeasuredData, list[Group]]:
    from foretune.evaluate import read_data, select

    data = read_data(split_names(args.data))
    return data, select(data.groups, _listed(args.hardware), _listed(args.exclude))


def _listed(text: str | None) -> Sequence[str]:
    return () if text is None else split_names(text)


def _provenance(args: argparse.Namespace, groups: Sequence[Group]) -> dict[str, Any]:
    """What the weights were trained on, as a field of the result; refuses seen workloads."""
    from foretune.evaluate import read_provenance

    weights = Path(args.model)
    found: Provenance | None
    try:
        found = read_provenance(weights)
    except BadInputError:
        if not args.allow_seen:
            raise
        found = None
    if found is None:
        return {"trained_on": None}
    if not args.allow_seen:
        found.refuse_seen(groups, weights)
    return {"trained_on": {**found.to_json(), "seen_groups": len(found.seen(groups))}}
