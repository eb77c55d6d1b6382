"""What several commands share: options, and the checks of what was given for them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from foretune._files import no_temporary_files
from foretune._options import option_value
from foretune._store_url import without_credentials
from foretune.cli._stores import open_asked_for
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.graph import Plan
    from foretune.hardware import Devices, Hardware
    from foretune.llm import Session
    from foretune.records import Store

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C or SIGTERM ended."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and exits with 2."""

    def error(self, message: str) -> NoReturn:
        """Ends the program."""
        told = without_credentials(message)
        self.exit(2, f"foretune: {told} (see `{self.prog} --help`)\n")


def add_command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    """Adds a command that ``run(args)`` carries out; ``text`` is its help."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=run)
    return parser


def add_input(parser: argparse.ArgumentParser) -> None:
    """INPUT, with the shapes of a model whose inputs have none."""
    parser.add_argument(
        "input", metavar="INPUT", help="catalog name, file.onnx, file.pt2 or file.py:function"
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=D,D,...",
        help="fixes the shape of an input of a model with dynamic shapes; may be repeated",
    )
    parser.add_argument(
        "--until",
        metavar="NAME[,NAME...]",
        help="works on the part of a model that computes these tensors",
    )


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """The hardware to work for; ``probe_hardware`` reads it."""
    parser.add_argument("--target", metavar="T", help="preset or TVM target; default: this machine")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="default: all cores of the affinity mask"
    )


def add_journal(parser: argparse.ArgumentParser) -> None:
    """Adds what every collection takes: its time, its seed and where it is kept."""
    parser.add_argument(
        "--time", type=float, metavar="SECONDS", help="stop after this; go on with the same command"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seeds everything random")
    parser.add_argument(
        "--work-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="journal of the measurements; resumed if present",
    )


def add_devices(parser: argparse.ArgumentParser) -> None:
    """A file of devices; ``devices_asked_for`` reads it."""
    parser.add_argument(
        "--devices",
        type=Path,
        metavar="FILE.json",
        help="data sheets of devices that the table lacks; see docs/devices.md",
    )


def add_remote(parser: argparse.ArgumentParser) -> None:
    """Devices elsewhere; ``probe_hardware`` notes their place."""
    parser.add_argument(
        "--device",
        dest="remote",
        action="append",
        default=[],
        metavar="rpc://TRACKER:PORT/KEY",
        help="measure on devices elsewhere, which --target describes; also rpc://HOST:PORT of one "
        "server; several behind each other with commas, or repeated; see docs/remote.md",
    )


def add_cluster(parser: argparse.ArgumentParser, what: str) -> None:
    """A Ray cluster; ``what`` says what is done there."""
    parser.add_argument(
        "--cluster",
        metavar="ray://HEAD:10001",
        help=f"{what}; also local for the spare cores of this machine; see docs/remote.md",
    )


def require_cluster(args: argparse.Namespace) -> None:
    """Refuses an address of a cluster that cannot be read, before anything takes time."""
    if args.cluster is not None:
        from foretune.cluster import parse_cluster

        parse_cluster(args.cluster)


def devices_asked_for(args: argparse.Namespace) -> Devices | None:
    """The devices of the file that was given, if one was."""
    if args.devices is None:
        return None
    from foretune.hardware import read_devices

    return read_devices(args.devices)


def read_plan(path: Path | None) -> Plan | None:
    """What is chosen for operators: ``network.plan`` of a result, by itself or in it.

    Raises:
        BadInputError: The file cannot be read, or holds something else.
    """
    if path is None:
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        data = data["network"]["plan"] if "network" in data else data
        return {
            str(name): {str(operator): str(choice) for operator, choice in chosen.items()}
            for name, chosen in data.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError(
            f"--plan must be a result of `foretune tune --json` for a network, or its "
            f"network.plan, but {path} is not ({type(error).__name__}): "
            '{"algorithms": {"conv2d 1x56x56x64, 3x3x64x64": "direct"}}'
        ) from error


def probe_hardware(args: argparse.Namespace, measure: bool = False) -> Hardware:
    """The hardware asked for; its number of threads becomes that of TVM's runtime."""
    from foretune.hardware import probe

    if args.threads is not None and args.threads < 1:
        raise BadInputError(f"`threads >= 1` must hold, but got threads={args.threads}")
    place = _place(args)
    hardware = probe(args.target, threads=args.threads, measure=measure)
    hardware = replace(hardware, place=place) if place else hardware
    # TVM's runtime takes half the cores unless told otherwise before its pool starts.
    os.environ["TVM_NUM_THREADS"] = str(hardware.threads)
    return hardware


