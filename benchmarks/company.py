"""``python -m benchmarks company``: does an engine take in company what it takes alone?

``foretune compare`` has all engines alive, stops those that are not timed, and times them in turn.
Here each is started with no other engine alive and timed, timed again in the company of the others
as ``compare`` does it, and once more when they have ended. So it is one process at one place in
memory, and what the machine does in the meantime is in both halves of solitude. It uses the
artifacts that ``benchmarks.networks`` made. Repeats that are in the work directory already are not
done again.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._networks.figures import interval, ratio
from benchmarks.cells import kept
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, say, table
from foretune.engines import ENGINES
from foretune.engines._names import SPINNING_S
from foretune.engines._process import Child, Workspace
from foretune.errors import BadInputError

if TYPE_CHECKING:
    from foretune.workload import Model

_NETWORKS = ("mobilenet_v2", "vit_b_32", "resnet50")
_GOAL = 0.02

Readings = dict[str, float]
"""``before``, ``company`` and ``after``: seconds of a call, the median of some readings each."""

Repeat = dict[str, Readings]
"""What each engine took."""


def of_engine(engine: str, others: Sequence[str], workspace: Workspace, threads: int, rounds: int
              ) -> Readings:  # fmt: skip
    """Times an engine alone, with others alive and in turn with them, and alone again."""
    with Child.start(engine, workspace, threads) as child:
        time.sleep(SPINNING_S)
        found = {"before": _median([child.time() for _ in range(rounds)])}
        with contextlib.ExitStack() as stack:
            company = [stack.enter_context(Child.start(o, workspace, threads)) for o in others]
            time.sleep(SPINNING_S)
            seconds = []
            for _ in range(rounds):
                for other in company:
                    other.time()
                seconds.append(child.time())
            found["company"] = _median(seconds)
        found["after"] = _median([child.time() for _ in range(rounds)])
    return found


def _median(seconds: Sequence[float]) -> float:
    return float(np.median(seconds))


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
            f"`python -m benchmarks networks --networks {name}` before"
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
                    lambda: {
                        engine: of_engine(
                            engine,
                            [other for other in engines if other != engine],
                            workspace,
                            threads,
                            options.rounds,
                        )
                        for engine in engines
                    },
                )
            )
    return repeats


def ratios(repeats: Sequence[Repeat]) -> dict[str, dict[str, dict[str, float]]]:
    """What company costs, over the repeats.

    Returns:
        By engine ``company``, how many times as long it takes in company as alone, before and after
        in the mean, and ``control``: how many times as long afterwards as before.
    """
    found = {}
    for engine in repeats[0]:
        each = [repeat[engine] for repeat in repeats]
        alone = [(one["before"] + one["after"]) / 2 for one in each]
        found[engine] = {
            "company": ratio([one["company"] for one in each], alone),
            "control": ratio([one["after"] for one in each], [one["before"] for one in each]),
        }
    return found


def section(data: Mapping[str, Any]) -> Section:
    """What company costs each engine on each network."""
    results: Mapping[str, list[Repeat]] = data["networks"]
    far, rows = [], []
    for name, repeats in results.items():
        for engine, found in ratios(repeats).items():
            if abs(found["company"]["median"] - 1) > _GOAL:
                far.append(f"{engine} on {name} ({interval(found['company'], 3)})")
            alone = _median([repeat[engine]["before"] for repeat in repeats])
            company = _median([repeat[engine]["company"] for repeat in repeats])
            cells = [f"{alone * 1e3:.2f}", f"{company * 1e3:.2f}"]
            rows.append([name, engine, *cells, *(interval(one, 3) for one in found.values())])
    goal = f"{100 * _GOAL:.0f} %"
    others = f", but {', '.join(far)}" if far else ""
    count = len(next(iter(results.values())))
    return Section(
        "Does a comparison slow the engines down?",
        f"**No: {len(rows) - len(far)} of {len(rows)} engines take what they take alone** within "
        f"{goal}, in the median of {count} repeats{others}.",
        table(
            ["network", "engine", "alone, ms", "in company, ms", "company over alone",
             "alone, after over before"],
            rows,
        ),
        "Ratios are medians over repeats with the 95 % interval of a bootstrap. In every repeat "
        "each engine is started with no other alive and timed, timed in turn with the others, and "
        "timed again when they have ended. Company is compared with the mean of before and after; "
        "the last column says how far the machine alone moves such figures.",
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks company", description=__doc__)
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
    publish("company", section, {"networks": results}, where.end(), options.write)


if __name__ == "__main__":
    main()
