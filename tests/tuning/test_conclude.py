"""What ships in the end, step by step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from foretune.tuning import conclude as concluding
from foretune.tuning.network import Network


class FakeProof:
    """A proof whose expectations the conclusion changes."""

    def __init__(self, before: bool, after: bool) -> None:
        self.default = SimpleNamespace(manifest={})
        self.network = Network()
        self.events: list[str] = []
        self._can = before
        self._after = after

    def can_try(self, most_s: float) -> bool:
        self.events.append(f"may it take {most_s:g} s?")
        return self._can

    def conclude(self, *_: Any) -> Any:
        self.events.append("conclude")
        self._can = self._after
        return SimpleNamespace(manifest={})

    def improve(self, shipped: Any, *_: Any) -> Any:
        self.events.append("improve")
        return shipped


@pytest.mark.parametrize("reserved", [True, False])
def test_contenders_are_tried_where_time_was_reserved_for_that(
    monkeypatch: pytest.MonkeyPatch, reserved: bool
) -> None:
    monkeypatch.setattr(concluding, "contenders", lambda tasks: ["another"])
    monkeypatch.setattr(concluding, "replace", lambda result, **_: result)
    proof = FakeProof(before=reserved, after=not reserved)
    silent = SimpleNamespace(phase=lambda _line: None)
    result: Any = SimpleNamespace(chosen={}, kernels=[], interrupted=False, spent_s={})
    tuner: Any = SimpleNamespace(
        progress=silent, tasks=[], budget=SimpleNamespace(reserve_s=5.0),
        spending=SimpleNamespace(elapsed_s=0.0),
    )  # fmt: skip
    concluding.conclude(proof, result, tuner, None)  # type: ignore[arg-type]
    tried = ["improve"] if reserved else []
    assert proof.events == ["may it take 5 s?", "conclude", *tried]