def _place(args: argparse.Namespace) -> str:
    """What records know the devices by that are asked for; empty where none is."""
    if not getattr(args, "remote", None):
        return ""
    from foretune.measure import parse_devices, place_of

    return place_of(parse_devices(args.remote))


def open_llm(text: str) -> Session:
    """The language model asked for, with the server and the key that the environment names."""
    from foretune.llm import open_session

    return open_session(text, environment=os.environ)


def llm_identity(text: str) -> str:
    """What tells the language model asked for from others; the environment may hold its address."""
    from foretune.llm import identity

    return identity(text, environment=os.environ)


def open_store(given: str | None) -> Store | None:
    """The store asked for, by the option or the environment, or the user's own."""
    return open_asked_for(given, environment=os.environ)


def require_temporary_files() -> None:
    """Programs that are measured leave what they should compute in files that have no name."""
    try:
        tempfile.gettempdir()
    except OSError as error:
        raise no_temporary_files(error) from error


def require_seed(seed: int, option: str = "seed") -> None:
    """Refuses a negative seed."""
    if seed < 0:
        raise BadInputError(f"`{option} >= 0` must hold, but got --{option} {seed}")


_LARGEST_EXTENT = 2**31
"""Kernels index with 32 bits where they can."""


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """``["x=1,3,224,224"]`` → ``{"x": (1, 3, 224, 224)}``."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, dims = text.partition("=")
        try:
            shape = tuple(int(d) for d in dims.split(","))
        except ValueError:
            raise BadInputError(
                f"a shape reads NAME=D,D,..., but got --shape {text[:200]}: for example "
                "x=1,3,224,224"
            ) from None
        if not all(0 <= extent < _LARGEST_EXTENT for extent in shape):
            raise BadInputError(
                f"`0 <= D < {_LARGEST_EXTENT}` must hold, but got --shape {text[:200]}"
            )
        if shapes.setdefault(name, shape) != shape:
            raise BadInputError(
                f"an input has one shape, but got --shape {name}="
                f"{','.join(map(str, shapes[name]))} and --shape {text}: leave one of them out"
            )
    return shapes


def parse_passes(texts: Sequence[str]) -> tuple[str, ...]:
    """Names of the passes that do not run: ``["layouts=off"]`` → ``("layouts",)``."""
    from foretune.graph import require_passes

    switches: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        require_passes([name])
        if value not in ("on", "off"):
            raise BadInputError(f"a pass is on or off, but got --pass {text}: say {name}=off")
        if switches.setdefault(name, value) != value:
            raise BadInputError(f"--pass {name} is both on and off: leave one of them out")
    return tuple(sorted(name for name, value in switches.items() if value == "off"))


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """``["depth=6", "loss=rank"]`` → ``{"depth": 6, "loss": "rank"}``: JSON where it is."""
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name == "seed":
            raise BadInputError(
                f"an option reads NAME=VALUE, but got --option {text}: for example depth=6; a seed "
                "is given by the command's own option"
            )
        parsed = option_value(value)
        if options.setdefault(name, parsed) != parsed:
            raise BadInputError(
                f"an option has one value, but got --option {name}={options[name]} and --option "
                f"{text}: leave one of them out"
            )
    return options


def parse_until(text: str | None) -> tuple[str, ...]:
    """Names of the tensors to cut at; none where the option is left out."""
    return () if text is None else tuple(split_names(text))


def split_names(text: str) -> list[str]:
    """``"a, b"`` → ``["a", "b"]``."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadInputError(f"a comma-separated list of names is needed, but got {text!r}")
    return names


def say(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)
