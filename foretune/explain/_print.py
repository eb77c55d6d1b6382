"""Explanations for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from foretune.describe import METRICS
from foretune.explain._explanation import ABOVE, PARALLELISM, TAIL, Explanation, on_one_thread

_BOUNDS = {
    "arithmetic": "the arithmetic units",
    "instructions": "the instructions around the arithmetic",
    "latency": "operations that wait for each other",
    "l1": "the bandwidth of the first cache",
    "l2": "the bandwidth of the second cache",
    "l3": "the bandwidth of the third cache",
    "memory": "the bandwidth of memory",
    "shared": "the bandwidth of shared memory",
    "overhead": "starting threads and waiting at barriers",
    PARALLELISM: "too little parallel work",
    TAIL: "uneven ends of parallel work",
}


def bound_in_words(explained: Explanation) -> str:
    """One sentence: what bounds the kernel, and how far it is from that."""
    share = explained.share_of_bound
    what = _BOUNDS[explained.bound]
    if explained.bound == "overhead" and on_one_thread(explained):
        what = "what a call costs"
    if explained.bound in (PARALLELISM, TAIL):
        return f"bound by {what}: {100 * share:.0f} % of the units work"
    own = 1e6 * explained.limits_s[explained.bound]
    if explained.seconds is not None and share > ABOVE:
        return (
            f"bound by {what}, as far as is known: {own:.4g} us are predicted for it alone, "
            f"{share:.3g} times what was measured"
        )
    return f"bound by {what}: {own:.4g} us of it at least, {100 * share:.0f} % of the time"


def print_explanations(
    explained: Sequence[Explanation],
    left_out: Mapping[str, str] | None = None,
    console: Console | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Prints kernels, the heaviest first: bound, scores by group, numbers and what to try.

    Args:
        explained: Of kernels.
        left_out: Names of kernels that could not be explained, and why.
        console: Where to print; standard output if None.
        notes: What is to be known of all of them, a sentence each.
    """
    console = console or Console(highlight=False)
    for one in explained:
        times = f" x {one.weight}" if one.weight > 1 else ""
        measured = "not measured" if one.seconds is None else f"{1e6 * one.seconds:.4g} us"
        console.print(
            Text(f"{one.name}{times}  {measured}, predicted {1e6 * one.predicted_s:.4g} us"),
            style="bold",
            soft_wrap=True,
        )
        lines = [
            f"on {one.device_name or one.device}",
            bound_in_words(one),
            _limits(one),
            *_scores(one),
            *_counted(one),
        ]
        if one.approximate:
            lines.append("its loops could be described only closely")
        lines += [f"try: {each.text}" for each in one.advice]
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2)))
        console.print()
    for note in notes:
        console.print(Text(note), soft_wrap=True)
    for name, reason in (left_out or {}).items():
        console.print(Text(f"{name} is not explained: {reason}"), style="yellow")


def _limits(one: Explanation) -> str:
    ordered = sorted(one.limits_s.items(), key=lambda entry: -entry[1])
    return "limits: " + ", ".join(f"{name} {1e6 * s:.4g} us" for name, s in ordered[:5])


def _scores(one: Explanation) -> list[str]:
    lines = []
    for group in dict.fromkeys(metric.group for metric in METRICS):
        told = [
            f"{metric.name.removesuffix('_score').replace('_', ' ')} {score:.2f}"
            for metric in METRICS
            if metric.group == group and (score := one.scores[metric.name]) is not None
        ]
        lines.append(f"{group}: {', '.join(told)}")
    return lines


def _counted(one: Explanation) -> list[str]:
    """Counters beside what was predicted, where both are known."""
    if not one.counted:
        return []
    told = []
    for name, counted in one.counted.items():
        predicted = one.numbers.get(name)
        beside = "" if predicted is None else f" (predicted {predicted:.4g})"
        told.append(f"{name.replace('_', ' ')} {counted:.4g}{beside}")
    return ["counted: " + ", ".join(told)]
