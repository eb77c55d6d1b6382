"""``foretune explain``."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from foretune._files import write_json
from foretune.cli._files import check_files, files_named
from foretune.cli._options import (
    add_command,
    add_devices,
    add_hardware,
    devices_asked_for,
    parse_shapes,
    probe_hardware,
    say,
)
from foretune.errors import BadInputError, listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from foretune.explain import Explanation, Kernel
    from foretune.hardware import Device, Devices, Hardware

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
    add_devices(explain)
    explain.add_argument(
        "--counters", action="store_true", help="count with perf beside what is predicted"
    )
    add_hardware(explain)
    explain.add_argument("--json", type=Path, metavar="FILE", help="as foretune.explain/1")


def _explain(args: argparse.Namespace) -> int:
    from foretune.explain import SCHEMA, print_explanations

    if args.top < 1:
        raise BadInputError(f"`top >= 1` must hold, but got --top {args.top}")
    if args.counters and args.device:
        raise BadInputError(
            f"--counters counts on this machine, but got --device {args.device}, too: leave one of "
            "them out"
        )
    check_files(
        {"--json": args.json},
        {"--devices": args.devices, "the source": _files_of(args.source)},
    )
    explained, left_out, notes = _explanations(args)
    if not explained:
        reasons = [" ".join(f"{name}: {why}".split()) for name, why in left_out.items()]
        raise BadInputError(
            f"{args.source} has no kernel that can be explained: "
            + (listed(reasons, 3) or "nothing is computed in it but views of its inputs")
        )
    data = {
        "schema": SCHEMA,
        "source": args.source,
        "kernels": [one.to_json() for one in explained],
        "left_out": left_out,
        "notes": notes,
    }
    if args.json is not None:
        write_json(args.json, data)
    print_explanations(explained, left_out, notes=notes)
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


def _explanations(
    args: argparse.Namespace,
) -> tuple[list[Explanation], dict[str, str], list[str]]:
    """The heaviest kernels, what was left out, and what is to be known of all of them."""
    place = Path(args.source)
    if not place.is_dir() and place.suffix != ".so":
        return _of_input(args)
    given = {"--target": args.target, "--threads": args.threads, "--shape": args.shape or None}
    for option, value in given.items():
        if value is not None:
            raise BadInputError(
                f"{option} is for models, but {args.source} has kernels that were made for their "
                "hardware: leave it out, or explain the model"
            )
    if place.is_dir():
        return _of_directory(args, place)
    if args.device or args.devices or args.counters:
        raise BadInputError(
            "an artifact holds what was said of its kernels when it was made, but got --device, "
            "--devices or --counters: explain the work directory of its run"
        )
    from foretune.explain import of_artifact

    explanations = of_artifact(place, args.task)
    explanations.sort(key=_heaviness)
    return explanations[: args.top], {}, _notes(explanations[: args.top])


def _of_directory(
    args: argparse.Namespace, place: Path
) -> tuple[list[Explanation], dict[str, str], list[str]]:
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
    judge = _Judge(args, [kernel.hardware for kernel in kernels])
    explained, left_out = _explained(args, judge.judged(kernels), judge)
    explained.sort(key=_heaviness)
    without = dict.fromkeys(unmeasured, "nothing of it could be measured")
    if args.task is None:
        without = _untouched(place, journal) | without
    return explained, without | left_out, _notes(explained, judge)


def _untouched(place: Path, journal: Path) -> dict[str, str]:
    """Operators of a run that are not in its journal."""
    from foretune.records import Journal
    from foretune.tuning import RESULT

    try:
        names = json.loads((place / RESULT).read_text(encoding="utf-8"))["untuned_operators"]
        names = [str(name) for name in names]
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # A run that was cut off has no result.
    with Journal(journal, read_only=True) as records:
        known = {workload.name for workload in records.workloads().values()}
    reason = "the run left it as it was: it is no tensor program that can be tuned"
    return {name: reason for name in names if name not in known}


def _of_input(
    args: argparse.Namespace,
) -> tuple[list[Explanation], dict[str, str], list[str]]:
    from foretune.explain import of_source
    from foretune.workload import load_input

    hardware = probe_hardware(args)
    judge = _Judge(args, [hardware])
    source = load_input(args.source, shapes=parse_shapes(args.shape))
    kernels, left_out = of_source(source, hardware, args.task)
    if kernels and args.device is None and judge.lacks(hardware):
        say(f"no data sheet has {hardware.name!r}: measuring its peaks, which takes some seconds")
        judge.knows(probe_hardware(args, measure=True))
    # Which are heavy is not known before they are judged.
    few = len(kernels) <= args.top
    explained, without = _explained(args, kernels, judge, advice=few)
    explained.sort(key=_heaviness)
    if not few:
        by_key = {kernel.key: kernel for kernel in kernels}
        heavy = [by_key[one.key] for one in explained[: args.top]]
        explained, again = _explained(args, heavy, judge)
        without |= again
    return explained, left_out | without, _notes(explained, judge)


def _heaviness(one: Explanation) -> float:
    return -(one.seconds or one.predicted_s) * one.weight


def _explained(
    args: argparse.Namespace, kernels: Sequence[Kernel], judge: _Judge, advice: bool = True
) -> tuple[list[Explanation], dict[str, str]]:
    """Explanations, with counters where they are asked for."""
    from foretune.explain import explain_each

    explained, left_out = explain_each(kernels, judge.device_for, advice)
    if not args.counters or not advice:
        return explained, left_out
    from foretune.explain import NoCountersError, counted

    by_key = {(kernel.key, kernel.hardware.key): kernel for kernel in kernels}
    for place, one in enumerate(explained):
        try:
            kernel = by_key[one.key, one.hardware]
            explained[place] = dataclasses.replace(one, counted=counted(kernel))
        except NoCountersError as error:
            say(f"no counters: {error}")
            break
    return explained, left_out


class _Judge:
    """Which device each kernel is judged for: its own, or the one that was asked for.

    Args:
        args: With ``device`` and ``devices``.
        hardware: Of the kernels that are explained.

    Raises:
        BadInputError: The device is not known, or of another kind than all kernels.
    """

    def __init__(self, args: argparse.Namespace, hardware: Sequence[Hardware]) -> None:
        from foretune.hardware import device

        self._extra: Devices | None = devices_asked_for(args)
        self._hardware = {each.key: each for each in hardware}
        self.asked: Device | None = None
        if args.device is not None:
            self.asked = device(args.device, self._extra)
            _refuse_kind(self.asked, list(self._hardware.values()), args.source)
        elif self._extra is not None:
            for each in self._hardware.values():
                if self._extra.find(each.name) is None:
                    say(
                        f"{args.devices} has no device that is called {each.name!r}: add that to "
                        "the aliases of one of them, or name one with --device"
                    )

    def device_for(self, kernel: Kernel) -> Device:
        """The device that a kernel is judged for."""
        if self.asked is None or not self.is_other(kernel.hardware):
            return self._device_of(kernel.hardware)
        return self.asked

    def judged(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """The kernels, without seconds that another device took."""
        return [
            dataclasses.replace(kernel, seconds=None) if self.is_other(kernel.hardware) else kernel
            for kernel in kernels
        ]

    def is_other(self, hardware: Hardware) -> bool:
        """Whether the device is another than the one that kernels were made for."""
        if self.asked is None:
            return False
        own = self._own(hardware)
        return own is None or own.key != self.asked.key

    def others(self) -> list[Hardware]:
        """The hardware whose schedules are judged for another device."""
        return [each for each in self._hardware.values() if self.is_other(each)]

    def knows(self, hardware: Hardware) -> None:
        """Takes what was measured of hardware, for all kernels that were made for it."""
        self._hardware[hardware.key] = hardware

    def lacks(self, hardware: Hardware) -> bool:
        """Whether figures are assumed that measuring on this machine would tell."""
        from foretune.explain import MEASURABLE, assumed
        from foretune.hardware import why_not_here

        own = self._own(hardware)
        if own is None or not own.has_cores or MEASURABLE.isdisjoint(assumed(own, hardware)):
            return False
        return why_not_here(hardware) is None

    def _own(self, hardware: Hardware) -> Device | None:
        try:
            return self._device_of(hardware)
        except BadInputError:
            return None

    def _device_of(self, hardware: Hardware) -> Device:
        from foretune.hardware import device_of

        return device_of(self._hardware.get(hardware.key, hardware), self._extra)


def _refuse_kind(asked: Device, hardware: Sequence[Hardware], source: str) -> None:
    """Refuses a device that none of the kernels could run on."""
    from foretune.hardware import device_of, preset, preset_names

    kinds = [each.device_kind for each in hardware]
    if asked.kind in kinds:
        return
    if asked.has_cores:
        target = "host"
    else:
        gpus = {n: p for n in preset_names() if not (p := preset(n)).has_cores}
        same = [name for name, one in gpus.items() if device_of(one).key == asked.key]
        target = (same or list(gpus))[0]
    what = "explain the model" if Path(source).is_dir() else "make schedules for one"
    raise BadInputError(
        f"device {asked.key!r} ({asked.name}) is a {asked.kind}, but the kernels of {source} are "
        f"those of a {kinds[0]}: {what} with --target, for example --target {target}"
    )


def _notes(explained: Sequence[Explanation], judge: _Judge | None = None) -> list[str]:
    """What a reader has to know of the figures, a sentence each."""
    from foretune.explain import hardware_called

    notes = []
    if judge is not None and judge.asked is not None:
        notes += [
            f"the schedules are those for {hardware_called(each)}, judged by the data sheet of "
            f"{judge.asked.name}: tuning there may choose others"
            for each in judge.others()
        ]
    open_figures = {one.device_name: one.assumed for one in explained if one.assumed}
    for device, figures in open_figures.items():
        told = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        notes.append(f"assumed of {device}: {told} (--devices FILE.json says better)")
    return notes
