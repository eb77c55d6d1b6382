"""Commands that only show something: the report, the hardware, and lists of names."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune.cli._files import check_files, files_named
from foretune.cli._options import add_command, add_hardware, open_llm, probe_hardware
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.hardware import Hardware


def add_report(commands: Any) -> None:
    """Adds the command to the parser."""
    report = add_command(commands, "report", _report, "write the HTML page of a work directory")
    report.add_argument("work_dir", type=Path, metavar="WORK_DIR")
    report.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: WORK_DIR/report.html"
    )


def add_probe(commands: Any) -> None:
    """Adds the command to the parser."""
    hardware = add_command(
        commands, "hardware", _hardware, "what was probed, and the TVM target chosen"
    )
    add_hardware(hardware)
    hardware.add_argument(
        "--devices",
        nargs="?",
        const="",
        metavar="FILE.json",
        help="list the devices that are known by their data sheets instead, or those of a file",
    )
    hardware.add_argument(
        "--extract",
        type=Path,
        metavar="SHEET.txt",
        help="have the language model of --llm propose an entry from the text of a data sheet",
    )
    hardware.add_argument(
        "--llm", metavar="MODEL@URL", help="language model for --extract; see docs/llm.md"
    )
    hardware.add_argument(
        "-o", "--output", type=Path, metavar="FILE.json", help="the proposal as a file of devices"
    )
    hardware.add_argument("--json", type=Path, metavar="FILE", help="the same as JSON")


def add_lists(commands: Any) -> None:
    """Adds the commands to the parser."""
    add_command(commands, "workloads", _workloads, "list the catalog")
    add_command(commands, "strategies", _strategies, "list the strategies")
    add_command(commands, "cost-models", _cost_models, "list the cost models")


def _report(args: argparse.Namespace) -> int:
    from foretune.report import write_report
    from foretune.tuning import JOURNAL, RESULT, TRANSCRIPT

    data = _read_result(args.work_dir)
    output = args.output or args.work_dir / "report.html"
    own = [args.work_dir / name for name in (RESULT, JOURNAL, TRANSCRIPT)]
    check_files({"-o": output}, {"a file of the run": own})
    write_report(data, output)
    print(output)
    return 0


def _read_result(work_dir: Path) -> Any:
    from foretune.tuning import RESULT

    path = work_dir / RESULT
    try:
        if not path.is_file():
            raise BadInputError(
                f"{work_dir} holds no {RESULT}: give the work directory of a `foretune tune` run"
            )
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(
            f"{path} cannot be read ({error.strerror or error}): check its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(
            f"{path} is not a JSON file ({error}): run `foretune tune` again"
        ) from error


def _hardware(args: argparse.Namespace) -> int:
    from foretune.report import print_hardware

    check_files(
        {"--json": args.json, "-o": args.output},
        {"--devices": files_named(args.devices, args.llm), "--extract": args.extract},
    )
    _refuse_mixture(args)
    if args.extract is not None:
        return _extract(args)
    if args.devices is not None:
        return _devices(args)
    hardware = probe_hardware(args, measure=True)
    print_hardware(hardware)
    print(f"device: {_called(hardware)}")
    if args.json is not None:
        write_json(args.json, hardware.to_json())
    return 0


def _refuse_mixture(args: argparse.Namespace) -> None:
    """Refuses options that have nothing to do with each other."""
    if args.extract is None and (args.llm is not None or args.output is not None):
        raise BadInputError("--llm and -o are for --extract SHEET.txt: add it, or leave them out")
    if args.extract is not None and args.llm is None:
        raise BadInputError(
            "--extract has a language model read the text: name one with --llm MODEL@URL"
        )
    asked = "--extract" if args.extract is not None else "--devices"
    unused = {"--target": args.target, "--threads": args.threads}
    if args.extract is not None:
        unused |= {"--devices": args.devices, "--json": args.json}
    for option, value in unused.items():
        if value is not None and (args.extract is not None or args.devices is not None):
            raise BadInputError(f"{asked} makes no use of {option}: leave it out")


def _extract(args: argparse.Namespace) -> int:
    from foretune.describe.data_sheet import propose
    from foretune.report import print_proposal

    try:
        text = args.extract.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"{args.extract} cannot be read as text ({error}): give the text of a data sheet, for "
            "example of `pdftotext`"
        ) from error
    with contextlib.closing(open_llm(args.llm)) as session:
        proposal = propose(text, session, args.extract.name)
    print_proposal(proposal)
    if args.output is not None:
        write_json(args.output, proposal.to_json())
        print(f"{args.output}: read it against the data sheet, then give it with --devices")
    return 0


def _called(hardware: Hardware) -> str:
    """What is known of the processor by its data sheet."""
    from foretune.hardware import device_of

    try:
        device = device_of(hardware)
    except BadInputError as error:
        return str(error)
    if device.key == hardware.key:
        return "as probed, its name is not in the table (`foretune hardware --devices`)"
    return f"{device.key} of the table ({device.source})"


def _devices(args: argparse.Namespace) -> int:
    from foretune.hardware import known_devices, read_devices
    from foretune.report import print_devices

    devices = read_devices(args.devices) if args.devices else known_devices()
    print_devices(devices)
    if args.json is not None:
        write_json(args.json, devices.to_json())
    return 0


def _workloads(args: argparse.Namespace) -> int:
    from foretune.workload import catalog

    for entry in catalog.entries():
        print(f"{entry.group:9} {entry.name:28} {entry.description}")
    for pattern in catalog.PATTERNS.values():
        print(f"{'sized':9} {pattern}")
    return 0


def _strategies(args: argparse.Namespace) -> int:
    from foretune import search
    from foretune.tuning import resolve_names

    print(f"{'default':14} {resolve_names('default', 'default')[0]}: what `tune` uses")
    for name, text in search.descriptions().items():
        print(f"{name:14} {text}")
    print(f"{'metaschedule':14} TVM's own tuner, in `bench` only")
    print("\nproposers, for strategies that edit programs (--proposer):")
    for name, text in search.proposers.descriptions().items():
        print(f"{name:14} {text}")
    return 0


def _cost_models(args: argparse.Namespace) -> int:
    from foretune import cost
    from foretune.tuning import resolve_names

    print(f"{'default':14} {resolve_names('default', 'default')[1]}: what `tune` uses")
    for name, text in cost.descriptions().items():
        print(f"{name:14} {text}")
    print(f"{'FILE.npz':14} What `foretune train` wrote, with trees on top of it.")
    return 0
