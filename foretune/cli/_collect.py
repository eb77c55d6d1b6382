"""``foretune collect``."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from foretune.cli._files import same_place
from foretune.cli._options import (
    add_cluster,
    add_command,
    add_journal,
    require_cluster,
    require_seed,
    require_temporary_files,
)
from foretune.errors import BadInputError

_HOUR_S = 3600.0


def add_collect(commands: Any) -> None:
    """Adds the command to the parser."""
    collect = add_command(
        commands, "collect", _collect, "measure many schedules of many workloads, to learn from"
    )
    collect.add_argument(
        "--workloads",
        default="training",
        metavar="W[,W...]",
        help="INPUTs, comma-separated; `training` is the built-in list (the default), "
        "`training:KIND` what it has of an operator kind, and the directory of a data set the "
        "workloads in it",
    )
    collect.add_argument(
        "--targets",
        metavar="T[;T...]",
        help="targets, separated by semicolons; default: what this machine can stand for",
    )
    collect.add_argument(
        "--threads", metavar="N[,N...]", help="numbers of threads; default: 1 and all cores"
    )
    collect.add_argument(
        "--programs",
        type=int,
        default=92,
        metavar="N",
        help="programs per workload and hardware (default 92)",
    )
    collect.add_argument(
        "--uniform",
        type=int,
        metavar="N",
        help="how many of those are drawn uniformly (default 52 %% of those not predicted)",
    )
    collect.add_argument(
        "--predicted",
        type=int,
        default=0,
        metavar="N",
        help="how many are what the default search proposes, the others evolve (default 0)",
    )
    collect.add_argument(
        "--rounds",
        type=int,
        default=2,
        metavar="N",
        help="in how many batches those not drawn uniformly come (default 2)",
    )
    collect.add_argument(
        "--cost-model",
        default="gbdt:scratch",
        metavar="C",
        help="says where to evolve to, see `foretune cost-models` (default gbdt:scratch, so that "
        "what learns from the data does not depend on what others learned before; with `default` "
        "the data has what searches of today measure)",
    )
    add_journal(collect)
    collect.add_argument(
        "--known", type=Path, metavar="DATA", help="a data set whose programs count as measured"
    )
    add_cluster(collect, "nodes of this machine's processor measure, each for itself")
    other = collect.add_mutually_exclusive_group()
    other.add_argument(
        "--pack", action="store_true", help="write what was collected as a data set, with -o"
    )
    other.add_argument("--audit", action="store_true", help="measure a share of the records again")
    other.add_argument(
        "--reread",
        action="store_true",
        help="measure again all that was collected and has no reading that nothing disturbed",
    )
    collect.add_argument(
        "--share",
        type=float,
        default=0.02,
        metavar="SHARE",
        help="of the records that --audit measures again (default 0.02)",
    )
    collect.add_argument(
        "--min-age",
        type=float,
        default=_HOUR_S,
        metavar="SECONDS",
        help="--audit leaves younger records for later (default 3600)",
    )
    collect.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where --pack writes the data set"
    )


def _collect(args: argparse.Namespace) -> int:
    _refuse_settings(args)
    require_temporary_files()
    from foretune.collect import collect_command
    from foretune.tuning import resolve_names

    _, args.cost_model = resolve_names("default", args.cost_model)
    return collect_command(args)


def _refuse_settings(args: argparse.Namespace) -> None:
    """Everything that can be refused is refused before anything is measured."""
    require_seed(args.seed)
    require_cluster(args)
    if args.cluster is not None and (args.pack or args.audit or args.reread):
        raise BadInputError(
            f"a cluster collects, but got --cluster {args.cluster} with --pack, --audit or "
            "--reread: leave one of them out"
        )
    if args.programs < 2:
        raise BadInputError(f"`programs >= 2` must hold, but got --programs {args.programs}")
    if args.uniform is not None and not 2 <= args.uniform <= args.programs:
        raise BadInputError(
            f"`2 <= uniform <= programs` must hold, but got --uniform {args.uniform} and "
            f"--programs {args.programs}: lower the one or raise the other"
        )
    if args.rounds < 1:
        raise BadInputError(
            f"`rounds >= 1` must hold, but got --rounds {args.rounds}: with 1 all that evolve are "
            "one batch"
        )
    if args.time is not None and not (args.time > 0 and math.isfinite(args.time)):
        raise BadInputError(f"`time > 0` must hold and be finite, but got --time {args.time}")
    if not 0 < args.share <= 1:
        raise BadInputError(f"`0 < share <= 1` must hold, but got --share {args.share}")
    if not args.min_age >= 0:
        raise BadInputError(f"`min-age >= 0` must hold, but got --min-age {args.min_age}")
    if args.pack and args.output is None:
        raise BadInputError("`--pack` writes a data set and needs its directory: add -o DIR")
    if args.output is not None and same_place(args.output, args.work_dir):
        raise BadInputError(
            f"-o {args.output} is the --work-dir as well: choose another place for the data set"
        )
    if args.output is not None and not args.pack:
        raise BadInputError(f"-o is where --pack writes, but got -o {args.output}: add --pack")
