"""What a language model is asked about the behaviour of a program.

What is the same for all programs of a device stands first (the role, the schema, the device), the
program last: servers compute a shared prefix once. The answer has the groups of LLMTuner's template
with a bare number per metric; sentences between them would cost most of the time and are not read.
"""

from __future__ import annotations

from foretune.describe import METRICS
from foretune.hardware import Device
from foretune.llm import Message

PROMPT_VERSION = 1
"""Raised whenever the words change: what a model answered to others is not the same."""

_ROLE = """\
You are a performance engineer. You judge how a scheduled tensor program would behave on the device
below. For every metric give a number in [0, 1] with two decimals, higher is better, also for risks
(1: no risk). Use the whole range, and tell programs apart that differ. Judge by extents of loops,
what runs in parallel or in vectors, strides, and sizes beside caches and registers. The name of a
program or of the device must not matter."""
_LAST = """\
Answer with one JSON object of this form and nothing else, without code fences:"""


def template(kind: str) -> str:
    """The form of the answer: the metrics of a kind of device by group.

    Before → after: ``"cpu"`` → ``{"parallelism_assessment": {"unit_utilization_score": 0.00, ...``.
    """
    groups: dict[str, list[str]] = {}
    for metric in METRICS:
        if kind in metric.kinds:
            groups.setdefault(metric.group, []).append(f'"{metric.name}": 0.00')
    parts = [f'"{group}_assessment": {{{", ".join(names)}}}' for group, names in groups.items()]
    return "{" + ",\n ".join(parts) + "}"


def instructions(device: Device, device_text: str) -> str:
    """What is the same for all programs on a device.

    Args:
        device: The device.
        device_text: Its data sheet in words.
    """
    metrics = "\n".join(
        f"- {metric.name}: {metric.text}" for metric in METRICS if device.kind in metric.kinds
    )
    return f"{_ROLE}\n\nMetrics:\n{metrics}\n\n{_LAST}\n{template(device.kind)}\n\n{device_text}"


def question(prefix: str, program_text: str, hint: float | None = None) -> list[Message]:
    """Messages that ask about one program.

    Args:
        prefix: What ``instructions`` gave.
        program_text: The program in words.
        hint: For distillation: how fast the program is beside the fastest of its workload, in
            [0, 1] (LLMTuner's hint_score). None: it is not told.
    """
    told = ""
    if hint is not None:
        told = (
            f"\n\nhint_score: {hint:.2f} (its speed beside the fastest known; let your scores "
            "agree with it and never mention it)"
        )
    return [
        {"role": "system", "content": prefix},
        {"role": "user", "content": f"Program:\n{program_text}{told}"},
    ]


def once_more(messages: list[Message], answer: str, told: str) -> list[Message]:
    """The same question after an answer that could not be used.

    Args:
        messages: The question.
        answer: What came.
        told: What was wrong with it.
    """
    return [
        *messages,
        {"role": "assistant", "content": answer[:2000]},
        {"role": "user", "content": f"That cannot be used: {told}. Give the JSON object alone."},
    ]
