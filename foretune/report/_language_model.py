"""What a run says of its language model, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foretune.report import _units as units

_OF_ANSWERS = (
    ("malformed", "malformed"),
    ("sparse", "with too few scores"),
    ("retried", "asked for once more"),
)
_OF_SCORES = (
    ("clipped", "clipped"),
    ("texts", "written as texts"),
    ("rejected", "rejected"),
    ("missing", "missing"),
    ("extra", "that nobody asked for"),
)
"""What may be wrong with answers and with the scores in them: counts, and words for these."""


def language_model(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and texts, what was spent first; empty for a run without a language model.

    Args:
        data: A ``foretune.tune/1`` object.
    """
    llm = data.get("llm")
    if not llm:
        return []
    cached = f", {llm['cached']} more known from before" if llm["cached"] else ""
    failed = f", {llm['failed']} questions without an answer" if llm["failed"] else ""
    told = [
        ("model", str(llm["model"])),
        ("calls", f"{llm['calls']}, {llm['answers']} answers{cached}{failed}"),
        ("tokens", f"{llm['prompt_tokens']} read, {llm['completion_tokens']} written"),
        ("seconds", f"{llm['seconds']:.1f} s of answering, some of it at the same time"),
        ("cost", f"${llm['usd']:.4f}" if llm["usd"] else "no price is given"),
    ]
    if llm.get("scores"):
        told.append(("scores", _scores(llm["scores"])))
    if not llm.get("scores") or llm["proposals"] or llm["invalid"]:
        told.append(
            (
                "proposals",
                f"{llm['proposals']}, {units.share(llm['hit_rate'])} better than their parent by "
                f"the cost model; {llm['invalid']} answers without any",
            )
        )
    return told + ([("left out", str(llm["left_out"]))] if llm["left_out"] else [])


def _scores(counts: Mapping[str, Any]) -> str:
    """What became of the scores that a cost model asked for."""

    def counted(named: Sequence[tuple[str, str]]) -> str:
        return ", ".join(f"{counts[name]} {word}" for name, word in named if counts.get(name))

    answers, scores = counted(_OF_ANSWERS), counted(_OF_SCORES)
    # Early results do not say of how many.
    total = f" of {counts['programs']}" if "programs" in counts else ""
    known = f", {counts['cached']} known from before" if counts.get("cached") else ""
    parts = [
        f"{counts['fallback']}{total} programs scored by formulas instead{known}",
        f"{counts['answers']} answers" + (f", {answers}" if answers else ""),
        f"of their scores {scores}" if scores else "",
    ]
    return "; ".join(filter(None, parts))
