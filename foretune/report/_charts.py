"""Charts of one task's trials as inline SVG, in colours that follow the page's theme.

Matplotlib draws; what it writes is then cut down to the ``<svg>`` element, without ids that would
clash on one page and without namespaces and metadata that name addresses on the network. No text
of the model gets into a chart: names stand in the page around it, where they are escaped.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from foretune.errors import MissingDependencyError
from foretune.report._units import before

Axis = Literal["trials", "time"]

_INK, _ACCENT, _DOT, _BAD, _GRID = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
_THEME = {
    _INK: "currentColor",
    _ACCENT: "var(--accent)",
    _DOT: "var(--dot)",
    _BAD: "var(--bad)",
    _GRID: "var(--line)",
}
"""Stand-in colours that are replaced by those of the style sheet."""

_MOST_DOTS = 600
"""Single trials shown per chart; of more, evenly spaced ones. The line is always complete."""


@dataclass(frozen=True)
class _Points:
    x: list[float]
    y: list[float]

    def thinned(self) -> _Points:
        step = -(-len(self.x) // _MOST_DOTS) or 1
        return _Points(self.x[::step], self.y[::step])


def task_chart(task: Mapping[str, Any], axis: Axis, name: str) -> str:
    """Best latency so far, every trial and every failure, over trials or over time.

    Args:
        task: A task of a ``foretune.tune/1`` object with at least one trial.
        axis: What is on the horizontal axis.
        name: Unlike that of any other chart of the page: letters and digits.
    """
    figure, axes = _figure(4.6, 2.9, left=0.11, bottom=0.14)
    _draw(axes, task, axis, dots=True)
    axes.set_xlabel("trial" if axis == "trials" else "seconds since the start")
    axes.set_ylabel("ms (log scale)")
    return _svg(figure, name)


def small_chart(task: Mapping[str, Any], name: str) -> str:
    """The same over trials, small and without labels of axes, for a grid of all tasks."""
    figure, axes = _figure(2.1, 1.2, left=0.17, bottom=0.15)
    _draw(axes, task, "trials", dots=False)
    axes.tick_params(labelsize=7, length=2)
    return _svg(figure, name)


def _figure(width: float, height: float, left: float, bottom: float) -> tuple[Any, Any]:
    """A figure of inches with margins as shares; pyplot is not used, it keeps global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            "charts need matplotlib, which is not installed: pip install matplotlib"
        ) from error
    figure = Figure(figsize=(width, height))
    # Automatic layout would take most of the time of a page with fifty tasks.
    figure.subplots_adjust(left=left, bottom=bottom, right=0.99, top=0.96)
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_INK)
    axes.tick_params(which="both", colors=_INK, labelsize=8)
    axes.xaxis.label.set(color=_INK, size=8)
    axes.yaxis.label.set(color=_INK, size=8)
    axes.grid(True, color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure, axes


def _draw(axes: Any, task: Mapping[str, Any], axis: Axis, dots: bool) -> None:
    trials = sorted(task["trials"], key=lambda t: t["index" if axis == "trials" else "elapsed_s"])
    at = [t["index"] + 1 if axis == "trials" else t["elapsed_s"] for t in trials]
    best = _points(at, [t["best_s"] for t in trials])
    before_s = before(task)
    if before_s:
        axes.axhline(before_s * 1e3, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
    if dots:
        each = _points(at, [min(t["seconds"]) if t["seconds"] else None for t in trials]).thinned()
        axes.plot(each.x, each.y, "o", color=_DOT, markersize=3, markeredgewidth=0)
    axes.step(best.x, best.y, where="post", color=_ACCENT, linewidth=1.8)
    if best.x:
        # The line goes on to the last trial, and a single trial is seen at all.
        axes.plot([best.x[-1]], [best.y[-1]], "o", color=_ACCENT, markersize=3.5)
    failed = [x for x, t in zip(at, trials, strict=True) if not t["seconds"]]
    step = -(-len(failed) // _MOST_DOTS) or 1
    axes.plot(
        failed[::step],
        [0.97] * len(failed[::step]),
        "x",
        color=_BAD,
        markersize=4,
        transform=axes.get_xaxis_transform(),
        clip_on=False,
    )
    begin = 0.0 if axis == "trials" else min(at)
    axes.set_xlim(begin, begin + max(max(at) - begin, 1) * 1.02)
    if best.y or before_s:
        _logarithmic(axes)
    else:
        axes.set_yticks([])


def _logarithmic(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    # Less than a decade holds at most one power of ten: label steps in between as well.
    steps = (1, 2, 5) if high / low < 100 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if high / low < 4:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8), numticks=6))


def _points(at: Sequence[float], seconds: Sequence[float | None]) -> _Points:
    known = [(x, s * 1e3) for x, s in zip(at, seconds, strict=True) if s]
    return _Points([x for x, _ in known], [y for _, y in known])


def _svg(figure: Any, name: str) -> str:
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "foretune"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(xmlns(:\w+)?|version)="[^"]*"', "", text)
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text)
    text = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"\sfont-family: [^;\"]*;", "", text)
    # Every chart has marks of its own: those of a chart that is not shown cannot be referred to.
    text = re.sub(r'((?:id="|url\(#|href="#))([mp][0-9a-f]{10})', rf"\1{name}-\2", text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    for stand_in, colour in _THEME.items():
        text = text.replace(stand_in, colour)
    return text
