from __future__ import annotations

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import IllegalCandidateError
from foretune.features import FEATURE_VERSION, PER_STORE, columns, extract_per_store
from foretune.space import Space
from foretune.workload import Workload
from tests.space.programs import gpu, matmul, space

INDEX = {column.name: i for i, column in enumerate(columns())}


def test_columns_are_named_once_each() -> None:
    assert len(INDEX) == PER_STORE == 164
    assert all(column.unit for column in columns())
    assert FEATURE_VERSION == 1


def test_rows_are_stores_and_match_tvms_own_extraction() -> None:
    here = space("conv2d_nhwc")
    drawn = here.sample(np.random.default_rng(0), 8)
    for candidate, rows in zip(drawn, extract_per_store(drawn), strict=True):
        context = _tvm.make_context(here.workload.module, here.hardware.tvm_target())
        measured = _tvm.meta_schedule.MeasureCandidate(candidate.schedule(), [])
        extractor = _tvm.meta_schedule.feature_extractor.PerStoreFeature()
        expected = extractor.extract_from(context, [measured])[0].numpy()
        assert rows is not None
        assert rows.shape == (len(expected), PER_STORE)
        np.testing.assert_array_equal(rows, expected)


def test_threads_do_not_change_the_rows() -> None:
    drawn = space("softmax").sample(np.random.default_rng(0), 20)
    one, two = extract_per_store(drawn, threads=1), extract_per_store(drawn, threads=2)
    for a, b in zip(one, two, strict=True):
        assert a is not None
        assert b is not None
        np.testing.assert_array_equal(a, b)


def test_the_untuned_program_has_features() -> None:
    rows = extract_per_store([space("matmul").untuned])[0]
    assert rows is not None
    assert rows.shape == (1, PER_STORE)


def test_columns_mean_what_they_are_called() -> None:
    here = space("matmul")
    sketch = next(s for s in here.sketches if "CacheWrite" not in s.trace)
    tiles = {"C.i": (4, 2, 2, 4), "C.j": (2, 2, 2, 16), "C.k": (24, 4)}
    decisions = [
        tiles[v.name] if v.name in tiles else v.values.index({"parallel": 8}.get(v.name, 16))
        for v in sketch.variables
    ]
    rows = extract_per_store([sketch.candidate(decisions)])[0]
    assert rows is not None
    row = rows[-1]
    multiplications = 64 * 128 * 96
    assert row[INDEX["arith.float_mul"]] == pytest.approx(np.log2(1 + multiplications))
    assert row[INDEX["outer.auto_unroll"]] == pytest.approx(np.log2(17))
    assert row[INDEX["vectorize.product"]] == pytest.approx(np.log2(17))
    assert row[INDEX["parallel.product"]] == pytest.approx(np.log2(1 + 16))
    assert row[INDEX["gpu.is_gpu"]] == 0
    assert row[INDEX["alloc.size"]] == pytest.approx(np.log2(1 + 64 * 128 * 4))


def test_illegal_candidates_are_none_in_their_places() -> None:
    here = Space.generate(Workload.from_module(matmul(), "matmul"), gpu())
    drawn = here.sample(np.random.default_rng(1), 40)
    rows = extract_per_store(drawn)
    assert any(r is None for r in rows)
    for candidate, row in zip(drawn, rows, strict=True):
        if row is None:
            with pytest.raises(IllegalCandidateError):
                candidate.apply()
        else:
            assert row[:, INDEX["gpu.is_gpu"]].all()


def test_no_candidates_no_rows() -> None:
    assert extract_per_store([]) == []
