"""The page of a tuning run: one HTML file that needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune._files import write_text
from foretune.describe.words import machine_title
from foretune.errors import BadInputError, MissingDependencyError
from foretune.report import _units as units
from foretune.report._charts import small_chart, task_chart
from foretune.report._failures import failures
from foretune.report._language_model import language_model
from foretune.report._network import told_network
from foretune.report._reused import told_reused

SCHEMA = "foretune.tune/1"

_SPENT = {
    "build_s": "building candidates",
    "measure_s": "running candidates",
    "canary_s": "watching for noise",
    "search_s": "searching and learning",
    "proof_s": "proving the network",
    "plans_s": "searching its plan",
    "setup_s": "reading records",
    "start_s": "starting workers",
    "journal_s": "writing records",
}
"""Fields of seconds that make up a run's wall time, and what they went into."""
_LOWEST = 3
"""Scores of a kernel that are shown, the lowest."""


@dataclass(frozen=True)
class _Slice:
    """A part of the bar that shows where the time went."""

    label: str
    seconds: float
    percent: float


@dataclass(frozen=True)
class _TaskView:
    """A task as the template shows it: a text and a number to sort by for each column."""

    number: int
    name: str
    cells: tuple[tuple[str, float | str], ...]
    peak_percent: float
    over_trials: str
    over_time: str
    small: str


def write_report(data: Mapping[str, Any], path: str | Path) -> None:
    """Writes the page of a run. It refers to nothing outside itself and works without network.

    Args:
        data: A ``foretune.tune/1`` object, of a finished run or not.
        path: The file to write; one that is there is replaced.

    Raises:
        BadInputError: The object is not a ``foretune.tune/1`` object.
        MissingDependencyError: Jinja2 or Matplotlib is not installed.
        RecordError: The file cannot be written.
    """
    write_text(Path(path), render(data))


