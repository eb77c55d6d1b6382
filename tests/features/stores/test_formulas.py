from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

import foretune.features.stores.formulas as reading
import foretune.symbolic.formulas._formulas as compiling
from foretune.features import PER_STORE, extract_per_store
from foretune.features.stores.formulas import extract_batch
from foretune.space import Candidate, structure_of
from foretune.symbolic.formulas import formulas
from tests.space.programs import space
from tests.symbolic.drawn import here, sampled


def test_an_unknown_instruction_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    (candidate,) = sampled(space("softmax"), 1)
    trace = candidate.sketch.trace.replace("Annotate", "Annotatex")
    strange = replace(candidate.sketch, trace=trace)
    strange.__dict__["template"] = candidate.sketch.template
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            extract_batch([Candidate(strange, candidate.decisions)])
    assert caplog.text.count("Annotatex") == 1


def test_no_program_is_made_for_approximate_features(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = sampled(here("depthwise_relu"), 12)
    exact = extract_batch(candidates)
    certain = [
        bool(made.certain(made.points([c.decisions])).all())
        for c in candidates
        for made in [formulas(c.sketch, structure_of(c.sketch, c.decisions))]
    ]
    assert True in certain
    assert False in certain

    def refused(found: object) -> None:
        raise AssertionError(f"programs of {found} were read")

    monkeypatch.setattr(reading, "extract_per_store", refused)
    close = extract_batch(candidates, approximate=True)
    for sure, expected, got in zip(certain, exact, close, strict=True):
        assert expected is not None
        assert got is not None
        if sure:
            np.testing.assert_array_equal(got, expected)
        else:
            assert np.abs(got - expected).mean() < 0.5


def test_batches_keep_the_order_of_candidates() -> None:
    candidates = sampled(space("softmax"), 20)
    got, expected = extract_batch(candidates), extract_per_store(candidates)
    for a, b in zip(got, expected, strict=True):
        assert a is not None
        assert b is not None
        assert a.shape[1] == PER_STORE
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_a_program_that_nobody_thought_of_is_read_from_its_programs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("an index out of nowhere")

    monkeypatch.setattr(compiling, "symbolic_program", fails)
    compiling._compiled.cache_clear()
    reading._warn.cache_clear()
    candidates = sampled(space("matmul"), 3)
    with caplog.at_level(logging.WARNING):
        got = extract_batch(candidates)
    compiling._compiled.cache_clear()
    for rows, expected in zip(got, extract_per_store(candidates), strict=True):
        assert rows is not None and expected is not None
        np.testing.assert_array_equal(rows, expected)
    assert "this program is beyond them (ValueError('an index out of nowhere'))" in caplog.text


def test_unknown_instructions_fall_back_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    (candidate,) = sampled(space("matmul"), 1)
    strange = replace(candidate.sketch, trace=candidate.sketch.trace.replace("Reorder", "Reorderx"))
    strange.__dict__["template"] = candidate.sketch.template
    with caplog.at_level(logging.WARNING):
        rows = extract_batch([Candidate(strange, candidate.decisions)])
    assert "Reorderx" in caplog.text
    expected = extract_per_store([candidate])[0]
    assert rows[0] is not None
    assert expected is not None
    np.testing.assert_array_equal(rows[0], expected)
