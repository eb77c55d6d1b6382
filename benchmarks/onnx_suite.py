"""ONNX's own tests through import, compilation with default schedules, and a run.

Every test of ``onnx.backend.test`` without downloads. The outcome is one of: *pass*; *refused*, an
error raised on purpose; *another result*; *broken*, any other exception; *crash*, the end of the
process or no answer in time. Results are kept as they come, and an interrupted run goes on where it
was.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import _suites
from benchmarks._onnx.cases import excluded, load_cases, model_of, operator_of
from benchmarks._onnx.worker import serve
from benchmarks._suites import OUTCOMES, Results
from benchmarks.results import conditions, publish, say

_TITLE = "ONNX's own tests"
_GOOD = ("pass", "refused")


def page(results: Mapping[str, Any], cases: dict[str, Any], left_out: Mapping[str, str]) -> str:
    """The text of the result page."""
    total = Counter(result["outcome"] for result in results.values())
    of_those = sum(total.values())
    bound = sum(1 for r in results.values() if r["outcome"] == "pass" and r["bound"])
    close = sum(1 for r in results.values() if r.get("close"))
    reasons = Counter(left_out.values())
    failing = _suites.told(results.values(), _GOOD)
    return "\n".join(
        [
            f"{of_those} tests: " + ", ".join(f"{total[o]} {o}" for o in OUTCOMES) + ".",
            f"{100 * total['pass'] / max(1, of_those):.1f} % pass, "
            f"{100 * (total['pass'] - bound) / max(1, of_those):.1f} % as they are. In the other "
            f"{bound}, inputs that decide sizes or axes are known at import: integers and truth "
            "values of rank 0 or 1, and scales. The command line has no such option and refuses "
            "models with such inputs.",
            f"Tolerances are the tests' own; {close} pass only if they may differ by the last "
            "place of the largest expected number.",
            "",
            f"Left out: {len(left_out)} tests ("
            + "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
            + "). Tests of real models are left out as well: their files have to be downloaded.",
            "",
            _suites.outcome_table(
                "operator", results.values(), lambda r: operator_of(cases[r["name"]], cases)
            ),
            "",
            "Neither pass nor refused:" if failing else "Every test passes or is refused.",
            "",
            *failing,
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_suite", description=__doc__)
    parser.add_argument("--filter", default="", metavar="REGEX", help="tests of matching names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th of them")
    parser.add_argument("--command-line", type=int, default=0, metavar="N")
    _suites.add_options(parser, "onnx_suite.jsonl")
    args = parser.parse_args(arguments)
    where = conditions("onnx_suite", [0])
    cases = load_cases()
    chosen = [n for n in cases if re.search(args.filter, n)][:: args.every]
    left_out = {n: excluded(n) for n in chosen if excluded(n)}
    chosen = [n for n in chosen if n not in left_out]
    found = _suites.recorded(args.records, args.fresh)
    waiting = [n for n in chosen if n not in found]
    found |= _suites.run_recorded(serve, waiting, args.records, args.workers, silent=["pass"])
    results: Results = {name: found[name] for name in chosen}
    say(str(Counter(result["outcome"] for result in results.values())))

    def write(name: str, folder: Path) -> str:
        import onnx

        path = folder / f"{name}.onnx"
        onnx.save(model_of(cases[name]), str(path))
        return str(path)

    unbound = {name: r for name, r in results.items() if not r["bound"]}
    tried = _suites.spread(unbound, args.command_line)
    wrong = _suites.through_command_line(results, tried, write)
    body = page(results, cases, left_out) + _suites.tried_by_command(wrong, len(tried))
    data = {"results": list(results.values()), "excluded": left_out, "command_line": wrong}
    publish("onnx_suite", _TITLE, body, data, where.end(), args.write)


if __name__ == "__main__":
    main()
