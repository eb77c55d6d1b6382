"""What each pass over the graph brings: a network tuned again with that pass off.

Both sides are tuned for the same short time with the same seed, then timed in turn, each in a
process of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from benchmarks._networks.runs import in_turns, or_error, tuned
from benchmarks.cells import kept

_ALL_ON = "all passes on"


def of_network(
    name: str, folder: Path, seconds: float, seed: int, only: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """What each pass that changed a network brings it.

    Args:
        name: Of the network, in the catalog.
        folder: Where results are kept, pass by pass.
        seconds: Of tuning, for either side.
        seed: Of everything random.
        only: Names of passes to try; all if none are named.

    Returns:
        By pass: ``ratio`` of the latency without it to that with it, ``median`` of both sides and
        ``shipped`` without it; or ``error``.
    """
    base, result = tuned(name, folder / "all", seconds, seed)
    tried = changed_passes(result, only)
    return {
        each: or_error(
            f"{name} without {each}",
            lambda each=each: kept(  # type: ignore[misc]
                folder / f"{each}.json", lambda: _without(name, each, base, folder, seconds, seed)
            ),
        )
        for each in tried
    }


def changed_passes(tune: Mapping[str, Any], only: Collection[str] = ()) -> list[str]:
    """Names of the passes that changed a network, out of ``only`` if that names any."""
    return [
        report["name"]
        for report in tune["network"]["passes"]
        if report["changed"] and report["on"] and (not only or report["name"] in only)
    ]


def _without(
    name: str, each: str, base: Path, folder: Path, seconds: float, seed: int
) -> dict[str, Any]:
    other, result = tuned(name, folder / each, seconds, seed, ("--pass", f"{each}=off"))
    return {
        **in_turns(name, {_ALL_ON: base, f"without {each}": other}, seed),
        "shipped": result["network"]["shipped"],
        "fault": result["network"]["fault"],
        "trials": sum(task["trial_count"] for task in result["tasks"]),
    }
