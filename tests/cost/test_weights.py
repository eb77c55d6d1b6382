"""The weights that come with the package can be read by this version of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import foretune
from foretune import cost
from foretune.cost import Ranker, pretrained, shipped
from foretune.dataset import Program
from foretune.errors import BadInputError
from foretune.features.stores import cache
from foretune.workload.training import excluded
from tests.space.programs import CPU, space

FOLDER = Path(foretune.__file__).parent / "cost" / "weights"
NOTES = sorted(FOLDER.parents[1].rglob("weights/*.json"))
FILES = sorted(path.stem for path in FOLDER.glob("*.npz"))


@pytest.mark.parametrize("file", FILES)
def test_they_can_be_read_and_score_programs(file):
    name, _, kind = file.rpartition("-")
    if name in ("classifier", "joined", "mlp", "tlp", "world"):
        pytest.importorskip("torch")
    ranker = shipped.shipped(name, kind)
    assert isinstance(ranker, Ranker)
    drawn = space("matmul").sample(np.random.default_rng(0), 8)
    scores = ranker.score([Program(candidate=c) for c in drawn], CPU, CPU.key)
    assert np.isfinite(scores).all() and len(np.unique(scores)) > 1


@pytest.mark.parametrize("program", ["matmul", "softmax"])
@pytest.mark.slow
def test_formulas_give_the_scores_of_programs(program, monkeypatch):
    pytest.importorskip("torch")
    drawn = space(program).sample(np.random.default_rng(0), 12)
    expected = cost.create("mlp", hardware=CPU).predict(drawn).score
    made = []
    monkeypatch.setattr(cache, "extract_per_store", made.append)
    for model in (
        cost.create("mlp", hardware=CPU, features="formulas"),
        cost.create("mlp:formulas", hardware=CPU),
    ):
        np.testing.assert_allclose(model.predict(drawn).score, expected, rtol=1e-5, atol=1e-5)
    assert made == []


def test_where_features_are_read_is_checked():
    with pytest.raises(BadInputError, match="formulas"):
        cost.create("mlp", hardware=CPU, features="guesses")
    rng = np.random.default_rng(0)
    with pytest.raises(BadInputError, match="reads decisions only"):
        pretrained.PretrainedModel(rng=rng, ranker="default", features="formulas")
    mine = shipped.shipped("mlp", "llvm")
    with pytest.raises(BadInputError, match="make it with source"):
        pretrained.PretrainedModel(rng=rng, ranker=mine, features="formulas")


def test_they_are_small():
    """All in 15 MB together, with what says where they are from."""
    assert {"joined-llvm", "mlp-llvm", "tlp-llvm", "world-llvm", "classifier-llvm"} <= set(FILES)
    package = FOLDER.parents[1]
    sizes = [file.stat().st_size for file in package.rglob("weights/*") if file.is_file()]
    assert sum(sizes) < 15e6


@pytest.mark.parametrize("file", NOTES, ids=lambda file: file.stem)
def test_they_have_learned_from_nothing_that_is_evaluated(file):
    said = json.loads(file.read_text(encoding="utf-8"))
    learned = said.get("training_workloads") or said["workloads"]
    assert len(learned) > 500, "keys of workloads"
    assert not excluded().keys.intersection(learned, said.get("validation_workloads", ()))
    assert not excluded().signatures.intersection(said.get("training_signatures", ()))


def test_what_drafts_reads_no_programs():
    drafter = shipped.shipped(shipped.DEFAULT, "llvm")
    assert drafter is not None and not drafter.needs.programs
