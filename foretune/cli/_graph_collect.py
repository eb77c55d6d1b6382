"""``foretune graph collect``."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from foretune.cli._files import same_place
from foretune.cli._options import (
    add_command,
    add_journal,
    probe_hardware,
    require_seed,
    require_temporary_files,
)
from foretune.errors import BadInputError


def add_graph_collect(commands: Any) -> None:
    """Adds the command to those of ``foretune graph``."""
    collect = add_command(
        commands, "collect", _collect, "measure plans of whole networks, to learn from"
    )
    collect.add_argument(
        "--networks",
        default="catalog",
        metavar="W[,W...]",
        help="INPUTs, comma-separated; `catalog` is all networks of the catalog (the default), "
        "@FILE a list with one a line",
    )
    collect.add_argument(
        "--plans",
        type=int,
        default=200,
        metavar="N",
        help="plans of each network (default 200): half are random, half bred from the fastest",
    )
    collect.add_argument(
        "--threads", type=int, metavar="N", help="threads that kernels run on (default: all cores)"
    )
    add_journal(collect)
    collect.add_argument(
        "--pack", action="store_true", help="write what was collected as TpuGraphs' .npz, with -o"
    )
    collect.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where --pack writes its folders"
    )


def _collect(args: argparse.Namespace) -> int:
    require_seed(args.seed)
    if args.plans < 4:
        raise BadInputError(f"`plans >= 4` must hold, but got --plans {args.plans}")
    if args.time is not None and not (args.time > 0 and math.isfinite(args.time)):
        raise BadInputError(f"`time > 0` must hold and be finite, but got --time {args.time}")
    if args.pack != (args.output is not None):
        raise BadInputError("`--pack` and `-o DIR` go together: give both, or none of them")
    if args.output is not None and same_place(args.output, args.work_dir):
        raise BadInputError(
            f"-o {args.output} is the --work-dir as well: choose another place for the files"
        )
    from foretune.plans.command import collect_command

    if args.pack:
        return collect_command(args, None)
    require_temporary_files()
    args.target = None
    return collect_command(args, probe_hardware(args))
