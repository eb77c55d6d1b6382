"""ONNX's own tests through import, compilation with default schedules, and a run.

Every test of ``onnx.backend.test`` without downloads. The outcome is one of: *pass*; *refused*, an
error raised on purpose; *another result*; *broken*, any other exception; *crash*, the end of the
process or no answer in time. Results are kept as they come, and an interrupted run goes on where it
was.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._onnx.cases import excluded, load_cases, model_of, operator_of
from benchmarks._onnx.worker import serve
from benchmarks._suites import OUTCOMES, run
from benchmarks.results import conditions, publish, say, table

_TITLE = "ONNX's own tests"


def command_line(results: Mapping[str, Any], cases: Mapping[str, Any], count: int) -> list[str]:
    """Tests whose ``foretune tune`` does not end as the test did: exit code 0 or 2, one line."""
    fit = [n for n, r in results.items() if r["outcome"] in ("pass", "refused") and not r["bound"]]
    chosen = fit[:: max(1, len(fit) // count)][:count]
    wrong = []
    for name in chosen:
        done = _tune(model_of(cases[name]), name)
        wanted = 0 if results[name]["outcome"] == "pass" else 2
        lines = done.stderr.strip().splitlines()
        clean = wanted == 0 or (len(lines) == 1 and "Traceback" not in done.stderr)
        if done.returncode != wanted or not clean:
            wrong.append(f"{name}: exit {done.returncode} instead of {wanted}: {lines[-1:]}")
            say(wrong[-1])
    return wrong


def _tune(model: Any, name: str) -> subprocess.CompletedProcess[str]:
    import onnx

    with tempfile.TemporaryDirectory(prefix="foretune-onnx-") as folder:
        path = Path(folder, f"{name}.onnx")
        onnx.save(model, str(path))
        command = [str(Path(sys.executable).with_name("foretune")), "tune", str(path)]
        command += ["--trials", "1"]
        command += ["--work-dir", f"{folder}/work", "-o", f"{folder}/out.so"]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def page(results: Mapping[str, Any], cases: dict[str, Any], left_out: Mapping[str, str]) -> str:
    """The text of the result page."""
    total = Counter(result["outcome"] for result in results.values())
    of_those = sum(total.values())
    bound = sum(1 for r in results.values() if r["outcome"] == "pass" and r["bound"])
    close = sum(1 for r in results.values() if r.get("close"))
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for name, result in results.items():
        by_operator[operator_of(cases[name], cases)][result["outcome"]] += 1
    rows = [
        [operator, *(str(count[o] or "") for o in OUTCOMES)]
        for operator, count in sorted(by_operator.items())
    ]
    reasons = Counter(left_out.values())
    failing = [
        f"- `{name}`: {r['outcome']}: {r['message']}"
        for name, r in results.items()
        if r["outcome"] not in ("pass", "refused")
    ]
    return "\n".join(
        [
            f"{of_those} tests: " + ", ".join(f"{total[o]} {o}" for o in OUTCOMES) + ".",
            f"{100 * total['pass'] / max(1, of_those):.1f} % pass. In {bound} of those that pass, "
            "inputs that decide sizes or axes are known at import: integers and truth values of "
            f"rank 0 or 1, and scales. Tolerances are the tests' own; {close} pass only if they "
            "may differ by the last place of the largest expected number.",
            "",
            f"Left out: {len(left_out)} tests ("
            + "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
            + "). Tests of real models are left out as well: their files have to be downloaded.",
            "",
            table(["operator", *OUTCOMES], rows),
            "",
            "Neither pass nor refused:" if failing else "Every test passes or is refused.",
            "",
            *failing,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_suite", description=__doc__)
    parser.add_argument("--filter", default="", metavar="REGEX", help="tests of matching names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th of them")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--records", type=Path, default=Path("onnx_suite.jsonl"), metavar="FILE")
    parser.add_argument("--fresh", action="store_true", help="forgets what FILE holds")
    parser.add_argument("--command-line", type=int, default=0, metavar="N")
    parser.add_argument("--write", action="store_true", help="writes the page of results")
    args = parser.parse_args()
    where = conditions("onnx_suite", [0])
    cases = load_cases()
    chosen = [n for n in cases if re.search(args.filter, n)][:: args.every]
    left_out = {n: excluded(n) for n in chosen if excluded(n)}
    chosen = [n for n in chosen if n not in left_out]
    if args.fresh:
        args.records.unlink(missing_ok=True)
    results: dict[str, Any] = {}
    if args.records.exists():
        lines = args.records.read_text().splitlines()
        results = {r["name"]: r for r in map(json.loads, lines) if r["name"] in chosen}
    with args.records.open("a") as file:
        for result in run(serve, [n for n in chosen if n not in results], args.workers):
            results[result["name"]] = result
            file.write(json.dumps(result) + "\n")
            file.flush()
            if result["outcome"] != "pass":
                say(f"{result['name']}: {result['outcome']}: {result['message'][:160]}")
    results = {name: results[name] for name in chosen if name in results}
    say(str(Counter(result["outcome"] for result in results.values())))
    wrong = command_line(results, cases, args.command_line) if args.command_line else []
    if args.write or args.command_line:
        body = page(results, cases, left_out)
        if args.command_line:
            body += f"\n\nThrough the command line: {args.command_line}, {len(wrong)} wrong.\n"
            body += "\n".join(f"- {line}" for line in wrong)
        data = {"results": list(results.values()), "excluded": left_out, "command_line": wrong}
        publish("onnx_suite", _TITLE, body, data, where.end(), args.write)


if __name__ == "__main__":
    main()
