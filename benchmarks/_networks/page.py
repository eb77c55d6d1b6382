"""The page of whole networks: the answer, one table, then where the time goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks._networks.figures import (
    RIVALS,
    gains,
    geometric_mean,
    interval,
    mean_interval,
    sum_of_kernels,
)
from benchmarks.pages import Section
from benchmarks.results import table

_GOAL, _LEAST = 1.05, 0.97
_SHORTER = 0.03
_SUM_WITHIN = 0.10
_NONE = "–"

_NAMES = {
    "foretune": "foretune",
    "eager": "eager PyTorch",
    "inductor": "Inductor",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
}

Result = Mapping[str, Any]
"""Of one network: ``tune``, ``compare``, ``kernels``, ``seconds`` of tuning, perhaps ``passes``; or
``error``."""


def section(data: Mapping[str, Any]) -> Section:
    """All networks, those that failed included."""
    results: Mapping[str, Result] = data["networks"]
    done = {name: result for name, result in results.items() if "error" not in result}
    question = "Is a compiled network faster than with other engines?"
    if not done:
        return Section(question, "No network could be compared.", "", _failed(results))
    details = [
        "One sample at a time, in float32. Milliseconds of one call, the median of rounds in turn. "
        "Ratio: how many times as fast as the better of ONNX Runtime and OpenVINO foretune is, the "
        "median of the ratios within rounds with its 95 % interval. All engines of a network were "
        "timed in one run, each in a process of its own, and whoever was not timed was stopped.",
        _failed(results),
        *_shorter_table(done),
        "#### Tuning",
        _tuning_table(done),
        "Error: the largest difference of foretune's outputs from eager PyTorch's, absolute and "
        "over the magnitude there, and the tolerance for the latter. Tuning brings: the "
        "time of the network with default schedules over that of the tuned one, timed in turn "
        "at the end of tuning. Contenders bring: the time of the "
        "network with the best of each kernel over that with others that were faster in the "
        "network, where such ship.",
        "#### Kernels",
        _kernels_table(done),
        "Each kernel was timed alone, with weights and activations as far away as in the network, "
        "and counts as often as it is called. What bounds each: `foretune explain` on the work "
        "directory of the network.",
        *_pass_tables(done),
        *_days(done),
    ]
    return Section(
        question,
        _answer(done),
        _first_table(done),
        "\n\n".join(part for part in details if part),
        lambda axes: _bars(axes, done),
        "How many times as fast as the better of ONNX Runtime and OpenVINO",
    )


def _bars(axes: Any, results: Mapping[str, Result]) -> None:
    """Ratios to the better rival with their intervals, the largest first."""
    found = {name: gains(result["compare"]) for name, result in results.items()}
    best = sorted(
        ((one["best"], name) for name, one in found.items() if "best" in one),
        key=lambda each: each[0]["median"],
    )
    for at, (one, _) in enumerate(best):
        axes.barh(at, one["median"], color="tab:blue")
        axes.plot((one["low"], one["high"]), (at, at), color="black")
    axes.set_yticks(range(len(best)), [name for _, name in best])
    axes.axvline(1.0, color="grey", linestyle=":")
    axes.set_xlabel("times as fast as the better of ONNX Runtime and OpenVINO")


def summary(results: Mapping[str, Result]) -> dict[str, Any]:
    """What is said of all networks together.

    Returns:
        ``geometric_mean`` of the ratios to the better rival, with its interval over networks from
        ``low`` to ``high``, ``least`` of them, ``least_network``, ``below``: networks under the
        least that is asked, and ``behind``: by engine, the networks on which foretune is slower.
    """
    by_name = {name: gains(result["compare"]) for name, result in results.items()}
    best = {name: found["best"]["median"] for name, found in by_name.items() if "best" in found}
    engines = {engine for found in by_name.values() for engine in found} - {"best"}
    least = min(best, key=lambda name: best[name]) if best else None
    return {
        "geometric_mean": geometric_mean(best.values()) if best else None,
        **(mean_interval(list(best.values())) if best else {}),
        "least": None if least is None else best[least],
        "least_network": least,
        "below": [name for name, value in best.items() if value < _LEAST],
        "behind": {
            engine: [n for n, found in by_name.items() if _is_behind(found, engine)]
            for engine in sorted(engines)
        },
    }


def _is_behind(found: Mapping[str, Mapping[str, float]], engine: str) -> bool:
    return engine in found and found[engine]["median"] < 1


def _answer(results: Mapping[str, Result]) -> str:
    told = summary(results)
    if told["geometric_mean"] is None:
        return "Neither ONNX Runtime nor OpenVINO ran."
    ahead = {e: behind for e, behind in told["behind"].items() if e not in RIVALS}
    others = [f"{_NAMES[e]} is ahead on {_listed(names)}" for e, names in ahead.items() if names]
    nowhere = [_NAMES[engine] for engine, names in ahead.items() if not names]
    if nowhere:
        others.append(f"nowhere ahead: {_listed(nowhere)}")
    below = f"below {_LEAST}: {_listed(told['below'])}" if told["below"] else ""
    return (
        f"**{told['geometric_mean']:.2f} [{told['low']:.2f}, {told['high']:.2f}] times as fast as "
        f"the better of ONNX Runtime and OpenVINO** in geometric mean over {len(results)} networks "
        f"(goal {_GOAL}), {told['least']:.2f} times on the worst, {told['least_network']}. "
        + ". ".join(f"{part[0].upper()}{part[1:]}" for part in (below, *others) if part)
        + "."
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _first_table(results: Mapping[str, Result]) -> str:
    engines = list(
        dict.fromkeys(e for result in results.values() for e in result["compare"]["latency_s"])
    )
    rows = []
    for name, result in results.items():
        latency, found = result["compare"]["latency_s"], gains(result["compare"])
        ratio = interval(found["best"]) if "best" in found else _NONE
        rows.append([name, *(_latency(latency.get(engine)) for engine in engines), ratio])
    return table(["network", *(f"{_NAMES.get(e, e)}, ms" for e in engines), "ratio"], rows)


def _latency(found: Any) -> str:
    if not found:
        return _NONE
    return "failed" if found["median"] is None else _milliseconds(found["median"])


def _tuning_table(results: Mapping[str, Result]) -> str:
    header = ["network", "error", "tolerance", "tasks", "trials", "tuned for, s", "tuning brings",
              "contenders bring"]  # fmt: skip
    rows = []
    for name, result in results.items():
        tune = result["tune"]
        rows.append(
            [
                name,
                _error(result["compare"]["latency_s"]["foretune"]),
                f"{tune['network']['tolerance']:.1e}",
                str(len(tune["tasks"])),
                str(sum(task["trial_count"] for task in tune["tasks"])),
                f"{result['seconds']:.0f}",
                _gain(tune["network"]),
                _tried_gain(tune["network"]),
            ]
        )
    return table(header, rows)


def _shorter_table(results: Mapping[str, Result]) -> list[str]:
    """What a shorter time costs, where that was asked."""
    found = {name: result["shorter"] for name, result in results.items() if result.get("shorter")}
    if not found:
        return []
    shares = {name: one["seconds"] / results[name]["seconds"] for name, one in found.items()}
    share = geometric_mean(shares.values())
    mean = geometric_mean(one["ratio"]["median"] for one in found.values())
    rows = [
        [
            name,
            f"{one['seconds']:.0f} of {results[name]['seconds']:.0f}",
            str(one["trials"]),
            *(_milliseconds(median) for median in one["median"].values()),
            interval(one["ratio"], digits=3),
        ]
        for name, one in found.items()
    ]
    header = ["network", "seconds", "trials", "whole time, ms", "part, ms", "ratio"]
    return [
        f"#### In {share:.0%} of the time",
        f"Networks take {mean - 1:+.1%} longer in geometric mean (goal: at most {_SHORTER:.0%}).",
        table(header, rows),
        "Both were timed in turn. A ratio above 1 is what the shorter time costs.",
    ]


def _days(results: Mapping[str, Result]) -> list[str]:
    """Machine and day of each network, where the page has several."""
    when = {name: result["when"] for name, result in results.items() if "when" in result}
    if len({one["began"] for one in when.values()}) < 2:
        return []
    rows = [[name, one["hardware"]["name"], one["began"]] for name, one in when.items()]
    return ["#### Machines and days", table(["network", "machine", "from"], rows)]


def _gain(network: Mapping[str, Any]) -> str:
    """How many times as long the network with default schedules takes, in the tuning's last run."""
    default_s, tuned_s = network["default_s"], network["tuned_s"]
    gain = f"{default_s / tuned_s:.2f}" if default_s and tuned_s else _NONE
    return gain if network["shipped"] == "tuned" else f"{gain}, the default ships"


