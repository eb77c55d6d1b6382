"""``foretune db``: journals and other stores, looked into and exchanged."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune.cli._files import check_files
from foretune.cli._options import (
    Parser,
    add_command,
    add_hardware,
    probe_hardware,
)
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.records import Store


def add_db(commands: Any) -> None:
    """Adds the command to the parser."""
    db = commands.add_parser("db", help="look into, export, import and merge journals and stores")
    actions = db.add_subparsers(required=True, metavar="ACTION", parser_class=Parser)
    info = add_command(actions, "info", _db_info, "what a journal holds")
    info.add_argument("journal", metavar="JOURNAL", help="a journal, a work directory or a URL")
    best = add_command(actions, "best", _db_best, "the best record of each workload")
    best.add_argument("journal", metavar="JOURNAL")
    best.add_argument("--json", type=Path, metavar="FILE")
    export = add_command(actions, "export", _db_export, "write a MetaSchedule JSON database")
    export.add_argument("journal", metavar="JOURNAL")
    export.add_argument("directory", type=Path, metavar="DIRECTORY")
    export.add_argument(
        "--top", type=int, default=0, metavar="K", help="only the best K of each workload"
    )
    export.add_argument(
        "--hardware", metavar="KEY", help="needed where the journal holds several, see `db info`"
    )
    load = add_command(actions, "import", _db_import, "read a MetaSchedule JSON database")
    load.add_argument("directory", type=Path, metavar="DIRECTORY")
    load.add_argument("journal", metavar="JOURNAL")
    add_hardware(load)
    merge = add_command(actions, "merge", _db_merge, "append what other journals hold")
    merge.add_argument("journal", metavar="JOURNAL", help="appended to")
    merge.add_argument("others", nargs="+", metavar="OTHER")


def _existing(place: str) -> Store:
    """A journal, that of a work directory, or a store on a server, to be read."""
    from foretune.records import is_url, open_store

    if is_url(place):
        return open_store(place, read_only=True)
    file = _target(Path(place))
    if not file.is_file():
        raise BadInputError(f"there is no journal at {file}: give a journal or a work directory")
    return open_store(file, read_only=True)


def _appended_to(place: str) -> Store:
    """The same, to be written; a journal is made where there is none."""
    from foretune.records import is_url, open_store

    return open_store(place if is_url(place) else _target(Path(place)))


def _target(path: Path) -> Path:
    """The journal to append to: of a directory the one it has, else one as of `tune`."""
    from foretune.collect import collector
    from foretune.tuning import JOURNAL

    if not path.is_dir():
        return path
    places = (path / JOURNAL, path / collector.JOURNAL)
    return next((place for place in places if place.is_file()), places[0])


def _db_info(args: argparse.Namespace) -> int:
    from foretune.records import print_info

    with _existing(args.journal) as store:
        print_info(store)
    return 0


def _db_best(args: argparse.Namespace) -> int:
    from foretune.records import best_of_each, is_url

    read = None if is_url(args.journal) else {"JOURNAL": _target(Path(args.journal))}
    check_files({"--json": args.json}, read)
    with _existing(args.journal) as store:
        bests = best_of_each(store)
        workloads = store.workloads()
        for record in bests:
            known = workloads.get(record.workload)
            name = known.name if known is not None else record.workload
            print(f"{record.measurement.best_s or 0.0:12.3e} s  {name}  {record.hardware}")
    if args.json is not None:
        write_json(args.json, [record.to_json() for record in bests])
    return 0


def _db_export(args: argparse.Namespace) -> int:
    from foretune.records import export_metaschedule

    if args.top < 0:
        raise BadInputError(
            f"`top >= 0` must hold, but got --top {args.top}: how many of each workload, 0 for all"
        )
    with _existing(args.journal) as store:
        print(
            export_metaschedule(store, args.directory, top=args.top or None, hardware=args.hardware)
        )
    return 0


def _db_import(args: argparse.Namespace) -> int:
    from foretune.records import add_missing, import_metaschedule

    hardware = probe_hardware(args)
    outcome = import_metaschedule(args.directory, hardware)
    with _appended_to(args.journal) as store:
        store.write([hardware, *outcome.workloads])
        added = add_missing(store, outcome.records)
    print(f"{outcome}; {added} records were new")
    return 0


def _db_merge(args: argparse.Namespace) -> int:
    from foretune.records import merge

    with contextlib.ExitStack() as stack:
        # All are opened first: what cannot be read is found out before anything is written.
        sources = [stack.enter_context(_existing(other)) for other in args.others]
        store = stack.enter_context(_appended_to(args.journal))
        for source in sources:
            print(f"{source.name}: {merge(store, source)} records added")
    return 0
