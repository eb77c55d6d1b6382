"""Results of several calls put together, of other seeds each, from other machines perhaps.

What one call has of a kernel and a seed was measured on one machine, interleaved. Where several
calls have the same ones (other sides, later on), their seconds are not compared with each other:
every figure is of runs of one sitting, a speed-up over its own untuned program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._search.figures import side_of
from foretune.bench import summarise
from foretune.errors import BadInputError
from foretune.tuning import Budget, fitting_batch

Result = Mapping[str, Any]


def together(result: dict[str, Any], earlier: Sequence[Result]) -> dict[str, Any]:
    """A result with the runs of others.

    Args:
        result: What ``run_bench`` gave, and in ``states`` the hash of each side's code and weights.
        earlier: Published results, each of which may consist of parts.

    Returns:
        The result; ``parts`` has the conditions of the others with their ``states`` and, in
        ``other_code``, the names of sides that other code or weights made than here. Each run has
        its ``machine``.

    Raises:
        BadInputError: Two of them have runs of the same kernel, side and seed.
    """
    result = {
        **result,
        "parts": [],
        "runs": _of_machine(result["hardware"], result["runs"], result["trials"]),
    }
    for one in earlier:
        theirs = _of_machine(one["conditions"]["hardware"], one["runs"], one["trials"])
        _expect_other_runs(result["runs"], theirs)
        result["runs"] = [*theirs, *result["runs"]]
        result["failures"] = [*one["failures"], *result["failures"]]
        result["notes"] = {**one["notes"], **result["notes"]}
        result["parts"] += [*one["parts"], {**one["conditions"], "states": one["states"]}]
    newest: dict[str, str] = {}
    for states in (result["states"], *(part["states"] for part in reversed(result["parts"]))):
        newest = {**states, **newest}
    result["parts"] = [
        {
            **part,
            "other_code": sorted(s for s, state in part["states"].items() if state != newest[s]),
        }
        for part in result["parts"]
    ]
    if earlier:
        result["summary"] = summarise(result["runs"], result["trials"], np.random.default_rng(0))
    return result


def _of_machine(
    hardware: Mapping[str, Any], runs: Sequence[Any], trials: int
) -> list[dict[str, Any]]:
    """Runs with their ``machine``, in words and by its key, and their ``batch``.

    What has one already keeps it. A run that was given no batch had one that fits its trials; peers
    have their own.
    """
    words = f"{hardware['name']}, {hardware['threads']} threads ({hardware['key']})"
    return [
        {
            "machine": words,
            **({} if side_of(run).is_peer else {"batch": _fitted(run, trials)}),
            **run,
        }
        for run in runs
    ]


def _fitted(run: Mapping[str, Any], trials: int) -> int:
    return fitting_batch(Budget(trials=run.get("budget", trials)), 1)


def effort(mine: Sequence[Result], earlier: Sequence[Result]) -> list[Result]:
    """Rows of what a search looks at, and of others those whose kernel and side have none here."""
    rows = [*mine]
    for one in reversed(earlier):
        have = {(row["workload"], row["side"]) for row in rows}
        found = one.get("mcts", {}).get("overhead", [])
        rows += [row for row in found if (row["workload"], row["side"]) not in have]
    return rows


def expect_as_long(trials: int, earlier: Sequence[Result]) -> None:
    """Refuses results of another number of trials, before anything runs.

    Raises:
        BadInputError: There is one.
    """
    for one in earlier:
        if one["trials"] != trials:
            raise BadInputError(
                "results that are put together must have the same number of trials, but one has "
                f"{one['trials']} and this call {trials}: give --trials {one['trials']}"
            )


def _expect_other_runs(runs: Sequence[Result], others: Sequence[Result]) -> None:
    twice = sorted({*map(_place, runs)} & {*map(_place, others)})
    if twice:
        kernel, side, seed = twice[0]
        raise BadInputError(
            "results that are put together must have other seeds or kernels each, but "
            f"{kernel} {side} seed {seed} is in two: name others in --seed-list"
        )


def _place(run: Mapping[str, Any]) -> tuple[str, str, int]:
    return run["workload"], side_of(run).name, run["seed"]


def said(parts: Sequence[Mapping[str, Any]]) -> str:
    """A line for each result that was published before."""
    lines = []
    for part in parts:
        hardware = part["hardware"]
        busy = sorted({*part["busy_before"], *part["busy_after"]})
        line = (
            f"- Seeds {part['seeds']}, published before: `{part['command']}`, {hardware['name']}, "
            f"{hardware['threads']} threads, put together {part['began']}, beside "
            f"{', '.join(busy) or 'nothing above 5 % of a core'}"
        )
        if part["other_code"]:
            line += f"; code or weights were others of {', '.join(part['other_code'])}"
        lines.append(f"{line}.")
    return "\n".join(lines)
