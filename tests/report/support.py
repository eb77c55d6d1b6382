"""Results of tuning runs, made up."""

from __future__ import annotations

from typing import Any

from foretune.cost.behaviour.answers import Counts


def trial(index: int, status: str = "ok", seconds: float | None = 1e-3) -> dict[str, Any]:
    """A trial; ``seconds`` None for one without a reading."""
    return {
        "index": index,
        "elapsed_s": 0.5 * index,
        "status": status,
        "seconds": None if seconds is None else [seconds, 2 * seconds],
        "best_s": None,
    }


def task(name: str = "matmul", trials: int = 12, **changes: Any) -> dict[str, Any]:
    """A task whose trials get faster; every fifth one fails."""
    made, best = [], None
    for index in range(trials):
        fails = index % 5 == 4
        one = trial(index, "timeout" if fails else "ok", None if fails else 2e-3 / (index + 1))
        best = best if fails else min(best or 1.0, 2e-3 / (index + 1))
        made.append({**one, "best_s": best})
    rate = None if best is None else 1e8 / best / 1e9
    return {
        "name": name,
        "key": "0" * 16,
        "weight": 2,
        "flops": 1e8,
        "untuned_s": 40e-3,
        "default_s": 4e-3,
        "best_s": best,
        "trials": made,
        "best_gflops": rate,
        "peak_share": None if rate is None else rate / 1000,
        **changes,
    }


def network(**changes: Any) -> dict[str, Any]:
    """What a run says of a network as a whole."""
    return {
        "original": "onnxruntime",
        "original_s": 40e-3,
        "default_s": 640e-3,
        "tuned_s": 32e-3,
        "shipped": "tuned",
        "max_abs_error": 3e-6,
        "max_relative_error": 1e-6,
        "tolerance": 1e-4,
        "inputs": 8,
        "passes": [],
        "plan": {},
        "proof_s": 12.0,
        "fault": None,
        **changes,
    }


def llm(**changes: Any) -> dict[str, Any]:
    """What a run says of its language model."""
    return {
        "model": "qwen3",
        "settings": {"temperature": 0.7},
        "calls": 12,
        "answers": 9,
        "cached": 0,
        "failed": 3,
        "prompt_tokens": 9000,
        "completion_tokens": 700,
        "seconds": 41.5,
        "invalid": 2,
        "dropped": 5,
        "proposals": 20,
        "judged": 16,
        "hits": 4,
        "hit_rate": 0.25,
        "usd": 0.0123,
        "left_out": None,
        **changes,
    }


def scores(**changes: Any) -> dict[str, Any]:
    """What a run says of the scores that its cost model asked a language model for."""
    return {
        "scores": "llm",
        **Counts(programs=128, answers=95, fallback=36, cached=3).to_json(),
        **changes,
    }


def result(*tasks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A ``foretune.tune/1`` object."""
    return {
        "schema": "foretune.tune/1",
        "input": "net.onnx",
        "hardware": {
            "key": "k",
            "name": "Some CPU",
            "target": '{"kind": "llvm"}',
            "threads": 2,
            "peak_gflops": 230.0,
            "gpu": None,
        },
        "strategy": "evolutionary",
        "cost_model": "gbdt",
        "seed": 7,
        "elapsed_s": 100.0,
        "search_s": 5.0,
        "build_s": 50.0,
        "measure_s": 30.0,
        "untuned_s": 160e-3,
        "tuned_s": 2e-3,
        "tasks": list(tasks),
        "untuned_operators": ["resize2d"],
        "interrupted": False,
        "environment": {"tvm": "0.27", "policy": {"repeats": 5}},
        "command": "foretune tune net.onnx --trials 64",
        **changes,
    }
