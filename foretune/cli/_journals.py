"""``foretune db``: journals, looked into and exchanged."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from foretune._files import write_json
from foretune.cli._files import check_files
from foretune.cli._options import (
    Parser,
    add_command,
    add_hardware,
    probe_hardware,
)
from foretune.errors import BadInputError


def add_db(commands: Any) -> None:
    """Adds the command to the parser."""
    db = commands.add_parser("db", help="look into, export, import and merge journals")
    actions = db.add_subparsers(required=True, metavar="ACTION", parser_class=Parser)
    info = add_command(actions, "info", _db_info, "what a journal holds")
    info.add_argument("journal", type=Path, metavar="JOURNAL", help="a journal or a work directory")
    best = add_command(actions, "best", _db_best, "the best record of each workload")
    best.add_argument("journal", type=Path, metavar="JOURNAL")
    best.add_argument("--json", type=Path, metavar="FILE")
    export = add_command(actions, "export", _db_export, "write a MetaSchedule JSON database")
    export.add_argument("journal", type=Path, metavar="JOURNAL")
    export.add_argument("directory", type=Path, metavar="DIRECTORY")
    export.add_argument(
        "--top", type=int, default=0, metavar="K", help="only the best K of each workload"
    )
    export.add_argument(
        "--hardware", metavar="KEY", help="needed where the journal holds several, see `db info`"
    )
    load = add_command(actions, "import", _db_import, "read a MetaSchedule JSON database")
    load.add_argument("directory", type=Path, metavar="DIRECTORY")
    load.add_argument("journal", type=Path, metavar="JOURNAL")
    add_hardware(load)
    merge = add_command(actions, "merge", _db_merge, "append what other journals hold")
    merge.add_argument("journal", type=Path, metavar="JOURNAL", help="appended to")
    merge.add_argument("others", type=Path, nargs="+", metavar="OTHER")


def _journal_path(path: Path) -> Path:
    found = _target(path)
    if not found.is_file():
        raise BadInputError(f"there is no journal at {found}: give a journal or a work directory")
    return found


def _target(path: Path) -> Path:
    """The journal to append to: of a directory the one it has, else one as of `tune`."""
    from foretune.collect import collector
    from foretune.tuning import JOURNAL

    if not path.is_dir():
        return path
    places = (path / JOURNAL, path / collector.JOURNAL)
    return next((place for place in places if place.is_file()), places[0])


def _db_info(args: argparse.Namespace) -> int:
    from foretune.records import Journal, print_info

    with Journal(_journal_path(args.journal), read_only=True) as journal:
        print_info(journal)
    return 0


def _db_best(args: argparse.Namespace) -> int:
    from foretune.records import Journal, best_of_each

    path = _journal_path(args.journal)
    check_files({"--json": args.json}, {"JOURNAL": path})
    with Journal(path, read_only=True) as journal:
        bests = best_of_each(journal)
        for record in bests:
            known = journal.workloads().get(record.workload)
            name = known.name if known is not None else record.workload
            print(f"{record.measurement.best_s or 0.0:12.3e} s  {name}  {record.hardware}")
    if args.json is not None:
        write_json(args.json, [record.to_json() for record in bests])
    return 0


def _db_export(args: argparse.Namespace) -> int:
    from foretune.records import Journal, export_metaschedule

    if args.top < 0:
        raise BadInputError(
            f"`top >= 0` must hold, but got --top {args.top}: how many of each workload, 0 for all"
        )
    with Journal(_journal_path(args.journal), read_only=True) as journal:
        print(
            export_metaschedule(
                journal, args.directory, top=args.top or None, hardware=args.hardware
            )
        )
    return 0


def _db_import(args: argparse.Namespace) -> int:
    from foretune.records import Journal, add_missing, import_metaschedule

    hardware = probe_hardware(args)
    target = _target(args.journal)
    outcome = import_metaschedule(args.directory, hardware)
    with Journal(target) as journal:
        journal.add_hardware(hardware)
        for workload in outcome.workloads:
            journal.add_workload(workload)
        added = add_missing(journal, outcome.records)
    print(f"{outcome}; {added} records were new")
    return 0


def _db_merge(args: argparse.Namespace) -> int:
    from foretune.records import Journal, merge

    others = [_journal_path(other) for other in args.others]
    into = _target(args.journal)
    with Journal(into) as journal:
        for other in others:
            with Journal(other, read_only=True) as source:
                print(f"{other}: {merge(journal, source)} records added")
    return 0
