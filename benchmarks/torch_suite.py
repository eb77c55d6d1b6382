"""PyTorch's operator samples through import, compilation with default schedules, and a run.

The first samples of every operator that ``torch.export`` accepts, compared with eager PyTorch in
shape, type and values. The outcome is one of: *pass*; *refused*, an error raised on purpose;
*another result*; *broken*, any other exception; *crash*, the end of the process or no answer in
time. Results are kept as they come, and an interrupted run goes on where it was.
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

from benchmarks._suites import OUTCOMES, run
from benchmarks._torch.cases import excluded, operators, tasks
from benchmarks._torch.worker import serve
from benchmarks.results import conditions, publish, say, table

_TITLE = "PyTorch's operator samples"
_PROGRAM = """
from benchmarks._torch.cases import operators
from benchmarks._torch.worker import exportable


def sample():
    return exportable(operators()[{operator!r}], {dtype!r})[{at}]
"""


def command_line(results: Mapping[str, Any], count: int) -> list[str]:
    """Samples whose ``foretune tune`` does not end as the sample did: exit code 0 or 2."""
    fit = [name for name, r in results.items() if r["outcome"] in ("pass", "refused")]
    chosen = fit[:: max(1, len(fit) // count)][:count]
    wrong = []
    for name in chosen:
        done = _tune(name)
        wanted = 0 if results[name]["outcome"] == "pass" else 2
        lines = done.stderr.strip().splitlines()
        clean = wanted == 0 or (len(lines) == 1 and "Traceback" not in done.stderr)
        if done.returncode != wanted or not clean:
            wrong.append(f"{name}: exit {done.returncode} instead of {wanted}: {lines[-1:]}")
            say(wrong[-1])
    return wrong


def _tune(name: str) -> subprocess.CompletedProcess[str]:
    operator, dtype, at = name.rsplit(":", 2)
    with tempfile.TemporaryDirectory(prefix="foretune-torch-") as folder:
        path = Path(folder, "sample.py")
        path.write_text(_PROGRAM.format(operator=operator, dtype=dtype, at=at))
        program = str(Path(sys.executable).with_name("foretune"))
        command = [program, "tune", f"{path}:sample", "--trials", "1"]
        command += ["--work-dir", f"{folder}/work", "-o", f"{folder}/out.so"]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def page(results: Mapping[str, Any], left_out: Mapping[str, str]) -> str:
    """The text of the result page."""
    counted = {n: r for n, r in results.items() if r["outcome"] in OUTCOMES}
    total = Counter(result["outcome"] for result in counted.values())
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for name, result in counted.items():
        by_operator[name.rsplit(":", 2)[0]][result["outcome"]] += 1
    rows = [
        [operator, *(str(count[o] or "") for o in OUTCOMES)]
        for operator, count in sorted(by_operator.items())
    ]
    none = sorted(
        n.rsplit(":", 2)[0]
        for n, r in results.items()
        if r["outcome"] == "not exportable" and n.endswith(":0")
    )
    reasons = Counter(left_out.values())
    failing = [
        f"- `{name}`: {r['outcome']}: {r['message']}"
        for name, r in counted.items()
        if r["outcome"] != "pass"
    ]
    return "\n".join(
        [
            f"{len(counted)} samples of {len(by_operator)} operators: "
            + ", ".join(f"{total[o]} {o}" for o in OUTCOMES)
            + f". {100 * total['pass'] / max(1, len(counted)):.1f} % pass.",
            "",
            f"Left out: {len(left_out)} operators ("
            + "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
            + f"). `torch.export` accepts no sample of {len(none)} others: {', '.join(none)}.",
            "",
            table(["operator", *OUTCOMES], rows),
            "",
            "Not passed:" if failing else "Every sample passes.",
            "",
            *failing,
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_suite", description=__doc__)
    parser.add_argument("--filter", default="", metavar="REGEX", help="operators of such names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th sample")
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--records", type=Path, default=Path("torch_suite.jsonl"), metavar="FILE")
    parser.add_argument("--fresh", action="store_true", help="forgets what FILE holds")
    parser.add_argument("--command-line", type=int, default=0, metavar="N")
    parser.add_argument("--write", action="store_true", help="writes the page of results")
    args = parser.parse_args()
    where = conditions("torch_suite", [0])
    infos = {n: i for n, i in operators().items() if re.search(args.filter, n)}
    left_out = {name: excluded(name) for name in infos if excluded(name)}
    chosen = tasks({n: i for n, i in infos.items() if n not in left_out})[:: args.every]
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
            if result["outcome"] in OUTCOMES[1:]:
                say(f"{result['name']}: {result['outcome']}: {result['message'][:160]}")
    results = {name: results[name] for name in chosen if name in results}
    say(str(Counter(result["outcome"] for result in results.values())))
    wrong = command_line(results, args.command_line) if args.command_line else []
    if args.write or args.command_line:
        body = page(results, left_out)
        if args.command_line:
            body += f"\n\nThrough the command line: {args.command_line}, {len(wrong)} wrong.\n"
            body += "\n".join(f"- {line}" for line in wrong)
        data = {"results": list(results.values()), "excluded": left_out, "command_line": wrong}
        publish("torch_suite", _TITLE, body, data, where.end(), args.write)


if __name__ == "__main__":
    main()