def _tried_gain(network: Mapping[str, Any]) -> str:
    gain = network.get("tried_gain")
    return f"{gain:.2f}" if gain else _NONE


def _error(found: Mapping[str, Any]) -> str:
    if found["max_abs_error"] is None:
        return "NaN"
    told = f"{found['max_abs_error']:.1e}, {found['max_relative_error']:.1e}"
    return f"{told}, outside" if found["within_tolerance"] is False else told


def _failed(results: Mapping[str, Result]) -> str:
    lines = [
        f"- {name}: {result['error']}" for name, result in results.items() if "error" in result
    ]
    for name, result in results.items():
        for engine, found in result.get("compare", {}).get("latency_s", {}).items():
            if found["error"]:
                lines.append(f"- {name}, {_NAMES.get(engine, engine)}: {found['error']}")
    return "What failed:\n\n" + "\n".join(lines) if lines else ""


def _kernels_table(results: Mapping[str, Result]) -> str:
    """Beside the network's fastest round: of each kernel its fastest reading is kept."""
    rows = []
    for name, result in results.items():
        total = sum_of_kernels(result["kernels"])
        network = min(result["compare"]["latency_s"]["foretune"]["readings"])
        known = [_NONE] * 2
        if total is not None:
            known = [_milliseconds(total), _of_network(total / network)]
        count = sum(kernel["count"] for kernel in result["kernels"])
        rows.append([name, _milliseconds(network), *known, str(count)])
    header = ["network", "fastest, ms", "sum of kernels, ms", "sum over network", "kernels"]
    return table(header, rows)


