"""Makes the list of training workloads: ``python -m benchmarks.training_workloads -o DIR``.

About a hundred networks of all kinds with random weights are exported by PyTorch, imported and cut
into the kernels that a user's network has after all passes over the graph. They are of other
widths, resolutions and lengths than the catalog's networks, which are the evaluation set, and what
they have in common with it is left out. The list is a data set without measurements, which
``foretune collect --workloads DIR`` takes.

All networks are extracted for this machine; one in three also for AVX2, whose vectors are half as
long, and another one in three without the passes whose kernels are not tuned, so that attention and
norms are in the list with their parts. What was extracted is kept in the work directory.

With ``--count N`` the list is the built-in one (``training``) and as many kernels as make it N, in
turns, so that a collection that is cut short has both.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._training.extraction import Extracted, Variant, extracted
from benchmarks._training.selection import Rules, Selected, has_space, named, select
from benchmarks.results import say, table
from foretune._files import write_text
from foretune.dataset import StoredWorkload, write_dataset
from foretune.hardware import probe
from foretune.workload import training

_PLAIN, _SHORT, _PARTS = "plain", "avx2", "parts"
_UNTUNED_PASSES = ("attention", "normalizations")
_LONGEST_S = 300.0


@dataclass(frozen=True)
class Result:
    """What came of the networks.

    Attributes:
        selected: The list.
        dropped: Reason to the number of workloads that are not in it.
        failures: Network to why it, or a variant of it, could not be extracted.
    """

    selected: list[Selected]
    dropped: Counter[str]
    failures: dict[str, str]


def variants() -> dict[str, Variant]:
    """By name: this machine, eight lanes, and this machine with attention and norms in parts."""
    here = probe(None, 1)
    return {
        _PLAIN: Variant(here),
        _SHORT: Variant(probe("llvm -mcpu=x86-64-v3", 1)),
        _PARTS: Variant(here, _UNTUNED_PASSES),
    }


def variants_of(network: str, known: dict[str, Variant]) -> dict[str, Variant]:
    """Those of a network: by its name, so that further networks change nothing for it."""
    also = (_SHORT, _PARTS, "")[zlib.crc32(network.encode()) % 3]
    return {name: variant for name, variant in known.items() if name in (_PLAIN, also)}


def collect(
    networks: Sequence[Callable[[], Any]],
    known: dict[str, Variant],
    folder: Path,
    rules: Rules,
) -> Result:
    """Extracts networks, as far as ``folder`` does not have them, and selects of what they have."""
    found: list[Extracted] = []
    failures: dict[str, str] = {}
    for number, build in enumerate(networks, 1):
        name = build.__name__
        workloads, reason = extracted(build, variants_of(name, known), folder, _LONGEST_S)
        found += workloads
        if reason:
            failures[name] = reason
        say(f"{number}/{len(networks)} {name}: {reason or f'{len(workloads)} workloads'}")
    spaces = _Spaces(folder / "spaces.json", known, rules.candidates)
    dropped: Counter[str] = Counter()
    return Result(select(found, rules, spaces.searchable, dropped), dropped, failures)


class _Spaces:
    """What is known of spaces, in a file beside the extracted workloads.

    Args:
        file: Key and variant to why there is no space, empty where there is one.
        known: Variants by name.
        candidates: How many a space must have.
    """

    def __init__(self, file: Path, known: dict[str, Variant], candidates: int) -> None:
        self._file = file
        self._variants = known
        self._candidates = candidates
        self._reasons: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}

    def searchable(self, each: Extracted) -> bool:
        """Whether there is a space; says why not."""
        key = f"{each.workload.key} {each.variant} {self._candidates}"
        if key not in self._reasons:
            hardware = self._variants[each.variant].hardware
            self._reasons[key] = has_space(each.workload, hardware, self._candidates)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._file, json.dumps(self._reasons))
        if self._reasons[key]:
            say(f"no space: {each.network}/{each.workload.name}: {self._reasons[key]}")
        return not self._reasons[key]


def report(result: Result) -> str:
    """Workloads by kind and by network, what was left out and what failed."""
    lines = [
        f"{len(result.selected)} workloads",
        "",
        _counts("kind", [each.kind for each in result.selected]),
        "",
        _counts("network", [each.origin.network for each in result.selected]),
        "",
        _counts("left out because of", result.dropped.elements()),
        "",
        f"{len(result.failures)} networks failed",
        *(f"- {name}: {reason}" for name, reason in result.failures.items()),
    ]
    return "\n".join(lines)


def beside_built_in(listed: Sequence[StoredWorkload], count: int) -> list[StoredWorkload]:
    """The built-in training workloads and the first of others, ``count`` in all, in turns."""
    excluded = training.excluded()
    built_in = [
        StoredWorkload(each.workload, each.kind)
        for each in training.training_workloads()
        if not excluded.has(each.workload)
    ]
    known = {stored.workload.key for stored in built_in}
    others = [stored for stored in listed if stored.workload.key not in known]
    others = others[: max(0, count - len(built_in))]
    placed = [
        (at / len(part), number, stored)
        for number, part in enumerate((built_in, others))
        for at, stored in enumerate(part)
    ]
    return [stored for _, _, stored in sorted(placed, key=lambda entry: entry[:2])]


def _counts(title: str, names: Iterable[str]) -> str:
    return table(
        [title, "workloads"], [[n, str(count)] for n, count in Counter(names).most_common()]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Extracts, selects, writes and reports."""
    import transformers

    from benchmarks._training.networks import NETWORKS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="the data set directory")
    parser.add_argument(
        "--work-dir", type=Path, default=Path("foretune-work/training_workloads"),
        help="keeps what was extracted",
    )  # fmt: skip
    parser.add_argument("--count", type=int, help="workloads of the list, the built-in ones too")
    options = parser.parse_args(arguments)
    transformers.logging.set_verbosity_error()
    result = collect(NETWORKS, variants(), options.work_dir, Rules())
    listed = named(result.selected)
    if options.count is not None:
        listed = beside_built_in(listed, options.count)
    write_dataset(options.output, listed, (), (), ())
    print(report(result))


if __name__ == "__main__":
    main()
