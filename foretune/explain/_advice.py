"""What to try, in words: which number holds the kernel up, and what changes it.

For a candidate, changes of single decisions that are predicted to pay come first
(``foretune.explain._changes``), each with the number that it mends; one that has no decisions, as
the default schedule has none, is set beside a sample of its space. General advice by the bound
follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from foretune.explain._changes import best_changes, best_of_space, judged, told
from foretune.explain._explanation import ABOVE, Advice, Explanation, explanation, on_one_thread
from foretune.space import Space

if TYPE_CHECKING:
    from foretune.hardware import Device
    from foretune.space import Candidate

MOST_CHANGES = 3
_WORTH = 1.03
"""Times as fast below which a predicted change is within what predictions vary."""
_WORTH_TUNING = 1.1
"""The same of the best of many, which is partly the best by chance."""
_LOW = 0.6
"""A score below which a number is worth a sentence."""


def advised(
    explained: Explanation,
    device: Device,
    candidate: Candidate | None = None,
    space: Space | None = None,
) -> Explanation:
    """The same with what to try.

    Args:
        explained: Of a kernel.
        device: For which.
        candidate: The kernel; without it, only general advice is given.
        space: Of the candidate; generated where it is needed and None.
    """
    advice = []
    if candidate is not None and candidate.sketch.variables:
        advice = _changes(explained, candidate, device)
    elif candidate is not None:
        advice = _tuning(explained, candidate, device, space)
    return replace(explained, advice=(*advice, *map(Advice, general(explained, device))))


def _tuning(
    explained: Explanation, candidate: Candidate, device: Device, space: Space | None
) -> list[Advice]:
    """What a sample of the space is predicted to gain over a schedule without decisions."""
    sketch = candidate.sketch
    best = best_of_space(space or Space.generate(sketch.workload, sketch.hardware), device)
    if best is None:
        return []
    changed, seconds, judged_ones = best
    gain = explained.predicted_s / seconds
    if gain < _WORTH_TUNING:
        return []
    text = (
        f"tune: of {judged_ones} schedules of the space the best is predicted {gain:.2f} times as "
        f"fast ({1e6 * seconds:.3g} us, this one {1e6 * explained.predicted_s:.3g} us)"
    )
    return [Advice(text, "", gain, changed.decisions, changed.sketch.key)]


def _changes(explained: Explanation, candidate: Candidate, device: Device) -> list[Advice]:
    advice = []
    for number, changed, gain in best_changes(candidate, device)[:MOST_CHANGES]:
        if gain < _WORTH:
            break
        [(_, after)] = list(judged([changed], device))
        then = explanation(after, 0, name=explained.name)
        change = told(candidate, number, changed)
        text = f"change {change}: predicted {gain:.2f} times as fast, {_why(explained, then)}"
        advice.append(Advice(text, change, gain, changed.decisions, changed.sketch.key))
    return advice


def _why(before: Explanation, after: Explanation) -> str:
    """The score that the change raises most, among those that mean something."""
    raised = {
        name: (after.scores[name] or 0.0) - (value or 0.0)
        for name, value in before.scores.items()
        if value is not None and name != "roofline_score"
    }
    name = max(raised, key=lambda each: raised[each])
    if raised[name] < 0.01:
        own, then = (each.limits_s.get(before.bound) for each in (before, after))
        if own and then and then < own:
            return f"{before.bound} takes {1e6 * own:.3g} us now and {1e6 * then:.3g} us then"
        return "by a little of everything"
    what = name.removesuffix("_score").replace("_", " ")
    return f"{what} rises from {before.scores[name] or 0:.2f} to {after.scores[name] or 0:.2f}"


def general(explained: Explanation, device: Device) -> list[str]:
    """Advice by the bound and by the lowest scores, without a particular change."""
    numbers, scores = explained.numbers, explained.scores
    by_bound = _of_cpu(explained, device) if device.has_cores else _of_gpu(explained, device)
    # What is predicted for the bound alone cannot be more than all of it.
    wrong = explained.seconds is not None and explained.share_of_bound > ABOVE
    advice = [f"if that is so: {by_bound}" if wrong else by_bound]
    if _low(scores, "coalescing_score"):
        advice.append(
            f"only {100 * (scores['coalescing_score'] or 0):.0f} % of the bytes of the cache lines "
            "that are moved are used: let the innermost loop run along the last dimension, or pack "
            "the operand"
        )
    if _low(scores, "lane_efficiency_score") and explained.bound in ("arithmetic", "instructions"):
        advice.append(
            "vector lanes stay empty: give the innermost (vectorised) loop a multiple of "
            f"{_lanes(device):.0f} iterations over contiguous data"
        )
    if _low(scores, "register_score"):
        advice.append(
            f"{numbers.get('registers_needed', float('nan')):.0f} values are alive in the inner "
            "loops, more than there are registers: make the inner tile smaller"
        )
    return advice


def _low(scores: Mapping[str, float | None], name: str) -> bool:
    value = scores[name]
    return value is not None and value < _LOW


def _lanes(device: Device) -> float:
    if not device.has_cores:
        return device.value("warp")
    return device.value("simd_fp32_lanes_of_the_compiled_code")


def _of_cpu(explained: Explanation, device: Device) -> str:
    numbers, bound = explained.numbers, explained.bound
    cores, jobs = device.value("cores"), numbers["parallel_jobs"]
    if bound == "parallelism":
        return (
            f"{jobs:.0f} pieces of work leave {max(cores - jobs, 0):.0f} of {cores:.0f} cores "
            "idle: split outer loops further, or fuse more of them into the parallel loop"
        )
    if bound == "tail":
        return (
            f"{jobs:.0f} pieces of work on {cores:.0f} cores end unevenly: make them smaller, or "
            f"their number a multiple of {cores:.0f}"
        )
    if bound == "overhead" and on_one_thread(explained):
        return "calling it takes longer than its work: fuse it with a neighbour"
    if bound == "overhead":
        return (
            "starting threads takes longer than the work: fewer threads, or fuse the kernel with a "
            "neighbour"
        )
    if bound == "latency":
        return (
            "additions wait for each other: unroll, or give the reduction an inner tile of more "
            "independent results, so that several sums are under way at once"
        )
    if bound == "arithmetic":
        return _at_peak(explained)
    if bound == "instructions":
        return (
            "loads, stores and address arithmetic outnumber the arithmetic: a larger tile of "
            "results in registers uses every loaded value more often; unrolling removes loop "
            "overhead"
        )
    return _of_memory(explained, bound)


def _of_gpu(explained: Explanation, device: Device) -> str:
    numbers, bound = explained.numbers, explained.bound
    units, blocks = device.value("units"), numbers["blocks"]
    if bound == "parallelism":
        return (
            f"{blocks:.0f} blocks leave {max(units - blocks, 0):.0f} of {units:.0f} "
            "multiprocessors idle: make blocks smaller, or split the reduction over blocks"
        )
    if bound == "tail":
        return (
            f"{blocks:.0f} blocks on {units:.0f} multiprocessors leave the last wave mostly empty: "
            "make blocks smaller, or their number a multiple of a wave"
        )
    if bound == "overhead":
        return "the launch and barriers take longer than the work: fuse it with a neighbour"
    if bound == "latency":
        return (
            "too few warps and independent operations are in flight to hide latency: raise "
            "occupancy (less shared memory or fewer registers a block), or unroll"
        )
    if bound == "shared":
        return (
            "shared memory is the limit: a larger tile of results per thread loads each value less "
            "often; pad rows where threads of a warp fall on one bank"
        )
    if bound == "arithmetic":
        return _at_peak(explained)
    if bound == "instructions":
        return (
            "instructions around the arithmetic are the limit: vectorised loads, more results per "
            "thread, unrolled inner loops"
        )
    return _of_memory(explained, bound)


def _at_peak(explained: Explanation) -> str:
    if _low(explained.scores, "vector_compute_score"):
        return (
            "the arithmetic units are busy, but not with whole vectors: vectorise the innermost "
            "loop over contiguous results"
        )
    return (
        "the arithmetic units are the limit: only less arithmetic (Winograd, another algorithm) or "
        "a narrower type makes it faster"
    )


def _of_memory(explained: Explanation, bound: str) -> str:
    names = {"l1": "the first cache", "l2": "the second cache", "l3": "the third cache"}
    place = names.get(bound, "memory")
    score = explained.scores["memory_traffic_score"]
    if bound == "memory" and score is not None and score >= _LOW:
        return (
            "memory moves little more than it must, and is the limit: fuse the kernel with its "
            "neighbours, or store a narrower type"
        )
    moved = explained.numbers.get(f"bytes_from_{bound}")
    much = "" if moved is None else f" ({moved / 1e6:.3g} MB a call)"
    if bound == "l1":
        return (
            f"{place} is the limit{much}: only registers are nearer: load whole vectors, and let a "
            "larger tile of results in registers use every loaded value more often"
        )
    return (
        f"{place} is the limit{much}: tile loops so that what is used again stays in the cache "
        "before it"
    )
