"""``foretune graph collect``: measures plans of networks, or packs what was measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.plans.collector import Collection, PlanCollector
from foretune.plans.pack import pack

_NOT_MEASURED = 3
CATALOG = "catalog"
"""The name of all networks of the catalog."""


def collect_command(args: Any, hardware: Hardware | None) -> int:
    """Collects or packs; returns an exit code, 3 where a network cannot be measured.

    Args:
        args: ``networks`` (INPUTs, comma-separated; ``catalog``, and ``@FILE`` with one a line,
            among them), ``plans``, ``seed``, ``time`` (seconds or None), ``work_dir``, ``pack``
            (a flag), ``output`` (a folder or None).
        hardware: This machine; None to pack.

    Raises:
        BadInputError: Something is wrong with the arguments, or the folder holds no collection.
    """
    if args.pack:
        print(f"{args.output}: {pack(args.work_dir, args.output)}")
        return 0
    assert hardware is not None
    collection = Collection(networks_of(args.networks), args.plans, args.seed)
    _say(f"{len(collection.networks)} networks, {collection.plans} plans each")
    with PlanCollector(collection, hardware, args.work_dir, say=_say) as collector:
        complete = collector.run(args.time)
    if collector.left_out:
        _say(f"cannot be measured: {', '.join(collector.left_out)}")
        return _NOT_MEASURED
    _say("complete" if complete else "not complete: run the same command again to go on")
    return 0


def networks_of(text: str) -> tuple[str, ...]:
    """The INPUTs that a text names, each once.

    Raises:
        BadInputError: None is named, or a list cannot be read.
    """
    from foretune.workload import catalog

    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if name == CATALOG:
            names += catalog.names("network")
        elif name.startswith("@"):
            names += _listed(Path(name[1:]))
        elif name:
            names.append(name)
    if not names:
        raise BadInputError(f"networks must be named, but got --networks {text!r}: try {CATALOG}")
    return tuple(dict.fromkeys(names))


def _listed(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"a list of networks must be a text file, but {file} cannot be read ({error})"
        ) from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
