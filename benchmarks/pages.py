"""Pages of results: what files of readings say, one section each.

``python -m benchmarks pages [PAGE ...]`` writes them anew from the readings that are kept, without
measuring. A benchmark that is done hands its readings to ``publish``, which does the same to the
pages that have a section of them. Of several files of readings the first gives a page its title;
details stand behind the answers of all.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results

PAGES: Mapping[str, Mapping[str, str]] = {
    "coverage": {"coverage": "coverage"},
    "cuda": {"cuda": "cuda"},
    "labels": {"labels": "audit"},
    "networks": {
        "networks": "networks",
        "learned_from": "learned_from",
        "quantised": "quantised",
        "company": "company",
    },
    "search": {
        "search22": "search22",
        "search22-left-out": "search22",
        "long_search": "long_search",
    },
    "strategies": {"search22-sides": "search22", "mcts": "search22"},
    "tuners": {"tuners": "tuners", "tuners-resnet50": "tuners"},
    "speed": {"throughput": "throughput", "model_speed": "model_speed", "stores": "stores"},
    "models": {"models": "models", "limits": "limits"},
    "devices": {
        "unseen_devices": "unseen_devices",
        "own_variants": "own_variants",
        "stages": "stages",
    },
    "world": {"world": "world", "world_start": "world_start"},
    "plans": {"plans": "plans", "tgraph": "tgraph", "planned": "planned"},
}
"""Page -> its files of readings, each with the module whose ``section`` tells what it says."""

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """What one file of readings says.

    Attributes:
        question: The title.
        answer: A sentence, with its interval.
        table: Markdown.
        details: Markdown that stands behind; its headings begin with ``####``.
        plot: Draws on matplotlib's axes; None where a plot says nothing.
        shows: What the plot shows, in words.
    """

    question: str
    answer: str
    table: str
    details: str = ""
    plot: Callable[[Any], None] | None = None
    shows: str = ""


def publish(
    name: str, section: Callable[[Data], Section], data: Data, where: Data, write: bool
) -> None:
    """Prints what readings say and, if asked, keeps them and writes the pages that have them.

    Args:
        name: Of the file of readings; also of their page, if none of ``PAGES`` has them.
        section: Tells what they say.
        data: The readings.
        where: What ``Conditions.end`` gave.
        write: Whether to write files.
    """
    kept = {**data, "conditions": where}
    print(text({name: (section(kept), kept)}), flush=True)
    if not write:
        return
    results.RESULTS.mkdir(parents=True, exist_ok=True)
    results.write_readings(name, kept)
    for page in [page for page, files in PAGES.items() if name in files]:
        draw(page)
    if not any(name in files for files in PAGES.values()):
        _write(name, {name: (section(kept), kept)})


def draw(page: str) -> None:
    """Writes a page of ``PAGES`` from the readings that are there."""
    found = {}
    for name, module in PAGES[page].items():
        data = results.readings_of(name)
        if data is not None:
            told = importlib.import_module(f"benchmarks.{module}").section(data)
            found[name] = (told, data)
    if found:
        _write(page, found)


def _write(page: str, sections: Mapping[str, tuple[Section, Data]]) -> None:
    for name, (section, _) in sections.items():
        if section.plot is not None:
            _draw(section.plot, results.RESULTS / f"{name}.svg")
    path = results.RESULTS / f"{page}.md"
    path.write_text(text(sections), encoding="utf-8")
    print(f"written: {path}", flush=True)


def text(sections: Mapping[str, tuple[Section, Data]]) -> str:
    """A page in Markdown: every question with its answer, then the details of each."""
    parts = []
    for number, (name, (section, data)) in enumerate(sections.items()):
        parts += [f"{'##' if number else '#'} {section.question}", section.answer, section.table]
        if section.plot is not None:
            parts.append(f"![{section.shows}]({name}.svg)")
        parts.append(_in_short(data["conditions"]))
    for number, (name, (section, data)) in enumerate(sections.items()):
        parts += ["## Details"] if not number else []
        parts += [f"### {section.question}"] if len(sections) > 1 else []
        file = f"{name}{results.READINGS}"
        remarks = [*data.get("remarks", ()), f"Readings: [{file}]({file})"]
        listed = [*(f"- {remark}" for remark in remarks), results.told(data["conditions"])]
        parts += [section.details, "\n".join(listed)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_short(where: Data) -> str:
    hardware = where["hardware"]
    return (
        f"{results.quoted(where['command'])}, {hardware['name']}, {hardware['threads']} threads, "
        f"{where['began'][:10]}"
    )


def _draw(plot: Callable[[Any], None], path: Path) -> None:
    import matplotlib
    from matplotlib.figure import Figure

    # The same readings give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "foretune", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7, 3.8), layout="constrained")
        plot(figure.subplots())
        figure.savefig(path, format="svg", metadata={"Date": None})


def curves(
    axes: Any,
    found: Mapping[str, Sequence[tuple[float, float, float, float]]],
    x: str,
    y: str,
) -> None:
    """Lines with bands: points of ``x, mean, low, high`` by label."""
    for label, points in found.items():
        at, mean, low, high = zip(*points, strict=True)
        axes.plot(at, mean, marker="o", label=label)
        axes.fill_between(at, low, high, alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks := sorted({point[0] for points in found.values() for point in points}))
    axes.set_xticklabels([f"{tick:g}" for tick in ticks])
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", choices=[[], *PAGES], help="all, if none is named")
    for page in parser.parse_args(arguments).pages or PAGES:
        draw(page)


if __name__ == "__main__":
    main()
