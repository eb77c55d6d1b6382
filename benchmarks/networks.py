"""``python -m benchmarks networks``: whole networks tuned, then compared with other engines.

Ten minutes of tuning for each network, five where a call takes less than 20 ms; all engines
of a network are timed in one run. Then it is tuned in a quarter of the time, and both results are
timed in turn. It calls the command line, as a user does. What is in the work directory already is
not done again, and a network that fails does not lose the others. ``--add`` keeps the networks that
the page has from other days or machines. With ``--passes`` also what passes over the graph bring,
some minutes of tuning for each: a few that matter to a network, those that are named, or ``all``.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import Any

from benchmarks._networks import kernels, passes
from benchmarks._networks.page import section, summary
from benchmarks._networks.runs import foretune, in_turns, or_error, tuned
from benchmarks.cells import kept
from benchmarks.pages import publish
from benchmarks.results import conditions, read_json, readings_of
from foretune.engines import ENGINES

_LONG_S, _SHORT_S = 600.0, 300.0
_SHORT = ("mobilenet_v2", "dcgan", "efficientnet_b0")
"""Networks whose calls take less than 20 ms: so do their trials."""
NETWORKS = (
    "resnet50",
    "mobilenet_v2",
    "resnet18_3d",
    "bert_base",
    "gpt2",
    "vit_b_32",
    "dcgan",
    "llama_block",
    "efficientnet_b0",
    "unet",
    "detr",
    "wav2vec2",
)
_WHEN = ("hardware", "began", "ended", "machine", "versions", "command")
"""Conditions that are kept of each network, where a page has those of several days."""
_ALL, _SOME = "all", "some"
_TRIED = {
    "mobilenet_v2": ("batch-norms", "layouts", "packed-weights", "one-function"),
    "dcgan": ("transposed-convolutions",),
    "vit_b_32": ("vector-math", "packed-weights", "attention", "prefetch"),
    "resnet50": ("algorithms", "packed-weights"),
    "gpt2": ("vector-math", "attention"),
    "unet": ("algorithms",),
    "efficientnet_b0": ("one-function", "vector-math"),
    "wav2vec2": ("transposes",),
    "bert_base": ("normalizations", "attention"),
}
"""Passes that are left out, of each network, where none are named."""


def run_network(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one network: tuned, compared, its kernels, and its passes if asked for."""
    folder = options.work_dir / name
    seconds = options.time or (_SHORT_S if name in _SHORT else _LONG_S)
    artifact, tune = tuned(name, folder, seconds, options.seed)
    compared = folder / "compare.json"
    if not compared.exists():
        foretune(
            "compare", name, "--artifact", str(artifact), "--against", options.against,
            "--json", str(compared),
        )  # fmt: skip
    found = kept(
        folder / "kernels.json",
        lambda: {"kernels": kernels.of_network(name, tune)},
    )
    result = {"seconds": seconds, "tune": tune, "compare": read_json(compared), **found}
    if options.share:
        result["shorter"] = kept(
            folder / "shorter.json",
            lambda: _shorter(name, artifact, folder, seconds * options.share, options.seed),
        )
    if options.passes is not None:
        only = options.passes.split(",")
        if options.passes == _SOME:
            only = list(_TRIED.get(name, ()))
        if only:
            result["passes"] = passes.of_network(
                name, folder / "passes", options.pass_time, options.seed,
                [] if options.passes == _ALL else only,
            )  # fmt: skip
    return result


def _shorter(name: str, whole: Path, folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """What the network is like after a shorter time, in turn with the longer one."""
    other, tune = tuned(name, folder / "shorter", seconds, seed)
    trials = sum(task["trial_count"] for task in tune["tasks"])
    sides = {"the whole time": whole, "a part of it": other}
    return {**in_turns(name, sides, seed), "seconds": seconds, "trials": trials}


def _earlier(names: Collection[str]) -> dict[str, Any]:
    """Results of the page as it stands, of networks other than these."""
    page_of = readings_of("networks")
    if page_of is None:
        return {}
    return {
        name: {"when": {key: page_of["conditions"][key] for key in _WHEN}, **result}
        for name, result in page_of["networks"].items()
        if name not in names
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks networks", description=__doc__)
    parser.add_argument("--networks", default=",".join(NETWORKS), metavar="NAME,...")
    parser.add_argument("--time", type=float, metavar="SECONDS", help="of tuning, for each")
    parser.add_argument("--against", default=",".join(ENGINES), metavar="E,...")
    parser.add_argument(
        "--passes",
        nargs="?",
        const=_SOME,
        metavar="NAME,...|all",
        help="also what passes bring: some that matter to each network, these, or all",
    )
    parser.add_argument("--pass-time", type=float, default=180.0, metavar="SECONDS")
    parser.add_argument(
        "--share",
        type=float,
        default=0.25,
        help="of the time, in which it is tuned again; 0 for not at all",
    )
    parser.add_argument("--add", action="store_true", help="keep the page's other networks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work-dir", type=Path, default=Path("foretune-work/networks"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("networks", [options.seed])
    results = {
        name: or_error(name, lambda name=name: run_network(name, options))  # type: ignore[misc]
        for name in options.networks.split(",")
    }
    ended = where.end()
    if options.add:
        when = {key: ended[key] for key in _WHEN}
        results = {name: {"when": when, **result} for name, result in results.items()}
        earlier = _earlier(results)
        found = {**earlier, **results}
        results = {name: found[name] for name in (*NETWORKS, *found) if name in found}
    done = {name: result for name, result in results.items() if "error" not in result}
    data = {"summary": summary(done), "networks": results}
    publish("networks", section, data, ended, options.write)


if __name__ == "__main__":
    main()