def _of_network(share: float) -> str:
    return f"{share:.2f}" + ("" if abs(share - 1) <= _SUM_WITHIN else " (off)")


def _pass_tables(results: Mapping[str, Result]) -> list[str]:
    rows = []
    for name, result in results.items():
        for each, found in (result.get("passes") or {}).items():
            rows.append([name, each, *_pass_cells(found)])
    if not rows:
        return []
    return [
        "#### What each pass brings",
        table(["network", "pass off", "times as long", "all on, ms", "off, ms", ""], rows),
        "Each network was tuned again with one pass off, and with all on, for the same short time; "
        "the two were timed in turn. Only passes that changed the network were tried. A ratio "
        "above 1 is what the pass brings.",
    ]


def _pass_cells(found: Mapping[str, Any]) -> list[str]:
    if "error" in found:
        return [_NONE, _NONE, _NONE, found["error"]]
    on, off = found["median"].values()
    remark = "default schedules ship" if found["shipped"] != "tuned" else ""
    if found["within_tolerance"] is False:
        remark = "outside the tolerance"
    return [interval(found["ratio"]), _milliseconds(on), _milliseconds(off), remark]


def _milliseconds(seconds: float) -> str:
    digits = 3 if seconds < 1e-3 else 2 if seconds < 0.1 else 1
    return f"{seconds * 1e3:.{digits}f}"
