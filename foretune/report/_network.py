"""The network as a whole in words: never a multiple of the default without the original."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from foretune.report import _units as units

_ENGINES = {"eager": "eager PyTorch", "onnxruntime": "ONNX Runtime"}
_ORDINARY = "tolerance"
_BORDERS = ("negative index", "large")
"""Inputs that many an original refuses, or overflows on."""


@dataclass(frozen=True)
class ToldNetwork:
    """What is said of a network.

    Attributes:
        headline: One line; "slower than the original" comes first where it is.
        slower: Whether what ships is slower than the original.
        original: The original's latency and who runs it; empty where there is none.
        latency, default: Of what ships, and of the network with default schedules, as deployed.
        verified: How far the outputs are from the original's.
        fault: Why the default ships though something was tuned; empty if the tuned one does.
    """

    headline: str
    slower: bool
    original: str
    latency: str
    default: str
    verified: str
    fault: str


def told_network(network: Mapping[str, Any]) -> ToldNetwork:
    """The object ``network`` of ``foretune.tune/1`` in words."""
    engine = _ENGINES.get(network["original"] or "", str(network["original"] or ""))
    original = f"original ({engine}) {units.seconds(network['original_s'])}" if engine else ""
    shipped_s = network["tuned_s"] if network["shipped"] == "tuned" else network["default_s"]
    gain = units.ratio(network["original_s"], shipped_s)
    slower = gain is not None and gain < 1
    line = f"network: {units.seconds(shipped_s)}"
    if slower:
        line = f"slower than the original: network {units.seconds(shipped_s)}"
    if original:
        line += f", {original}"
    if gain is not None:
        line += f", {units.factor(gain)} its speed"
    if network["shipped"] == "tuned":
        line += f"; default schedules {units.seconds(network['default_s'])}"
    elif network["tuned_s"] is None:
        line += "; with default schedules"
    fault = str(network["fault"] or "")
    if network["shipped"] is None:
        line = "no network that computes what the original does"
    elif fault:
        fault = f"the default schedules ship, not the tuned network: {fault}"
        if network["tuned_s"] is not None:
            fault += f" ({units.seconds(network['tuned_s'])})"
    return ToldNetwork(
        headline=line,
        slower=slower,
        original=original,
        latency=units.seconds(shipped_s),
        default=units.seconds(network["default_s"]),
        verified=_verified(network),
        fault=fault,
    )


def _verified(network: Mapping[str, Any]) -> str:
    if not network["inputs"]:
        return "not compared with the original: it cannot run on this machine"
    if network["shipped"] is None:
        return "differs from the original"
    error = network["max_abs_error"]
    within = "" if not error else f" within {error:.2g}"
    told = f"equal to the original{within} on {network['inputs']} inputs"
    # Runs of earlier versions do not say by whom.
    judge = network.get("judged_by") or _ORDINARY
    if judge != _ORDINARY:
        told += f", judged by {judge}"
    left_out = {n: why for n, why in (network.get("left_out") or {}).items() if n not in _BORDERS}
    if left_out:
        told += f"; not compared on {_listed(left_out)}: {_reasons(left_out)}"
    failed = [p["name"] for p in network.get("passes") or () if _failed(p)]
    if failed:
        told += f"; passes that failed: {_listed(failed)}"
    return told


def _failed(report: Any) -> bool:
    """Whether a pass is off because it failed; early runs have nothing but names."""
    from foretune.graph import PassReport

    return isinstance(report, dict) and PassReport(**report).failed


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _reasons(left_out: Mapping[str, str]) -> str:
    """The kinds of reasons; what exactly the original said stands in the JSON object."""
    return ", ".join(dict.fromkeys(why.partition(":")[0] for why in left_out.values()))
