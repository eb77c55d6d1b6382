"""Is a network faster with the plan that TGraph proposes, in the same time of tuning?

``python -m benchmarks.planned --plan-model FILE``: each network is tuned twice for the same time,
with its default plan and with a search for another one (``foretune tune --plan-trials``), which
counts. Both results are timed in turn. What is in the work directory already is not done again, and
a network that fails does not lose the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._networks.figures import geometric_mean, interval
from benchmarks._networks.runs import in_turns, or_error, tuned
from benchmarks.cells import kept
from benchmarks.networks import NETWORKS
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, table

_GOAL = 1.03
_PLANNED, _DEFAULT = "with TGraph's plan", "default plan"


def run_network(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both results of a network, timed in turn."""
    folder = options.work_dir / name
    base, _ = tuned(name, folder / "default", options.time, options.seed)
    more = ["--plan-trials", str(options.plan_trials)]
    if options.plan_model is not None:
        more += ["--plan-model", str(options.plan_model)]
    planned, tune = tuned(name, folder / "planned", options.time, options.seed, more)
    sides = {_PLANNED: planned, _DEFAULT: base}
    found = kept(folder / "compared.json", lambda: in_turns(name, sides, options.seed))
    return {**found, "plans": tune["network"]["plans"], "seconds": options.time}


def section(data: Mapping[str, Any]) -> Section:
    """What readings say."""
    results = data["networks"]
    done = {name: one for name, one in results.items() if "error" not in one}
    failed = [f"- {name}: {one['error']}" for name, one in results.items() if "error" in one]
    answer = "No network could be compared."
    if done:
        mean = geometric_mean(one["ratio"]["median"] for one in done.values())
        answer = (
            f"{mean:.3f} times as fast as with the default plan in the same time, in geometric "
            f"mean over {len(done)} networks (goal {_GOAL}: "
            f"{'reached' if mean >= _GOAL else 'missed'}); another plan was taken for "
            f"{sum(bool(o['plans']['chosen']) for o in done.values())} of them."
        )
    rows = [
        [
            name,
            interval(one["ratio"], digits=3),
            *(f"{1e3 * median:.2f}" for median in one["median"].values()),
            "another" if one["plans"]["chosen"] else "the default",
            str(one["plans"]["measured"]),
            f"{one['plans']['seconds']:.0f}",
            "–" if one["plans"]["ratio"] is None else f"{one['plans']['ratio']:.3f}",
        ]
        for name, one in done.items()
    ]
    header = ["network", "times as fast", f"{_PLANNED}, ms", f"{_DEFAULT}, ms", "plan", "plans",
              "seconds for them", "before tuning"]  # fmt: skip
    return Section(
        "Is a network faster with the plan that TGraph proposes?",
        answer,
        table(header, rows),
        "Both were tuned for the same time with the same seed, the search for a plan included, and "
        "timed in turn. Before tuning: how many times as fast as the default plan the best other "
        "one was, with schedules that were predicted.\n\n" + "\n".join(failed),
    )


def main(arguments: list[str] | None = None) -> None:
    """Tunes, compares and prints."""
    parser = argparse.ArgumentParser(prog="benchmarks.planned", description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS), metavar="NAME,...")
    parser.add_argument("--time", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--plan-trials", type=int, default=32, metavar="N")
    parser.add_argument("--plan-model", type=Path, help="the package's own if left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/planned"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("planned", [options.seed])
    results = {
        name: or_error(name, lambda name=name: run_network(name, options))  # type: ignore[misc]
        for name in options.networks.split(",")
    }
    publish("planned", section, {"networks": results}, where.end(), options.write)


if __name__ == "__main__":
    main()
