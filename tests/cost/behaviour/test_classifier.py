"""The classifier: the contract of rankers, what it learns from, what it refuses."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from foretune.cost import rankers, score_group
from foretune.cost._ranker_file import read_model, write_model
from foretune.dataset import Program
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.testing import rankers as suite
from foretune.testing.rankers import Subject

torch = pytest.importorskip("torch")

from foretune.cost.behaviour.classifier import Classifier  # noqa: E402
from foretune_research.neural import ClassifierVariants  # noqa: E402

NEST = {"read_nests": suite.nest_batches, "threads": 1, "device": "cpu"}
SMALL = {"width": 32, "attention_heads": 2, "blocks": 1, "batch": 64, "dropout": 0.0}
LEARN = {**SMALL, "epochs": 40, "learning_rate": 5e-3, "list_size": 24}
SUBJECT = Subject(
    functools.partial(ClassifierVariants, **NEST, **LEARN),
    functools.partial(ClassifierVariants.load, **NEST),
)


def make(**options):
    return ClassifierVariants(**{**NEST, **SMALL, "epochs": 2, **options})


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.slow
def test_contract(check):
    check(SUBJECT)


@pytest.mark.parametrize(
    "check",
    [suite.check_untrained, suite.check_illegal, suite.check_round_trip, suite.check_foreign],
    ids=lambda check: check.__name__,
)
def test_contract_in_short(check):
    check(Subject(make, functools.partial(ClassifierVariants.load, **NEST)))


@pytest.mark.parametrize("loss", ["mse", "bce", "rank"])
@pytest.mark.slow
def test_every_loss_and_sampling_orders_programs_of_unseen_shapes(loss):
    for sampling in ("paper", "good_borderline_bad"):
        ranker = make(**LEARN, loss=loss, sampling=sampling)
        ranker.fit(suite.training_groups(96))
        groups = suite.unseen_groups(96)
        right = [suite.pair_accuracy(score_group(ranker, g), g.seconds) for g in groups]
        assert np.mean(right) > 0.7, (loss, sampling)


def test_it_learns_from_good_programs_and_at_most_twice_as_many_bad_ones(monkeypatch):
    seen = []
    monkeypatch.setattr(Classifier, "_loss", functools.partialmethod(_first_loss, seen))
    group = suite.nest_group((64, 64, 64), 200)
    make(loss="mse", epochs=1).fit([group])
    (targets,) = seen
    # Illegal ones among those drawn have no tokens.
    assert targets.sum() == 32 and 90 <= len(targets) <= 96


def _first_loss(self, seen, data):
    """Keeps what is compared, and trains by the default loss."""
    from foretune_research.neural_training import mse

    seen.append(data.targets)
    return mse


def test_the_device_matters_and_its_name_does_not():
    ranker = make(epochs=6)
    ranker.fit(suite.training_groups(16))
    programs = [
        p for p in suite.nest_group((128, 128, 128), 24).programs if suite.is_legal(p.candidate)
    ]
    here = ranker.score(programs, suite.NEST_HARDWARE)
    renamed = ranker.score(programs, replace(suite.NEST_HARDWARE, name="another nest machine"))
    other = ranker.score(programs, replace(suite.NEST_HARDWARE, threads=64, l1_bytes=2**20))
    assert np.array_equal(here, renamed)
    assert not np.allclose(here, other)
    blind = make(epochs=6, hardware=False)
    blind.fit(suite.training_groups(16))
    one, two = (
        blind.score(programs, replace(suite.NEST_HARDWARE, threads=threads)) for threads in (2, 64)
    )
    assert np.array_equal(one, two)


def test_decisions_can_be_tokens_too():
    ranker = make(decisions=True)
    ranker.fit(suite.training_groups(16))
    assert np.isfinite(score_group(ranker, suite.nest_group((128, 128, 128), 4))).any()


def test_tokens_that_are_kept_are_not_read_again(tmp_path):
    asked = []

    def read(candidates):
        asked.append(len(candidates))
        return suite.nest_batches(candidates)

    group = suite.nest_group((128, 128, 128), 60)
    plain, keeping = make(), make(cache=tmp_path, read_nests=read)
    for ranker in (plain, keeping):
        ranker.fit(suite.training_groups(16))
    first = score_group(keeping, group.subset(range(10)))
    assert np.allclose(score_group(keeping, group), score_group(plain, group), equal_nan=True)
    assert asked[-2:] == [10, 50]
    again = make(cache=tmp_path, read_nests=read)
    again.fit(suite.training_groups(16))
    assert np.allclose(score_group(again, group)[:10], first, atol=1e-5, equal_nan=True)
    assert asked[-2:] == [10, 50]


def test_a_program_with_neither_candidate_nor_workload_is_refused():
    ranker = make()
    ranker.fit(suite.training_groups(16))
    with pytest.raises(BadInputError, match="score_group"):
        ranker.score([Program(actions=())], None)


def test_it_is_made_and_read_by_name(tmp_path):
    assert isinstance(rankers.create("classifier:variants", loss="bce"), Classifier)
    path = tmp_path / "classifier.npz"
    rankers.create("classifier", width=8).save(path)
    assert rankers.load(path).config.width == 8


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"loss": "lambda_rank"}, "rank"),
        ({"sampling": "good_only"}, "good_borderline_bad"),
        ({"width": 10, "attention_heads": 4}, "divides width"),
        ({"depth": 3}, "depth"),
    ],
)
def test_what_makes_no_sense_is_refused(options, complaint):
    with pytest.raises(BadInputError, match=complaint):
        ClassifierVariants(**options)


def test_weights_of_other_tokens_are_refused(tmp_path):
    path = tmp_path / "classifier.npz"
    make().save(path)
    meta, arrays = read_model(path)
    write_model(
        path, "classifier:variants", {**meta, "features": {"tokens": -1, "nests": 1}}, arrays
    )
    with pytest.raises(VersionMismatchError):
        rankers.load(path)
    write_model(path, "classifier:variants", {**meta, "config": {"loss": "none"}}, arrays)
    with pytest.raises(RecordError):
        rankers.load(path)
