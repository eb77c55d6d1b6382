"""Policies for tests: constants of measuring as options."""

from __future__ import annotations

from dataclasses import dataclass

from foretune.measure import MeasurePolicy


@dataclass(frozen=True)
class OpenPolicy(MeasurePolicy):
    """What no user chooses can be chosen here."""

    window: int | None = MeasurePolicy.window
    build_factor: float = MeasurePolicy.build_factor
    build_least_s: float = MeasurePolicy.build_least_s
    recycle_builds: int = MeasurePolicy.recycle_builds
    reading_s: float = MeasurePolicy.reading_s
    min_readings: int = MeasurePolicy.min_readings
    spread: float = MeasurePolicy.spread
    reread_share: float = MeasurePolicy.reread_share
    quiet_wait_s: float = MeasurePolicy.quiet_wait_s
    compare_rounds: int = MeasurePolicy.compare_rounds
    compare_extra_rounds: int = MeasurePolicy.compare_extra_rounds
