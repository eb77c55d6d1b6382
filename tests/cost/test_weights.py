"""The weights that come with the package can be read by this version of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foretune
from foretune.cost import Ranker, pretrained
from foretune.dataset import Program
from tests.space.programs import CPU, space

FOLDER = Path(foretune.__file__).parent / "cost" / "weights"
FILES = sorted(path.stem for path in FOLDER.glob("*.npz"))


@pytest.mark.parametrize("file", FILES)
def test_they_can_be_read_and_score_programs(file):
    name, _, kind = file.rpartition("-")
    if name in ("mlp", "tlp", "mtl_tlp"):
        pytest.importorskip("torch")
    ranker = pretrained.shipped(name, kind)
    assert isinstance(ranker, Ranker)
    drawn = space("matmul").sample(np.random.default_rng(0), 8)
    scores = ranker.score([Program(candidate=c) for c in drawn], CPU, CPU.key)
    assert np.isfinite(scores).all() and len(np.unique(scores)) > 1


def test_they_are_small():
    assert sum((FOLDER / f"{file}.npz").stat().st_size for file in FILES) < 10e6


def test_what_drafts_reads_no_programs():
    drafter = pretrained.shipped(pretrained.DEFAULT, "llvm")
    assert drafter is not None and not drafter.reads_programs
