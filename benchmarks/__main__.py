"""``python -m benchmarks [NAME ...] [--write]``: what ``make bench`` runs.

Without names the short ones run, and the written results of the long ones are shown (or said to be
missing) with the command that makes them anew.
"""

from __future__ import annotations

import sys

from benchmarks import (
    ablation,
    architectures,
    audit,
    code_levels,
    company,
    cuda,
    distillation,
    expansions,
    explained,
    favourites,
    formulas,
    gradient,
    limits,
    long_search,
    mcts,
    model_speed,
    models,
    networks,
    onnx_suite,
    panels,
    placement,
    pools,
    proposers,
    quantised,
    random_networks,
    recall,
    replay,
    residuals,
    retest,
    sampling,
    search22,
    search64,
    stages,
    throughput,
    torch_suite,
    tuners,
    unseen_devices,
    vector_math,
    world,
)
from benchmarks.results import RESULTS

SHORT = {
    "sampling": sampling.main,
    "placement": placement.main,
    "throughput": throughput.main,
    "audit": audit.main,
    "model_speed": model_speed.main,
}
_LONG = {
    "architectures": architectures.main,
    "onnx_suite": onnx_suite.main,
    "torch_suite": torch_suite.main,
    "random_networks": random_networks.main,
    "code_levels": code_levels.main,
    "cuda": cuda.main,
    "distillation": distillation.main,
    "search64": search64.main,
    "search22": search22.main,
    "long_search": long_search.main,
    "ablation": ablation.main,
    "networks": networks.main,
    "company": company.main,
    "quantised": quantised.main,
    "panels": panels.main,
    "tuners": tuners.main,
    "vector_math": vector_math.main,
    "models": models.main,
    "limits": limits.main,
    "pools": pools.main,
    "replay": replay.main,
    "proposers": proposers.main,
    "expansions": expansions.main,
    "mcts": mcts.main,
    "formulas": formulas.main,
    "gradient": gradient.main,
    "world": world.main,
    "residuals": residuals.main,
    "explained": explained.main,
    "stages": stages.main,
    "unseen_devices": unseen_devices.main,
    "recall": recall.main,
}
_WITH_ARGUMENTS = {
    "retest": "retest has two phases: python -m benchmarks.retest first, then second",
    "stores": "stores writes into an empty database: python -m benchmarks.stores --url "
    "postgresql://USER@HOST/DATABASE, some minutes",
    "tgraph": "tgraph reads files of TpuGraphs: python -m benchmarks.tgraph --data DIR, "
    "some hours on a core, resumable",
    "planned": "planned needs a model of plans: python -m benchmarks.planned --plan-model FILE, "
    "about 2 hours, resumable",
    "plans": "plans reads what was collected: python -m benchmarks.plans --data DIR, "
    "some hours on a core, resumable",
    "winograd": "winograd keeps each shape in a folder: python -m benchmarks.winograd --runs DIR, "
    "about 20 minutes, resumable",
    "favourites": "favourites reads what was measured: python -m benchmarks.favourites RUNS, "
    "a folder with work directories of foretune tune",
}
LONG = {
    "retest first": "about 5 minutes, then wait half an hour",
    "retest second": "about 5 minutes",
    "onnx_suite": "about 20 minutes, resumable",
    "torch_suite": "about 20 minutes, resumable",
    "random_networks": "about 30 minutes, resumable",
    "architectures": "about an hour, resumable",
    "code_levels": "about 5 minutes",
    "cuda": "about 15 minutes, on a GPU",
    "distillation": "about 20 minutes on a core; reads ../shared/data",
    "search64": "about 2 hours, resumable",
    "search22": "about 3 hours, resumable",
    "long_search": "about 3 hours, resumable",
    "ablation": "about 4 hours on a core, resumable",
    "networks": "about 3 hours, resumable; with --passes some 9 hours more",
    "company": "about 45 minutes after networks, resumable",
    "quantised": "about 45 minutes",
    "panels": "about 15 minutes, resumable",
    "tuners": "about 11 hours, resumable",
    "models": "about 2 hours, resumable",
    "limits": "about 10 minutes",
    "pools": "about 15 minutes",
    "replay": "about 20 minutes",
    "proposers": "about 8 minutes",
    "expansions": "about 20 minutes",
    "mcts": "about 20 hours, resumable",
    "favourites RUNS": "about two minutes, after searches",
    "formulas": "about 15 minutes",
    "gradient": "some hours, resumable",
    "world": "about 90 minutes, resumable",
    "residuals": "about 15 minutes after world",
    "explained": "about 10 minutes",
    "stages": "about 20 minutes, resumable; reads ../shared/data",
    "recall": "about 40 minutes, resumable; reads ../shared/data",
    "unseen_devices": "about 2 hours on a core, resumable; reads ../shared/data",
}


def main(arguments: list[str]) -> None:
    """Runs the named benchmarks with their full settings."""
    write = [argument for argument in arguments if argument == "--write"]
    names = [argument for argument in arguments if argument != "--write"]
    known = {*SHORT, *_LONG, *_WITH_ARGUMENTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"unknown benchmark {unknown[0]!r}: choose from {', '.join(sorted(known))}")
    for name in names or SHORT:
        if name in SHORT:
            SHORT[name](write)
        elif name in _WITH_ARGUMENTS:
            sys.exit(_WITH_ARGUMENTS[name])
        else:
            _LONG[name](write)
    if not names:
        _show_long()


def _show_long() -> None:
    print("The long ones, not run now:")
    for name, duration in LONG.items():
        print(f"  python -m benchmarks.{name} --write   ({duration})")
    shown_after = (
        retest,
        code_levels,
        search64,
        search22,
        networks,
        company,
        tuners,
        models,
        limits,
        pools,
        replay,
    )
    pages = [
        module.__name__.rsplit(".", 1)[-1]
        for module in (
            *shown_after,
            proposers,
            expansions,
            long_search,
            ablation,
            mcts,
            favourites,
            gradient,
            world,
            onnx_suite,
            torch_suite,
            architectures,
            random_networks,
            quantised,
            cuda,
            panels,
        )
    ]
    for page in (*pages, "residuals-features", "residuals-text"):
        path = RESULTS / f"{page}.md"
        shown = path.relative_to(RESULTS.parents[1])
        if path.exists():
            print(f"\n--- {shown}, measured earlier ---\n")
            print(path.read_text(encoding="utf-8"))
        else:
            print(f"\n--- {shown} is missing: this benchmark's results were never written ---")


if __name__ == "__main__":
    main(sys.argv[1:])
