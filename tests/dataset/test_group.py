from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.dataset import Group, Program
from foretune.errors import BadInputError
from foretune.space import Action


def group(seconds: list[float], **more: object) -> Group:
    programs = [Program(actions=[Action("SP", (i,))]) for i in range(len(seconds))]
    return Group("w", "w", "dense", "h", programs, np.array(seconds, dtype=float), **more)  # type: ignore[arg-type]


def test_labels_are_best_over_seconds_and_zero_for_failures() -> None:
    made = group([2.0, 1.0, float("nan"), 4.0])
    assert made.labels.tolist() == [0.5, 1.0, 0.0, 0.25]
    assert made.best_s == 1.0
    assert made.valid.tolist() == [True, True, False, True]


def test_a_group_that_only_failed_has_no_best_and_no_labels() -> None:
    made = group([float("nan")] * 3)
    assert made.best_s is None
    assert made.labels.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf")])
def test_seconds_that_are_no_time_are_refused(bad: float) -> None:
    with pytest.raises(BadInputError, match="seconds are positive"):
        group([1.0, bad])


def test_lengths_must_agree() -> None:
    with pytest.raises(BadInputError, match="one entry per program"):
        Group("w", "w", "dense", "h", [Program()], np.ones(2))
    with pytest.raises(BadInputError, match="one entry per program"):
        group([1.0, 2.0], quiet=np.ones(3, bool))


@given(st.data())
def test_a_subset_keeps_programs_seconds_and_origins_together(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    made = group(
        [float(i + 1) for i in range(n)],
        origins=tuple(f"o{i}" for i in range(n)),
        quiet=np.arange(n) % 2 == 0,
    )
    at = data.draw(st.lists(st.integers(0, n - 1), unique=True))
    part = made.subset(at)
    assert [p.actions[0].args[0] for p in part.programs] == at
    assert part.seconds.tolist() == [i + 1 for i in at]
    assert part.origins == tuple(f"o{i}" for i in at)
    assert part.quiet.tolist() == [i % 2 == 0 for i in at]
    mask = np.isin(np.arange(n), at)
    assert made.subset(mask).seconds.tolist() == sorted(part.seconds.tolist())


def test_programs_have_equal_keys_exactly_when_they_are_equal() -> None:
    a, b = (Program(actions=[Action("SP", (1, n))]) for n in (2, 3))
    assert a.key != b.key
    assert a.key == Program(actions=[Action("SP", (1, 2))]).key
    x, y = Program(configuration={"a": 1, "b": 2}), Program(configuration={"b": 2, "a": 1})
    assert x.key == y.key != Program(configuration={"a": 2, "b": 1}).key
    assert x.actions == ()
