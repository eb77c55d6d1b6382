"""Does a model of mine work? Suites of small networks: imported, compiled as they come, compared.

Schedules are the default ones. Results are kept in the work directory as they come, and an
interrupted run goes on where it was. Suites that are not named keep what their page says.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._coverage import processes
from benchmarks._coverage.architectures import Architectures
from benchmarks._coverage.onnx_tests import OnnxTests
from benchmarks._coverage.random_networks import RandomNetworks
from benchmarks._coverage.suite import BROKEN, CRASH, DIFFERS, NOT_EXPORTABLE, PASS, REFUSED, Suite
from benchmarks._coverage.torch_samples import TorchSamples
from benchmarks.pages import Section, publish
from benchmarks.results import conditions, readings_of, table, told
from foretune.hardware import probe

SUITES: dict[str, type[Suite]] = {
    "onnx": OnnxTests,
    "torch": TorchSamples,
    "architectures": Architectures,
    "random": RandomNetworks,
}
PAGE = "coverage"
_OUTCOMES = (PASS, REFUSED, DIFFERS, BROKEN, CRASH)
_LONGEST_CAUSE = 200

Found = Mapping[str, Any]
"""Of one suite: ``results``, ``left_out`` (name to reason) and ``conditions``."""


def _run(key: str, options: argparse.Namespace) -> dict[str, Any]:
    suite = SUITES[key]()
    where = conditions("coverage", [], probe(threads=1))
    names, left_out = suite.names()
    chosen = [name for name in names if re.search(options.filter, name)][:: options.every]
    records = options.work_dir / f"{key}.jsonl"
    if options.fresh:
        records.unlink(missing_ok=True)
    results = processes.run_recorded(suite, chosen, records, options.workers)
    return {
        "results": [r for r in results if r["outcome"] in (*_OUTCOMES, NOT_EXPORTABLE)],
        "left_out": left_out,
        "conditions": where.end(),
    }


def section(data: Mapping[str, Any]) -> Section:
    """The page: what becomes of how many networks, then suite by suite what is not right."""
    suites: Mapping[str, Found] = data["suites"]
    counts = {key: Counter(r["outcome"] for r in one["results"]) for key, one in suites.items()}
    total = sum(counts.values(), Counter[str]())
    exported = sum(total[outcome] for outcome in _OUTCOMES)
    wrong = exported - total[PASS] - total[REFUSED]
    rows = [
        [
            SUITES[key].title,
            *_shares(count),
            str(count[NOT_EXPORTABLE] or ""),
            suites[key]["conditions"]["began"][:10],
        ]
        for key, count in counts.items()
    ]
    return Section(
        "Does a model of mine work?",
        f"**{_percent(total[PASS], exported)} of {exported:,} small networks and operators work as "
        f"they come**, {total[REFUSED]} are refused by name before anything is tuned, and "
        f"{wrong} come out wrong.",
        table(["tried", "networks", "works", *_OUTCOMES[1:], NOT_EXPORTABLE, "day"], rows),
        "\n\n".join(_details(key, one) for key, one in suites.items()),
    )


def _shares(count: Counter[str]) -> list[str]:
    exported = sum(count[outcome] for outcome in _OUTCOMES)
    return [
        f"{exported:,}",
        _percent(count[PASS], exported),
        *(str(count[outcome] or "") for outcome in _OUTCOMES[1:]),
    ]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.0f} %"


def _details(key: str, one: Found) -> str:
    suite = SUITES[key]()
    counted = [r for r in one["results"] if r["outcome"] in _OUTCOMES]
    reasons = Counter(one["left_out"].values())
    in_few_words: dict[str, Counter[str]] = {REFUSED: Counter(), NOT_EXPORTABLE: Counter()}
    told_one_by_one = []
    for result in one["results"]:
        if "operator" in result and result["outcome"] in in_few_words:
            in_few_words[result["outcome"]][result["operator"]] += 1
        elif result["outcome"] != PASS:
            cause = " ".join(result["message"].split())[:_LONGEST_CAUSE]
            told_one_by_one.append(f"- `{result['name']}`: {result['outcome']}: {cause}")
    return "\n\n".join(
        part
        for part in (
            f"#### {suite.title[0].upper()}{suite.title[1:]}",
            suite.about(counted),
            f"Left out: {_listed(reasons)}." if reasons else "",
            *(
                f"{outcome[0].upper()}{outcome[1:]}, by operator: {_listed(counts)}."
                for outcome, counts in in_few_words.items()
                if counts
            ),
            "\n".join(told_one_by_one),
            told(one["conditions"]),
            "\n".join(f"- {remark}" for remark in one.get("remarks", ())),
        )
        if part
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks coverage", description=__doc__)
    parser.add_argument("--suite", default=",".join(SUITES), metavar="NAME,...")
    parser.add_argument("--filter", default="", metavar="REGEX", help="networks of such names")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th of them")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes at once")
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/coverage"))
    parser.add_argument("--fresh", action="store_true", help="forgets what was tried before")
    parser.add_argument("--write", action="store_true", help="writes the page")
    options = parser.parse_args(arguments)
    chosen = options.suite.split(",")
    if unknown := set(chosen) - set(SUITES):
        parser.error(f"unknown suites {sorted(unknown)}: choose from {', '.join(SUITES)}")
    found = {key: _run(key, options) for key in chosen}
    known = {**(readings_of(PAGE) or {"suites": {}})["suites"], **found}
    data = {"suites": {key: known[key] for key in SUITES if key in known}}
    publish(PAGE, section, data, found[chosen[-1]]["conditions"], options.write)


if __name__ == "__main__":
    main()
