"""``foretune explain``."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from foretune._files import write_json
from foretune.cli._files import check_files, files_named
from foretune.cli._options import (
    add_command,
    add_hardware,
    parse_shapes,
    probe_hardware,
    say,
)
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from foretune.explain import Explanation, Kernel
    from foretune.hardware import Device

_TOP = 5
"""Kernels that are shown unless more are asked for; JSON has as many."""


def add_explain(commands: Any) -> None:
    """Adds the command to the parser."""
    explain = add_command(
        commands, "explain", _explain, "what bounds a kernel, how far it is from that, what to try"
    )
    explain.add_argument(
        "source",
        metavar="WORK_DIR|A.so|INPUT",
        help="the best kernels of a run, those of an artifact, or of a model before tuning",
    )
    explain.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=D,D,...",
        help="the shape of an input of a model; may be repeated",
    )
    explain.add_argument("--task", metavar="NAME", help="one kernel, by name or key")
    explain.add_argument(
        "--top", type=int, default=_TOP, metavar="N", help=f"the N heaviest (default {_TOP})"
    )
    explain.add_argument(
        "--device",
        metavar="NAME",
        help="explain for another device than the kernel's own; see `foretune hardware --devices`",
    )
    explain.add_argument(
        "--devices", type=Path, metavar="FILE.json", help="devices that the table lacks"
    )
    explain.add_argument(
        "--counters", action="store_true", help="count with perf beside what is predicted"
    )
    add_hardware(explain)
    explain.add_argument("--json", type=Path, metavar="FILE", help="as foretune.explain/1")


def _explain(args: argparse.Namespace) -> int:
    from foretune.explain import SCHEMA, print_explanations

    if args.top < 1:
        raise BadInputError(f"`top >= 1` must hold, but got --top {args.top}")
    check_files(
        {"--json": args.json},
        {"--devices": args.devices, "the source": _files_of(args.source)},
    )
    explained, left_out = _explanations(args)
    data = {
        "schema": SCHEMA,
        "source": args.source,
        "kernels": [one.to_json() for one in explained],
        "left_out": left_out,
    }
    if args.json is not None:
        write_json(args.json, data)
    print_explanations(explained, left_out)
    return 0


def _files_of(source: str) -> list[Path]:
    """What a source consists of, which is not written over."""
    from foretune.collect import collector
    from foretune.graph import artifact_files
    from foretune.tuning import JOURNAL, RESULT, TRANSCRIPT

    place = Path(source)
    if place.is_dir():
        return [place / name for name in (JOURNAL, RESULT, TRANSCRIPT, collector.JOURNAL)]
    return artifact_files(place) if place.suffix == ".so" else files_named(source)


def _explanations(args: argparse.Namespace) -> tuple[list[Explanation], dict[str, str]]:
    place = Path(args.source)
    if place.is_dir():
        return _of_directory(args, place)
    if place.suffix == ".so":
        if args.device or args.counters:
            raise BadInputError(
                "an artifact holds what was said of its kernels when it was made, but got --device "
                "or --counters: explain the work directory of its run"
            )
        from foretune.explain import of_artifact

        found = of_artifact(place, args.task)
        found.sort(key=lambda one: -(one.seconds or one.predicted_s) * one.weight)
        return found[: args.top], {}
    return _of_input(args)


def _of_directory(
    args: argparse.Namespace, place: Path
) -> tuple[list[Explanation], dict[str, str]]:
    from foretune.collect import collector
    from foretune.explain import of_journal
    from foretune.tuning import JOURNAL

    journals = [place / JOURNAL, place / collector.JOURNAL]
    journal = next((each for each in journals if each.is_file()), None)
    if journal is None:
        raise BadInputError(
            f"{place} holds no journal: give the work directory of a `foretune tune` run"
        )
    kernels, unmeasured = of_journal(journal, args.task, args.top)
    explained, left_out = _explained(args, kernels)
    return explained, {**dict.fromkeys(unmeasured, "nothing of it could be measured"), **left_out}


def _of_input(args: argparse.Namespace) -> tuple[list[Explanation], dict[str, str]]:
    from foretune.explain import of_source
    from foretune.workload import load_input

    hardware = probe_hardware(args, measure=False)
    source = load_input(args.source, shapes=parse_shapes(args.shape))
    kernels, without = of_source(source, hardware, args.task)
    if not kernels:
        reasons = "; ".join(f"{name}: {why}" for name, why in without.items())
        raise BadInputError(f"{args.source} has no kernel that can be explained ({reasons})")
    # Which are heavy is not known before they are judged.
    explained, left_out = _explained(args, kernels, advice=len(kernels) <= args.top)
    order = sorted(
        range(len(explained)), key=lambda i: -explained[i].predicted_s * explained[i].weight
    )[: args.top]
    if len(kernels) > args.top:
        by_key = {kernel.key: kernel for kernel in kernels}
        heavy = [by_key[explained[i].key] for i in order]
        explained, again = _explained(args, heavy)
        return explained, {**without, **left_out, **again}
    return [explained[i] for i in order], {**without, **left_out}


def _explained(
    args: argparse.Namespace, kernels: Sequence[Kernel], advice: bool = True
) -> tuple[list[Explanation], dict[str, str]]:
    """Explanations on the device that is meant, with counters where they are asked for."""
    from foretune.explain import explain_each

    device = _device(args, kernels)
    explained, left_out = explain_each(kernels, device, advice)
    if not args.counters or not advice:
        return explained, left_out
    from foretune.explain import NoCountersError, counted

    by_key = {kernel.key: kernel for kernel in kernels}
    for place, one in enumerate(explained):
        try:
            explained[place] = dataclasses.replace(one, counted=counted(by_key[one.key]))
        except NoCountersError as error:
            say(f"no counters: {error}")
            break
    return explained, left_out


def _device(args: argparse.Namespace, kernels: Sequence[Kernel]) -> Device:
    from foretune.hardware import device, device_of, read_devices

    extra = None if args.devices is None else read_devices(args.devices)
    if args.device is not None:
        return device(args.device, extra)
    return device_of(kernels[0].candidate.hardware)
