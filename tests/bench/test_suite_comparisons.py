"""How the two suites of operators compare: no element excuses another one."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from benchmarks._onnx.worker import difference
from benchmarks._torch.worker import _worst

HUGE = [np.inf, -np.inf, np.nan, float(np.finfo("float32").min), -1e9]


@pytest.mark.parametrize("value", HUGE)
def test_a_huge_element_excuses_no_other(value):
    wanted = np.array([1, 2, 3, value], "float32")
    wrong = wanted.copy()
    wrong[0] = 1.5
    for last_place in (False, True):
        assert not difference([wanted.copy()], [wanted], 1e-3, 1e-7, last_place)
        assert difference([wrong], [wanted], 1e-3, 1e-7, last_place)
    one, other = wanted.astype("float64"), wrong.astype("float64")
    assert _worst(one, one)[0] == 0.0
    assert _worst(other, one)[0] > 0.4


def test_the_last_place_of_ordinary_numbers_is_allowed_where_it_is_asked_for():
    wanted = np.array([1e-9, 1, 2, 100], "float32")
    near = wanted.copy()
    near[0] = 1e-6
    assert difference([near], [wanted], 1e-3, 1e-7)
    assert not difference([near], [wanted], 1e-3, 1e-7, last_place=True)