def render(data: Mapping[str, Any]) -> str:
    """The page as text. Arguments and errors as ``write_report``."""
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if schema != SCHEMA:
        raise BadInputError(
            f"a report is made from a {SCHEMA} object, but the schema is {schema!r}: "
            "run `foretune tune` again"
        )
    try:
        view = _view(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInputError(
            f"the {SCHEMA} object is damaged ({error!r}): run `foretune tune` again"
        ) from error
    return str(_template().render(view))


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependencyError(
            "reports need jinja2, which is not installed: pip install jinja2"
        ) from error
    # Names come from model files: everything is escaped but the charts, which hold no names.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja")


def _view(data: Mapping[str, Any]) -> dict[str, Any]:
    tasks = list(data["tasks"])
    before_s = units.sum_before(tasks)
    hardware = data["hardware"]
    network = data.get("network")
    return {
        "input": data["input"],
        "network": None if network is None else told_network(network),
        "speed_up": units.factor(units.ratio(before_s, data["tuned_s"])),
        "known": before_s is not None and data["tuned_s"] is not None,
        "before": units.seconds(before_s),
        "tuned": units.seconds(data["tuned_s"]),
        "interrupted": bool(data.get("interrupted")),
        "reused": told_reused(data),
        "machine": machine_title(hardware["name"], hardware["threads"]),
        "strategy": data["strategy"],
        "cost_model": data["cost_model"],
        "elapsed": units.duration(data["elapsed_s"]),
        "trials": sum(len(task["trials"]) for task in tasks),
        "failures": _told_failures(trial for task in tasks for trial in task["trials"]),
        "slices": _slices(data),
        "tasks": [_task_view(number, task) for number, task in enumerate(tasks)],
        "kernels": [_kernel_view(kernel) for kernel in data.get("kernels", ())],
        "language_model": language_model(data),
        "untuned_operators": [str(name) for name in data.get("untuned_operators", ())],
        "environment": [
            ("seed", str(data["seed"])),
            *_flat("hardware", hardware),
            *_flat("", data.get("environment", {})),
        ],
        "command": data.get("command", ""),
        "call": _call(data, hardware),
    }


def _kernel_view(kernel: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel's name, seconds, what bounds it, its lowest scores, and what to try."""
    from foretune.explain import Explanation, bound_in_words

    explained = Explanation.from_json(kernel)
    scores = sorted(
        (score, name.removesuffix("_score").replace("_", " "))
        for name, score in explained.scores.items()
        if score is not None and name != "roofline_score"
    )
    return {
        "name": explained.name,
        "seconds": units.seconds(explained.seconds),
        "bound": bound_in_words(explained),
        "lowest": ", ".join(f"{name} {score:.2f}" for score, name in scores[:_LOWEST]),
        "advice": [each.text for each in explained.advice],
    }


def _call(data: Mapping[str, Any], hardware: Mapping[str, Any]) -> str:
    """What a program would write to do the same anew.

    ``source`` is what it tuned, ``llm`` the session with its language model, and ``devices`` the
    data sheets that were given, if it had any.
    """
    budget = data.get("budget")
    if budget is None:
        # Results of earlier versions tell no budget; the trials are what the run made of it.
        trials = sum(len(task["trials"]) for task in data["tasks"])
        budget = {"trials": max(1, trials), "seconds": None}
    arguments = {
        "target": hardware.get("target"),
        "threads": hardware["threads"],
        "strategy": data["strategy"],
        "cost_model": data["cost_model"],
        "trials": budget["trials"],
        "time_s": budget["seconds"],
        "patience": budget.get("patience"),
        "batch": data.get("batch"),
        "seed": data["seed"],
        "options": data.get("options") or None,
        "without": tuple(data.get("passes_off", ())) or None,
        # What was chosen: given back, the passes choose the same.
        "plan": (data.get("network") or {}).get("plan") or None,
        "learn_from": tuple(data.get("learn_from", ())) or None,
    }
    lines = [f"    {name}={value!r}," for name, value in arguments.items() if value is not None]
    lines += ["    llm=llm,"] if data.get("llm") else []
    lines += ["    devices=devices,"] if hardware.get("device") else []
    return "\n".join(["foretune.tune(", "    source,", *lines, ")"])


def _slices(data: Mapping[str, Any]) -> list[_Slice]:
    spent = [(label, float(data.get(field) or 0.0)) for field, label in _SPENT.items()]
    rest = float(data["elapsed_s"]) - sum(seconds for _, seconds in spent)
    total = max(float(data["elapsed_s"]), sum(seconds for _, seconds in spent))
    if total <= 0:
        return []
    # Of a resumed run only the elapsed seconds are known, not what they went into.
    parts = [*spent, ("other, and earlier runs", rest)]
    return [_Slice(label, s, 100 * s / total) for label, s in parts if s >= total / 2000]


def _task_view(number: int, task: Mapping[str, Any]) -> _TaskView:
    trials = task["trials"]
    speed_up = units.ratio(units.before(task), task["best_s"])
    gflop = task["flops"] / 1e9
    share = task.get("peak_share")
    cells: tuple[tuple[str, float | None], ...] = (
        (str(task["weight"]), task["weight"]),
        (f"{gflop:.3g}", gflop),
        (units.seconds(units.before(task)), units.before(task)),
        (units.seconds(task["best_s"]), task["best_s"]),
        (units.factor(speed_up), speed_up),
        (units.rate(task.get("best_gflops")), task.get("best_gflops")),
        (units.share(share), share),
        (str(len(trials)), len(trials)),
        (_told_failures(trials), failures(trials).total()),
    )
    return _TaskView(
        number=number,
        name=str(task["name"]),
        cells=tuple((text, "" if value is None else value) for text, value in cells),
        peak_percent=min(100.0, 100 * (share or 0.0)),
        over_trials=task_chart(task, "trials", f"a{number}") if trials else "",
        over_time=task_chart(task, "time", f"b{number}") if trials else "",
        small=small_chart(task, f"c{number}") if trials else "",
    )


def _told_failures(trials: Iterable[Mapping[str, Any]]) -> str:
    counts = failures(trials).most_common()
    return ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in counts) or "none"


def _flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    """Nested objects as rows. Before → after: ``{"a": {"b": 1}}`` → ``[("a b", "1")]``."""
    if isinstance(value, Mapping):
        return [
            row for name, inner in value.items() for row in _flat(f"{prefix} {name}".strip(), inner)
        ]
    return [] if value is None else [(prefix, str(value))]
