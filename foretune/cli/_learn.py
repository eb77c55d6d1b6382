"""``foretune train``, ``foretune eval`` and ``foretune rankers``: models that learn from data."""

from __future__ import annotations

import argparse
import logging
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune.cli._files import check_files, files_named
from foretune.cli._options import (
    add_cluster,
    add_command,
    add_devices,
    devices_asked_for,
    parse_options,
    require_cluster,
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
    train.add_argument(
        "--programs",
        type=int,
        metavar="N",
        help="learn from N programs per group at most, drawn uniformly",
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
        "--on-all-hardware",
        action="store_true",
        help="use only workloads that were measured on all the hardware",
    )
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
        "--split-seed",
        type=int,
        metavar="N",
        help="seeds the split, the order of equal scores and the intervals (default 0): with "
        "another one than models were chosen by, a figure owes nothing to the choice",
    )
    judge.add_argument(
        "--programs",
        type=int,
        metavar="N",
        help="learn from N programs per group at most, drawn uniformly; all are tested",
    )
    judge.add_argument(
        "--allow-seen",
        action="store_true",
        help="judge a FILE.npz on workloads that it was trained on, too",
    )
    add_cluster(judge, "its cores train, one ranker each")
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
    add_devices(parser)
    parser.add_argument(
        "--hardware", metavar="KEY[,KEY...]", help="use only what was measured on these"
    )
    parser.add_argument(
        "--exclude",
        "--holdout",
        action="append",
        default=[],
        metavar="X[,X...]",
        help="leave out workloads (keys or names, `*` allowed) or operator kinds; may be repeated, "
        "and a name that has commas is given by itself",
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
        help="where models that read programs, if only while they learn, keep what they read for "
        "later calls",
    )


def _train(args: argparse.Namespace) -> int:
    from foretune.evaluate import check_output, provenance_path, thinned, train

    require_seed(args.seed)
    if not 0 <= args.validation < 1:
        raise BadInputError(
            f"`0 <= validation < 1` must hold, but got --validation {args.validation}"
        )
    check_output(args.output)
    check_files(
        {"-o": [args.output, provenance_path(args.output)]},
        {
            "--data": files_named(args.data),
            "--option": files_named(*args.option),
            "--devices": args.devices,
        },
    )
    options = parse_options(args.option)
    ranker = _create(args, args.seed, options)
    data, groups = _read(args)
    if args.programs is not None:
        groups = thinned(groups, args.programs, args.seed)
    say(f"training {args.model} on {len(groups)} groups of {', '.join(data.paths)}")
    # How far the training is, which may take hours, without --verbose too.
    logging.getLogger("foretune.cost").setLevel(logging.INFO)
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
    if done.scores.get("fallback"):
        say(
            f"of {done.scores['programs']} programs to be scored by a language model, "
            f"{done.scores['fallback']} were scored by formulas instead"
        )
    print(
        f"{args.output}: {args.model}, trained in {done.train_s:.1f} s on {done.groups} groups "
        f"({len(done.training_workloads)} workloads, {done.programs} programs), stopped by "
        f"{done.validation_groups} others; see {provenance_path(args.output)}"
    )
    return 0


def _eval(args: argparse.Namespace) -> int:
    from foretune.cluster import open_cluster
    from foretune.evaluate import (
        NONE,
        check_request,
        evaluate,
        print_evaluation,
        provenance_path,
    )

    trained = args.model.endswith(_WEIGHTS)
    by = args.split or (NONE if trained else _SPLIT)
    require_seed(args.split_seed or 0, "split-seed")
    if trained and args.split_seed is not None:
        raise BadInputError(
            f"{args.model} is tested as a whole, but got --split-seed {args.split_seed}: leave it "
            "out"
        )
    check_request(trained, by, args.folds, args.seeds, args.programs)
    require_cluster(args)
    if trained and args.cluster is not None:
        raise BadInputError(
            f"a cluster trains, and {args.model} is trained, but got --cluster {args.cluster}: "
            "leave it out"
        )
    model = files_named(args.model)
    check_files(
        {"--json": args.json},
        {
            "MODEL": [*model, *map(provenance_path, model)],
            "--data": files_named(args.data),
            "--option": files_named(*args.option),
            "--devices": args.devices,
        },
    )
    options = parse_options(args.option)
    if trained and (options or args.features_cache is not None):
        raise BadInputError(
            f"{args.model} is used as it was trained, but got --option or --features-cache: "
            "leave them out"
        )
    # Unknown names and options are refused before data is read.
    ranker = _load(Path(args.model)) if trained else _create(args, 0, options)
    data, groups = _read(args)
    if args.on_all_hardware:
        data, groups = _on_all_hardware(data, groups)
    trained_on = _provenance(args, groups) if trained else None
    with ExitStack() as stack:
        nodes = None if args.cluster is None else stack.enter_context(open_cluster(args.cluster))
        result = evaluate(
            ranker if trained else lambda seed: _create(args, seed, options),
            groups,
            by,
            folds=args.folds,
            seeds=args.seeds,
            split_seed=args.split_seed or 0,
            programs=args.programs,
            model=args.model,
            data=data.paths,
            skipped=data.skipped,
            progress=say,
            cluster=nodes,
        )
    result |= {
        "command": shlex.join(["foretune", *args.given]),
        "options": options,
        "trained_on": trained_on,
    }
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

    needs = rankers.needs(args.model)
    needs.refuse_text(args.model, options)
    if args.features_cache is not None and needs.folder:
        options = {**options, "cache": args.features_cache}
    return rankers.create(args.model, seed=seed, **options)


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

    data = read_data(split_names(args.data), devices_asked_for(args))
    hardware = () if args.hardware is None else split_names(args.hardware)
    return data, select(data.groups, hardware, _excluded(args.exclude, data.groups))


def _excluded(values: Sequence[str], groups: Sequence[Group]) -> list[str]:
    """What to leave out; a value that is a name or a key as it stands is not cut at its commas."""
    from foretune.evaluate import called

    known = {name for group in groups for name in called(group)}
    excluded: list[str] = []
    for value in values:
        excluded += [value] if value in known else split_names(value)
    return excluded


def _on_all_hardware(
    data: MeasuredData, groups: Sequence[Group]
) -> tuple[MeasuredData, list[Group]]:
    """Groups that can be judged on all hardware; those that cannot be at all are counted."""
    from foretune.evaluate import keep_judgeable, measured_everywhere

    kept, few = keep_judgeable(groups)
    return replace(data, skipped=Counter(data.skipped) + few), measured_everywhere(kept)


def _provenance(args: argparse.Namespace, groups: Sequence[Group]) -> dict[str, Any] | None:
    """What the weights were trained on, None if that is not known; refuses seen workloads."""
    from foretune.evaluate import read_provenance

    weights = Path(args.model)
    known: Provenance | None
    try:
        known = read_provenance(weights)
    except BadInputError:
        if not args.allow_seen:
            raise
        known = None
    if known is None:
        return None
    if not args.allow_seen:
        known.refuse_seen(groups, weights)
    return {**known.to_json(), "seen_groups": len(known.seen(groups))}
