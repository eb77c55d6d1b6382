"""What the comparison of positives says of encoders that are known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import positives
from benchmarks.positives import Sample

WORKLOADS, PROGRAMS = 24, 8


class Known:
    """Encodes the number behind ``i0=``; blind to how a text is written, or not."""

    def __init__(self, blind: bool, scale: float = 1.0) -> None:
        self.blind, self.scale = blind, scale

    def encode(self, texts):
        rows = []
        for text in texts:
            size = float(text.rpartition("=")[2])
            writing = 0.0 if self.blind else 10.0 * sum(map(ord, text.partition("=")[0]))
            rows.append([np.cos(self.scale * size + writing), np.sin(self.scale * size + writing)])
        return np.array(rows)


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    found = []
    for number in range(WORKLOADS):
        sizes = 0.01 * np.arange(1, PROGRAMS + 1) + rng.uniform(0, 0.001, PROGRAMS)
        texts = [f"for i0={size:.5f}" for size in sizes]
        found.append(Sample(f"w{number}", texts, np.exp2(20 * sizes)))
    return found


def test_who_reads_what_a_program_does_finds_it_and_knows_its_speed(samples):
    rows = positives.judged(Known(blind=True), samples, np.random.default_rng(0))
    found = positives.summary(rows)
    assert found["samples"] == WORKLOADS
    assert found["chance"] == pytest.approx(1 / PROGRAMS)
    assert found["found"]["mean"] == 1.0
    assert found["near"]["mean"] == pytest.approx(1.0)
    assert found["apart"]["mean"] < 1.0
    assert found["ridge"]["mean"] > 0.9


def test_who_reads_names_does_not_find_it(samples):
    rows = positives.judged(Known(blind=False), samples, np.random.default_rng(0))
    found = positives.summary(rows)
    assert found["found"]["mean"] < 0.5
    assert found["near"]["mean"] < 0.9


def test_the_page_has_a_row_for_each_kind(samples):
    rows = positives.judged(Known(blind=True), samples, np.random.default_rng(0))
    result = {
        "seeds": [0],
        "config": {"encoder_states": 10, "trajectories": 5},
        "rows": [{"kind": kind, **positives.summary(rows)} for kind in positives.KINDS],
    }
    text = positives.body_of(result)
    for kind in positives.KINDS:
        assert f"| {kind}" in text
    assert f"chance finds {1 / PROGRAMS:.3f}" in text


def test_unknown_kinds_are_refused(capsys):
    with pytest.raises(SystemExit):
        positives.main(["--kinds", "dropout;other"])
    assert "kinds are untrained; dropout; variant; both; both, by time" in capsys.readouterr().err
