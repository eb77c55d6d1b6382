"""PyTorch's operator samples through import, compilation with default schedules, and a run.

The first samples of every operator that ``torch.export`` accepts, compared with eager PyTorch in
shape, type and values. The outcome is one of: *pass*; *refused*, an error raised on purpose;
*another result*; *broken*, any other exception; *crash*, the end of the process or no answer in
time. Results are kept as they come, and an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from benchmarks import _suites
from benchmarks._suites import OUTCOMES, Results
from benchmarks._torch.cases import COMPLEX, excluded, operators, tasks
from benchmarks._torch.worker import serve
from benchmarks.results import conditions, publish, say

_TITLE = "PyTorch's operator samples"
_PROGRAM = """
from benchmarks._torch.cases import operators
from benchmarks._torch.worker import exportable


def sample():
    return exportable(operators()[{operator!r}], {dtype!r})[{at}]
"""


def _write(name: str, folder: Path) -> str:
    operator, dtype, at = name.rsplit(":", 2)
    path = folder / "sample.py"
    path.write_text(_PROGRAM.format(operator=operator, dtype=dtype, at=at))
    return f"{path}:sample"


def _operator(result: Mapping[str, Any]) -> str:
    return str(result["name"].rsplit(":", 2)[0])


def share(results: Collection[Mapping[str, Any]]) -> float:
    """How many pass, in percent."""
    return 100 * sum(r["outcome"] == "pass" for r in results) / max(1, len(results))


def page(results: Mapping[str, Any], left_out: Mapping[str, str]) -> str:
    """The text of the result page."""
    counted = {n: r for n, r in results.items() if r["outcome"] in OUTCOMES}
    total = Counter(result["outcome"] for result in counted.values())
    operators_tried = {_operator(r) for r in counted.values()}
    none = sorted(
        _operator(r)
        for n, r in results.items()
        if r["outcome"] == "not exportable" and n.endswith(":0")
    )
    reasons = Counter(left_out.values())
    real = [r for r in counted.values() if not COMPLEX.search(_operator(r))]
    failing = _suites.told(counted.values(), ["pass"])
    return "\n".join(
        [
            f"{len(counted)} samples of {len(operators_tried)} operators: "
            + ", ".join(f"{total[o]} {o}" for o in OUTCOMES)
            + f". {share(counted.values()):.1f} % pass; {share(real):.1f} % of the {len(real)} "
            "that have no complex numbers, which TVM lacks.",
            "",
            f"Left out: {len(left_out)} operators ("
            + "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
            + f"). `torch.export` accepts no sample of {len(none)} others: {', '.join(none)}.",
            "",
            _suites.outcome_table("operator", counted.values(), _operator),
            "",
            "Not passed:" if failing else "Every sample passes.",
            "",
            *failing,
        ]
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_suite", description=__doc__)
    parser.add_argument("--filter", default="", metavar="REGEX", help="operators of such names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th sample")
    parser.add_argument("--command-line", type=int, default=0, metavar="N")
    _suites.add_options(parser, "torch_suite.jsonl")
    args = parser.parse_args(arguments)
    where = conditions("torch_suite", [0])
    infos = {n: i for n, i in operators().items() if re.search(args.filter, n)}
    left_out = {name: excluded(name) for name in infos if excluded(name)}
    chosen = tasks({n: i for n, i in infos.items() if n not in left_out})[:: args.every]
    found = _suites.recorded(args.records, args.fresh)
    waiting = [n for n in chosen if n not in found]
    silent = ["pass", "not exportable", "absent"]
    found |= _suites.run_recorded(serve, waiting, args.records, args.workers, silent)
    results: Results = {name: found[name] for name in chosen}
    say(str(Counter(result["outcome"] for result in results.values())))
    tried = _suites.spread(results, args.command_line)
    wrong = _suites.through_command_line(results, tried, _write)
    body = page(results, left_out) + _suites.tried_by_command(wrong, len(tried))
    data = {"results": list(results.values()), "excluded": left_out, "command_line": wrong}
    publish("torch_suite", _TITLE, body, data, where.end(), args.write)


if __name__ == "__main__":
    main()
