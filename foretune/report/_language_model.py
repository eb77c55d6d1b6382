"""What a run says of its language model, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foretune.report import _units as units


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
        (
            "proposals",
            f"{llm['proposals']}, {units.share(llm['hit_rate'])} better than their parent by the "
            f"cost model; {llm['invalid']} answers without any",
        ),
    ]
    return told + ([("left out", str(llm["left_out"]))] if llm["left_out"] else [])
