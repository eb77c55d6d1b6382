"""How quantities are written for people; what is unknown is a dash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

UNKNOWN = "–"


def seconds(value: float | None) -> str:
    """Three digits and the unit that fits. Before → after: ``0.00123`` → ``1.23 ms``."""
    if value is None:
        return UNKNOWN
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor or unit == "µs":
            return f"{_three_digits(value / factor)} {unit}"
    raise AssertionError("unreachable: the loop always returns")


def duration(value: float | None) -> str:
    """A time span to the second. Before → after: ``3725.4`` → ``1 h 02 min``."""
    if value is None:
        return UNKNOWN
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def factor(value: float | None) -> str:
    """A speed-up. Before → after: ``2.345`` → ``2.35×``."""
    return UNKNOWN if value is None else f"{_three_digits(value)}×"


def share(value: float | None) -> str:
    """A share as a percentage. Before → after: ``0.934`` → ``93 %``."""
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def rate(value: float | None) -> str:
    """A rate in GFLOP/s, without the unit. Before → after: ``228.31`` → ``228``."""
    return UNKNOWN if value is None else _three_digits(value)


def ratio(before: float | None, after: float | None) -> float | None:
    """``before / after`` where both are known and positive, else None."""
    return before / after if before and after else None


def before(task: Mapping[str, Any]) -> float | None:
    """Seconds of a task of ``foretune.tune/1`` before tuning, if known.

    Those of its default schedule; of the untuned program where there is no such schedule.
    """
    known = task.get("default_s") or task["untuned_s"]
    return None if known is None else float(known)


def sum_before(tasks: Iterable[Mapping[str, Any]]) -> float | None:
    """Seconds of all tasks before tuning, each times its weight; None if one is unknown."""
    each = [(before(task), task["weight"]) for task in tasks]
    known = [seconds * weight for seconds, weight in each if seconds is not None]
    return sum(known) if known and len(known) == len(each) else None


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
