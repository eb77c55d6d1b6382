"""``python -m benchmarks.company``: does an engine take in company what it takes alone?

``foretune compare`` has all engines alive, stops those that are not timed, and times them in turn.
Here each is timed so, and also alone: in a fresh process, with no other engine alive. Company and
solitude take turns in each repeat, and every repeat starts all processes anew. It uses the
artifacts that ``benchmarks.networks`` made. Repeats that are in the work directory already are not
done again.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks._networks.figures import ratio
from benchmarks._networks.runs import kept
from benchmarks.results import conditions, publish, say, table
from foretune.engines import ENGINES
from foretune.engines._process import Child, Workspace
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.workload import Model

_TITLE = "Engines in company and alone"
_NETWORKS = ("mobilenet_v2", "vit_b_32", "resnet50")
_SIDES = ("company", "alone")
_GOAL = 0.02
# As ``compare`` does: the threads of this process go on spinning for so long after their work.
_PAUSE_S = 0.4

Repeat = dict[str, dict[str, float]]
"""Side, then engine, to seconds of a call: the median of the readings of one repeat."""


def _readings(workspace: Workspace, engines: Sequence[str], threads: int, rounds: int
              ) -> dict[str, float]:  # fmt: skip
    """Seconds of each engine with all of these alive, in turn."""
    with contextlib.ExitStack() as stack:
        children = {
            engine: stack.enter_context(Child.start(engine, workspace, threads))
            for engine in engines
        }
        time.sleep(_PAUSE_S)
        readings: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(rounds):
            for engine, child in children.items():
                readings[engine].append(child.time())
    return {engine: float(np.median(seconds)) for engine, seconds in readings.items()}


def one_repeat(workspace: Workspace, engines: Sequence[str], threads: int, rounds: int,
               company_first: bool) -> Repeat:  # fmt: skip
    """Both sides, one after the other."""
    found: Repeat = {}
    for side in _SIDES if company_first else _SIDES[::-1]:
        groups = [list(engines)] if side == "company" else [[engine] for engine in engines]
        found[side] = {}
        for group in groups:
            found[side].update(_readings(workspace, group, threads, rounds))
    return found


def of_network(name: str, options: argparse.Namespace, threads: int) -> list[Repeat]:
    """All repeats of one network.

    Raises:
        BadInputError: ``benchmarks.networks`` has not tuned it.
    """
    from foretune.workload import load_input

    artifact = options.artifacts / name / "network.so"
    if not artifact.exists():
        raise BadInputError(
            f"{name} has no artifact {artifact}: run "
            f"`python -m benchmarks.networks --networks {name}` before"
        )
    model: Model = load_input(name)  # type: ignore[assignment]
    engines = ["foretune", *options.against.split(",")]
    repeats = []
    with tempfile.TemporaryDirectory(prefix="foretune-company-") as place:
        inputs = model.draw_inputs(options.seed)
        workspace = Workspace(Path(place), model, {"foretune": artifact}, inputs)
        for number in range(options.repeats):
            say(f"{name}: repeat {number + 1} of {options.repeats}")
            repeats.append(
                kept(
                    options.work_dir / name / f"{number}.json",
                    lambda number=number: one_repeat(
                        workspace, engines, threads, options.rounds, number % 2 == 0
                    ),
                )
            )
    return repeats


def ratios(repeats: Sequence[Repeat]) -> dict[str, dict[str, float]]:
    """By engine, how many times as long it takes in company as alone, over the repeats."""
    return {
        engine: ratio(*([repeat[side][engine] for repeat in repeats] for side in _SIDES))
        for engine in repeats[0]["alone"]
    }


def body(results: dict[str, list[Repeat]]) -> str:
    """The page: the question, the answer and the table."""
    found = {name: ratios(repeats) for name, repeats in results.items()}
    far = [
        f"{engine} on {name} ({each['median']:.3f})"
        for name, engines in found.items()
        for engine, each in engines.items()
        if abs(each["median"] - 1) > _GOAL
    ]
    engines = list(next(iter(found.values())))
    rows = []
    for name, by_engine in found.items():
        for side in _SIDES:
            medians = [np.median([r[side][e] for r in results[name]]) * 1e3 for e in engines]
            rows.append([name, f"{side}, ms", *(f"{median:.2f}" for median in medians)])
        told = (by_engine[engine] for engine in engines)
        each = [f"{one['median']:.3f} ({one['low']:.3f} to {one['high']:.3f})" for one in told]
        rows.append([name, "ratio", *each])
    answer = f"further than {100 * _GOAL:.0f} % apart: {', '.join(far)}" if far else (
        f"every engine within {100 * _GOAL:.0f} %"
    )  # fmt: skip
    return "\n\n".join(
        [
            "Does an engine take in a comparison, where others are alive and stopped, what it "
            "takes alone?",
            f"In the median of {len(next(iter(results.values())))} repeats, {answer}.",
            table(["network", "", *engines], rows),
            "Ratio: seconds in company over seconds alone, the median over repeats with the 95 % "
            "interval of a bootstrap. In every repeat all processes are started anew, and company "
            "and solitude come first by turns.",
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.company", description=__doc__)
    parser.add_argument("--networks", default=",".join(_NETWORKS), metavar="NAME,...")
    parser.add_argument("--against", default=",".join(ENGINES), metavar="E,...")
    parser.add_argument("--repeats", type=int, default=10, metavar="N")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="readings of a repeat")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--artifacts", type=Path, default=Path("foretune-work/networks"))
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/company"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("company", [options.seed])
    results = {
        name: of_network(name, options, where.hardware.threads)
        for name in options.networks.split(",")
    }
    publish("company", _TITLE, body(results), {"networks": results}, where.end(), options.write)


if __name__ == "__main__":
    main()
