"""Draws docs/imports.svg: which room imports which, before and after the rooms were put in order.

pip install grimp matplotlib
python docs/imports.py COMMIT COMMIT
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib
import networkx
from matplotlib import pyplot
from matplotlib.patches import Arc

matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"
COMMON = {"errors", "foretune"}
ROOT = Path(__file__).resolve().parents[1]


def main(commits: list[str]) -> None:
    """Draws one panel for each commit."""
    figure, axes = pyplot.subplots(1, len(commits), figsize=(5.5 * len(commits), 9))
    for axis, commit in zip(axes, commits, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(
                ["git", "archive", commit, "foretune"], cwd=ROOT, check=True, stdout=subprocess.PIPE
            )
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            draw(axis, commit, imports(folder))
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "imports.svg", metadata={"Date": None})


def imports(folder: str) -> networkx.DiGraph:
    """Modules of the package and what each imports at run time, within functions or not."""
    code = (
        "import grimp, json, sys; sys.path.insert(0, sys.argv[1]); "
        "g = grimp.build_graph('foretune', exclude_type_checking_imports=True, cache_dir=None); "
        "print(json.dumps([[m, n] for m in g.modules "
        "for n in g.find_modules_directly_imported_by(m)]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, folder], check=True, capture_output=True, text=True
    )
    return networkx.DiGraph(json.loads(done.stdout))


def room(module: str) -> str:
    """The part of the package that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def draw(axis: pyplot.Axes, commit: str, modules: networkx.DiGraph) -> None:
    """Rooms in the order of imports, an arc for each pair, as wide as there are imports."""
    pairs = Counter((room(a), room(b)) for a, b in modules.edges if room(a) != room(b))
    # What everybody imports hides the rest.
    pairs = Counter({pair: n for pair, n in pairs.items() if not {*pair} & COMMON and
                     not any(name.startswith("_") for name in pair)})  # fmt: skip
    order = list(networkx.lexicographical_topological_sort(networkx.DiGraph(pairs.keys())))
    at = {name: -place for place, name in enumerate(order)}
    for (one, other), count in pairs.items():
        middle, height = (at[one] + at[other]) / 2, abs(at[one] - at[other])
        arc = Arc((0, middle), height * 0.5, height, theta1=-90, theta2=90,
                  lw=0.3 + 0.12 * count, color="#34618d", alpha=0.5)  # fmt: skip
        axis.add_patch(arc)
    for name, y in at.items():
        axis.text(-0.4, y, name, ha="right", va="center", fontsize=7)
    circles = [c for c in networkx.strongly_connected_components(modules) if len(c) > 1]
    axis.set_title(
        f"{commit}: {len(modules)} modules, {len(circles)} circles of modules", fontsize=9
    )
    axis.set_xlim(-9, len(order) * 0.27)
    axis.set_ylim(-len(order), 1)
    axis.axis("off")


if __name__ == "__main__":
    main(sys.argv[1:])
