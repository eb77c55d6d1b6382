"""``foretune db``: journals, looked into and exchanged."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from foretune._files import write_json
from foretune.cli._options import (
    Parser,
    add_command,
    add_hardware,
    check_writable,
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
    from foretune.collect import collector
    from foretune.tuning import JOURNAL

    found = path
    if path.is_dir():
        # A directory of `tune`, or of `collect`.
        places = (path / JOURNAL, path / collector.JOURNAL)
        found = next((place for place in places if place.is_file()), places[0])
    if not found.is_file():
        raise BadInputError(f"there is no journal at {found}: give a journal or a work directory")
    return found


def _db_info(args: argparse.Namespace) -> int:
    from foretune.records import Journal, print_info

    with Journal(_journal_path(args.journal), read_only=True) as journal:
        print_info(journal)
    return 0


def _db_best(args: argparse.Namespace) -> int:
    from foretune.records import Journal, best_of_each

    check_writable(args.json)
    with Journal(_journal_path(args.journal), read_only=True) as journal:
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

    with Journal(_journal_path(args.journal), read_only=True) as journal:
        print(
            export_metaschedule(
                journal, args.directory, top=args.top or None, hardware=args.hardware
            )
        )
    return 0


def _db_import(args: argparse.Namespace) -> int:
    from foretune.records import Journal, add_missing, import_metaschedule
    from foretune.tuning import JOURNAL

    hardware = probe_hardware(args)
    target = args.journal / JOURNAL if args.journal.is_dir() else args.journal
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
    from foretune.tuning import JOURNAL

    others = [_journal_path(other) for other in args.others]
    into = args.journal / JOURNAL if args.journal.is_dir() else args.journal
    with Journal(into) as journal:
        for other in others:
            with Journal(other, read_only=True) as source:
                print(f"{other}: {merge(journal, source)} records added")
    return 0
