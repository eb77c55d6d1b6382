"""Contrastive training: its loss, what it draws, what it learns, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import BadInputError
from foretune_research.world._tuples import tuple_batches
from foretune_research.world.contrastive import (
    ContrastiveConfig,
    TextFile,
    train_encoder,
)
from foretune_research.world.encoder import encoder_config
from foretune_research.world.text import variant
from tests.research.world import small_programs as small

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from foretune_research.world._tuples import tuple_loss  # noqa: E402 - needs PyTorch

LEARN = {"epochs": 12, "files": 6, "learning_rate": 3e-3}


def trained(files, validation=(), encoder=None, **options):
    config = ContrastiveConfig(**{**LEARN, **options})
    return train_encoder(
        files,
        config,
        encoder_config(**{**small.TINY, **(encoder or {})}),
        validation=validation,
        rewrite=variant,
        seed=1,
        **small.ON_CPU,
    )


def loss_of(positive, negatives, weights=None, there=None, **options):
    negatives = torch.tensor(negatives, dtype=torch.float64)
    weights = torch.ones_like(negatives) if weights is None else torch.tensor(weights)
    there = torch.ones_like(negatives, dtype=torch.bool) if there is None else torch.tensor(there)
    positive = torch.tensor(positive, dtype=torch.float64)
    return tuple_loss(positive, negatives, weights, there, **options).item()


def test_the_loss_is_the_cross_entropy_of_the_positive():
    cosines = np.array([0.9, 0.1, -0.4, 0.6])
    u = cosines / 0.1
    expected = -math.log(math.exp(u[0]) / np.exp(u).sum())
    assert loss_of([0.9], [cosines[1:].tolist()], temperature=0.1) == pytest.approx(expected)


def test_the_loss_vanishes_where_negatives_are_far_only_with_a_temperature():
    far = [[-1.0] * 12]
    assert loss_of([1.0], far) < 1e-12
    assert loss_of([1.0], far, temperature=1.0) == pytest.approx(math.log(1 + 12 * math.exp(-2)))


def test_a_weight_counts_a_negative_as_often():
    several = loss_of([0.5], [[0.3, 0.3, 0.3, -0.2]])
    assert loss_of([0.5], [[0.3, -0.2]], [[3.0, 1.0]]) == pytest.approx(several)
    without = loss_of([0.5], [[-0.2]])
    assert loss_of([0.5], [[0.3, -0.2]], [[0.0, 1.0]]) == pytest.approx(without)
    assert loss_of([0.5], [[0.3, -0.2]], there=[[False, True]]) == pytest.approx(without)


def test_multiplying_is_what_the_paper_does():
    u = np.array([0.5, 2.0 * 0.3, 2.0 * -0.2]) / 0.05
    expected = np.log(np.exp(u).sum()) - u[0]
    found = loss_of([0.5], [[0.3, -0.2]], [[2.0, 2.0]], neg_weight="multiply")
    assert found == pytest.approx(expected)


def test_no_negatives_no_loss():
    assert loss_of([0.2, -0.3], [[0.1, 0.2]] * 2, there=[[False, False]] * 2) == 0.0


@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    intra=st.integers(0, 5),
    files=st.integers(1, 6),
    seed=st.integers(0, 100),
)
def test_every_state_is_drawn_once_beside_states_of_its_file(sizes, intra, files, seed):
    batches = list(tuple_batches(sizes, intra, files, np.random.default_rng(seed)))
    drawn = np.concatenate(batches) if batches else np.zeros(0)
    assert sorted(drawn.tolist()) == list(range(sum(sizes)))
    assert all(len(batch) <= files * (intra + 1) for batch in batches)


def test_a_batch_has_blocks_of_different_files():
    rng = np.random.default_rng(0)
    for batch in tuple_batches([20] * 8, 4, 8, rng):
        assert np.bincount(batch // 20, minlength=8).tolist() == [5] * 8


@pytest.fixture(scope="module")
def learned():
    return trained(small.files(24), small.files(8, seed=5))


def written_twice():
    """States of unseen workloads, and the same written in another way."""
    rng = np.random.default_rng(0)
    some = [text for file in small.files(8, seed=7) for text in file.texts]
    return some, [variant(text, rng) for text in some]


def found(encoder):
    """The share of states that are nearest to their other writing."""
    one, two = (encoder.encode(texts) for texts in written_twice())
    return ((one @ two.T).argmax(axis=1) == np.arange(len(one))).mean()


def test_states_of_unseen_workloads_are_found_by_another_writing(learned):
    encoder, history = learned
    assert history[-1].loss < 0.5 * history[0].loss
    assert history[-1].held_out_found > history[0].held_out_found + 0.1
    assert found(encoder) > found(small.encoder()) + 0.2


def test_rewritten_positives_bring_both_writings_together(learned):
    """With dropout alone nothing says that two writings are one program."""
    told, _ = learned
    untold, _ = trained(small.files(24), positives="dropout")
    assert found(told) > found(untold) + 0.1


def test_the_same_seed_gives_the_same_encoder():
    files, some = small.files(6), small.texts(5, seed=3)
    one, two = (trained(files, epochs=1)[0].encode(some) for _ in range(2))
    assert np.array_equal(one, two)


def test_what_is_trained_is_what_a_file_holds(learned, tmp_path):
    encoder, _ = learned
    encoder.save(tmp_path / "encoder.npz")
    again = type(encoder).load(tmp_path / "encoder.npz", **small.ON_CPU)
    some = small.texts(5, seed=3)
    assert np.array_equal(encoder.encode(some), again.encode(some))


def test_programs_that_are_equally_fast_are_not_told_apart():
    (file,) = small.files(1)
    alike = TextFile(file.texts, [1e-3] * len(file.texts))
    _, history = trained([alike], by_time=True, epochs=1)
    assert history[0].loss == pytest.approx(0.0, abs=1e-6)
    for seconds in (None, [math.nan] * len(file.texts), [4.0**i for i in range(10)]):
        _, history = trained([TextFile(file.texts, seconds)], by_time=True, epochs=1)
        assert history[0].loss > 0.01


def test_one_text_in_two_files_is_no_negative_of_itself():
    (text,) = small.texts(1)
    _, history = trained([TextFile([text]), TextFile([text])], epochs=1)
    assert history[0].loss == pytest.approx(0.0, abs=1e-6)


def test_one_line_is_said_per_epoch_and_epochs_may_be_none():
    lines = []
    config = ContrastiveConfig(positives="dropout", epochs=2)
    _, history = train_encoder(
        small.files(3), config, encoder_config(**small.TINY), progress=lines.append
    )
    assert len(lines) == len(history) == 2
    assert "epoch 2 of 2" in lines[1]
    assert math.isnan(history[0].held_out_found)
    assert trained(small.files(2), epochs=0)[1] == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positives": "crop"}, "choose one of both, dropout, variant"),
        ({"neg_weight": "add"}, "choose one of log_add, multiply"),
        ({"temperature": 0.0}, "temperature > 0"),
        ({"intra_weight": -1.0}, "intra_weight >= 0"),
        ({"files": 0}, "files >= 1"),
        ({"warm_up": 1.0}, "warm_up < 1"),
    ],
)
def test_values_that_make_no_sense_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        ContrastiveConfig(**options)


def test_what_cannot_be_learned_from_is_refused():
    with pytest.raises(BadInputError, match="at least 2 texts"):
        train_encoder([TextFile(["for i0=1"])])
    with pytest.raises(BadInputError, match="needs a rewrite"):
        train_encoder(small.files(2), ContrastiveConfig(positives="variant"))
    with pytest.raises(BadInputError, match="needs dropout > 0"):
        trained(small.files(2), encoder={"dropout": 0.0})
    with pytest.raises(BadInputError, match="as many seconds"):
        TextFile(["for i0=1"], [1.0, 2.0])


def test_weights_that_grow_without_bound_are_refused():
    with pytest.raises(BadInputError, match="lower learning_rate"):
        trained(small.files(4), learning_rate=1e30, epochs=2, clip=1e30)
