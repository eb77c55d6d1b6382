"""Random PyTorch networks through export, import, compilation with default schedules, and a run.

Networks are drawn from seeds: branches, layouts, ranks 0 to 6, nine element types, odd sizes. Each
is run on two inputs and compared with eager PyTorch in shape, type and values; the first run's
outputs are looked at after the second run. Networks that ``torch.export`` does not accept are left
out and others drawn for them. Results are kept as they come, and an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks import _suites
from benchmarks._random.trial import TOLERANCES, serve
from benchmarks._suites import OUTCOMES, Results
from benchmarks.results import conditions, publish, say, table

_TITLE = "Random networks"


def page(results: Mapping[str, Any]) -> str:
    """The text of the result page."""
    counted = {name: r for name, r in results.items() if r["outcome"] in OUTCOMES}
    total = Counter(r["outcome"] for r in counted.values())
    operators = Counter(o for r in counted.values() for o in r.get("operators", []))
    dtypes = Counter(d for r in counted.values() for d in r.get("dtypes", []))
    by_dtype = [
        [
            dtype,
            *(
                str(sum(r["outcome"] == o and dtype in r["dtypes"] for r in counted.values()) or "")
                for o in OUTCOMES
            ),
        ]
        for dtype in sorted(dtypes)
    ]
    left_out = Counter(p for r in counted.values() for p in r.get("left_out", []))
    failing = _suites.told(counted.values(), OUTCOMES[:1])
    return "\n".join(
        [
            f"{len(counted)} networks of {sum(operators.values())} operators, {len(operators)} "
            "different ones: " + ", ".join(f"{total[o]} {o}" for o in OUTCOMES) + ".",
            f"`torch.export` did not accept {len(results) - len(counted)} others.",
            "Graph passes left out: "
            + (", ".join(f"{name} ({n})" for name, n in left_out.items()) or "none")
            + ".",
            "",
            "Equal means: the same shapes and element types, whole numbers and flags the same, NaN "
            "and infinities at the same places, and no float further away than "
            + ", ".join(f"{value:g} ({dtype})" for dtype, value in TOLERANCES.items())
            + ": absolute, or in parts of the magnitude as an artifact is judged.",
            "",
            "By element type of the inputs (a network may have several):",
            "",
            table(["type", *OUTCOMES], by_dtype),
            "",
            "Operators: " + ", ".join(f"{name} {n}" for name, n in operators.most_common()) + ".",
            "",
            "Not passed:" if failing else "Every network passes.",
            "",
            *failing,
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.random_networks", description=__doc__
    )
    parser.add_argument("--count", type=int, default=500, metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="the first one; others follow it")
    _suites.add_options(parser, "random_networks.jsonl")
    options = parser.parse_args(arguments)
    where = conditions("random_networks", [options.seed])
    found = _suites.recorded(options.records, options.fresh)
    results: Results = {name: r for name, r in found.items() if int(name) >= options.seed}
    following, silent = options.seed, ["pass", "not exportable"]
    while (missing := options.count - sum(r["outcome"] in OUTCOMES for r in results.values())) > 0:
        numbers = (str(n) for n in itertools.count(following) if str(n) not in results)
        names = list(itertools.islice(numbers, missing))
        following = int(names[-1]) + 1
        results |= _suites.run_recorded(serve, names, options.records, options.workers, silent)
    say(str(Counter(result["outcome"] for result in results.values())))
    ordered = dict(sorted(results.items(), key=lambda item: int(item[0])))
    publish(
        "random_networks",
        _TITLE,
        page(ordered),
        {"results": list(ordered.values())},
        where.end(),
        options.write,
    )


if __name__ == "__main__":
    main()
