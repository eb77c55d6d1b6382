"""``foretune device``: serves this machine to tuners elsewhere."""

from __future__ import annotations

import argparse
import re
from typing import Any

from foretune.cli._options import Parser, add_command
from foretune.errors import BadInputError

_PORT, _TRACKER_PORT = 9090, 9190


def add_device(commands: Any) -> None:
    """Adds the commands to the parser."""
    text = "serves this machine to tuners elsewhere"
    device = commands.add_parser("device", help=text, description=text)
    actions = device.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    serve = add_command(
        actions, "serve", _serve, "runs an RPC server, and a tracker if wanted, until Ctrl-C"
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="listen at this address (default 127.0.0.1: reachable from this machine only). RPC "
        "lets whoever connects run any code: open it in trusted networks only",
    )
    serve.add_argument(
        "--port", type=int, default=_PORT, metavar="N", help=f"of the server (default {_PORT})"
    )
    serve.add_argument(
        "--key", default="", metavar="KEY", help="what kind of device this is, for the tracker"
    )
    trackers = serve.add_mutually_exclusive_group()
    trackers.add_argument(
        "--tracker", metavar="HOST:PORT", help="announce the device to this tracker"
    )
    trackers.add_argument(
        "--start-tracker",
        type=int,
        nargs="?",
        const=_TRACKER_PORT,
        metavar="PORT",
        help=f"start a tracker, too (default port {_TRACKER_PORT}), and announce the device there",
    )
    serve.add_argument(
        "--announce", metavar="ADDRESS", help="where others reach this device (default: --host)"
    )
    serve.add_argument(
        "--threads", type=int, metavar="N", help="default: all cores of the affinity mask"
    )


def _serve(args: argparse.Namespace) -> int:
    from foretune.hardware import usable_cores
    from foretune.measure.transport.serve import LOOPBACK, ServePlan, serve

    cores = usable_cores()
    threads = cores if args.threads is None else args.threads
    if not 1 <= threads <= cores:
        raise BadInputError(
            f"`1 <= threads <= {cores}` must hold on this machine, but got --threads {threads}"
        )
    tracker = _tracker(args)
    if tracker is not None and not args.key:
        raise BadInputError(
            "a tracker knows devices by keys, but there is none: give one with --key, for example "
            "--key raspberry-pi-5"
        )
    if args.key and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", args.key):
        raise BadInputError(
            "a key has letters, digits, dots, dashes and underscores, at most 64, but got --key "
            f"{args.key[:80]!r}"
        )
    wildcard = args.host in ("0.0.0.0", "::")
    if wildcard and args.start_tracker is not None and args.announce is None:
        raise BadInputError(
            f"a tracker started here must be told where others reach this device, but --host "
            f"{args.host} names no address: add --announce ADDRESS"
        )
    plan = ServePlan(
        host=args.host,
        port=args.port,
        key=args.key,
        tracker=tracker,
        own_tracker=args.start_tracker is not None,
        announce=args.announce or (None if wildcard else args.host),
        threads=threads,
    )
    if plan.loopback and tracker is not None and not tracker[0].startswith(LOOPBACK):
        raise BadInputError(
            f"a device that the tracker {tracker[0]} tells others of must listen where they reach "
            f"it, but got --host {args.host}: give --host with this machine's address"
        )
    if plan.loopback:
        print(f"listening at {plan.host} only: other machines cannot reach it (see --host)")
    else:
        print(f"listening at {plan.host}: whoever reaches it can run any code here")
    serve(plan, lambda line: print(line, flush=True))
    return 0


def _tracker(args: argparse.Namespace) -> tuple[str, int] | None:
    if args.start_tracker is not None:
        own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(args.host, args.host)
        return own, args.start_tracker
    if args.tracker is None:
        return None
    host, _, port = args.tracker.removeprefix("rpc://").rpartition(":")
    if not host or not port.isdecimal() or "@" in host:
        raise BadInputError("a tracker reads HOST:PORT, for example --tracker 192.168.1.5:9190")
    return host.strip("[]"), int(port)
