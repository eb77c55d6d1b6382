"""Neural rankers: losses by hand, what is compared, scalings, networks, training, bad options."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.cost import _examples
from foretune.cost._examples import Scaling, group_batches, pick_quality
from foretune.cost.mlp import MlpRanker
from foretune.cost.tlp import TlpRanker
from foretune.errors import BadInputError, MissingDependencyError
from foretune_research.neural import (
    SCALINGS,
    MlpReference,
    MlpVariants,
    MlpVariantsConfig,
    TlpReference,
    TlpVariants,
    TlpVariantsConfig,
)
from tests.cost import neural_support as support

torch = pytest.importorskip("torch")

from foretune.cost import _networks, _training  # noqa: E402 - they need torch
from foretune_research import neural_training  # noqa: E402

FIT = {"read_rows": support.read_rows, "read_actions": support.read_actions, **support.ON_CPU}


def tensors(scores, labels, mask=None):
    scores = torch.tensor([scores], dtype=torch.float64)
    labels = torch.tensor([labels], dtype=torch.float64)
    there = torch.ones_like(scores, dtype=torch.bool) if mask is None else torch.tensor([mask])
    return scores, labels, there


def lambda_rank_by_loops(scores, labels):
    """The formula of the docstring, pair by pair."""
    n = len(scores)
    rank = np.argsort(np.argsort(-scores)) + 1
    gain = 2.0**labels - 1.0
    best = (np.sort(gain)[::-1] / np.log2(1.0 + np.arange(1, n + 1))).sum()
    total = 0.0
    for i in range(n):
        for j in range(n):
            if labels[i] > labels[j]:
                weight = abs(1 / np.log2(1 + rank[i]) - 1 / np.log2(1 + rank[j]))
                weight *= abs(gain[i] - gain[j]) / best
                total += weight * np.log2(1.0 + np.exp(scores[j] - scores[i]))
    return total


def test_lambda_rank_of_one_wrong_pair_by_hand():
    # The better program is second: it is worth 1 in the first place, 1 / log2(3) in the second.
    best = 1.0 + (math.sqrt(2) - 1) / math.log2(3)
    weight = (1 - 1 / math.log2(3)) * (1 - (math.sqrt(2) - 1)) / best
    loss = _networks.lambda_rank(*tensors([0.0, 1.0], [1.0, 0.5]))
    assert loss.tolist() == pytest.approx([weight * math.log2(1 + math.e)])


def test_lambda_rank_is_the_sum_over_pairs():
    rng = np.random.default_rng(0)
    for n in (2, 5, 40):
        scores, labels = rng.normal(size=n), np.round(rng.uniform(size=n), 1)
        labels[0] = 0.0
        found = _networks.lambda_rank(*tensors(scores.tolist(), labels.tolist()))
        assert found.item() == pytest.approx(lambda_rank_by_loops(scores, labels))


def test_pairwise_by_hand():
    loss = neural_training.pairwise(*tensors([2.0, 0.0, 1.0], [1.0, 0.5, 0.5]))
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2
    assert loss.tolist() == pytest.approx([expected])


def test_list_net_by_hand():
    # The labels are sharpened to 16/17 and 1/17.
    loss = _networks.list_net(*tensors([1.0, 0.0], [1.0, 0.5]))
    total = math.log(1 + math.e)
    assert loss.tolist() == pytest.approx([16 / 17 * (total - 1) + 1 / 17 * total])


def test_list_net_of_failures_pulls_nowhere():
    scores, labels, mask = tensors([1.0, 0.5], [0.0, 0.0])
    scores.requires_grad_()
    loss = _networks.list_net(scores, labels, mask).sum()
    loss.backward()
    assert loss.item() == 0.0 and (scores.grad == 0).all()


def test_losses_of_single_labels_by_hand():
    # The sigmoid of log 3 is 3/4.
    values = tensors([math.log(3), 0.0], [1.0, 0.5])
    assert neural_training.mse(*values).tolist() == pytest.approx([(0.25**2 + 0) / 2])
    cross_entropy = (math.log(4 / 3) + math.log(2)) / 2
    assert neural_training.bce(*values).tolist() == pytest.approx([cross_entropy])


@pytest.mark.parametrize("name", sorted(neural_training.LOSSES))
def test_what_fills_up_a_list_does_not_count(name):
    loss = neural_training.LOSSES[name]
    scores, labels = [0.3, -1.0, 2.0], [0.2, 1.0, 0.0]
    plain = loss(*tensors(scores, labels))
    filled = loss(*tensors([*scores, 9.0, -9.0], [*labels, 1.0, 0.7], [True] * 3 + [False] * 2))
    assert filled.tolist() == pytest.approx(plain.tolist())


@pytest.mark.parametrize("name", ["lambda_rank", "pairwise"])
@pytest.mark.parametrize("labels", [[0.5, 0.5], [0.0, 0.0], [1.0]])
def test_a_list_without_a_pair_pulls_nowhere(name, labels):
    scores, labels, mask = tensors([1.0] * len(labels), labels)
    scores.requires_grad_()
    loss = neural_training.LOSSES[name](scores, labels, mask).sum()
    loss.backward()
    assert loss.item() == 0.0
    assert (scores.grad == 0).all()


@pytest.mark.parametrize("name", sorted(neural_training.LOSSES))
def test_a_step_downhill_puts_the_better_program_first(name):
    scores, labels, mask = tensors([0.0, 0.1], [1.0, 0.0])
    scores.requires_grad_()
    neural_training.LOSSES[name](scores, labels, mask).sum().backward()
    assert scores.grad[0, 0] < 0 < scores.grad[0, 1]


GROUPS = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@given(sizes=GROUPS, batch=st.integers(1, 60), list_size=st.integers(2, 20), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_group_batches_hold_every_program_once_in_lists_of_one_group(sizes, batch, list_size, seed):
    group = np.repeat(np.arange(len(sizes)), sizes)
    found = group_batches(group, batch, list_size, np.random.default_rng(seed))
    assert sorted(np.concatenate([b.programs for b in found]).tolist()) == list(range(len(group)))
    for number, one in enumerate(found):
        assert sorted(one.lists[one.lists >= 0].tolist()) == list(range(len(one.programs)))
        assert one.lists.shape[1] <= list_size
        assert len(one.programs) >= batch or number == len(found) - 1
        for members in one.lists:
            assert len(np.unique(group[one.programs[members[members >= 0]]])) == 1


def test_group_batches_differ_from_epoch_to_epoch():
    group = np.repeat([0, 1], 20)
    rng = np.random.default_rng(0)
    first, second = (group_batches(group, 20, 10, rng) for _ in range(2))
    assert first[0].programs.tolist() != second[0].programs.tolist()


def test_mixed_batches_have_one_list_per_head():
    head = np.array([0, 1] * 15)
    found = neural_training.mixed_batches(np.arange(30), head, 8, np.random.default_rng(0))
    assert [len(b.programs) for b in found] == [8, 8, 8, 6]
    assert sorted(np.concatenate([b.programs for b in found]).tolist()) == list(range(30))
    for one in found:
        for members in one.lists:
            assert len(set(head[one.programs[members[members >= 0]]])) == 1
        assert (one.lists >= 0).sum() == len(one.programs)


def test_rows_of_programs_are_found():
    starts, counts = np.array([0, 3, 3]), np.array([3, 0, 2])
    assert _examples.row_indices(starts[[2, 0, 1]], counts[[2, 0, 1]]).tolist() == [3, 4, 0, 1, 2]


def test_pick_quality_is_the_mean_of_top_1_and_top_5():
    group = np.array([0] * 6 + [1] * 2)
    labels = np.array([1.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0], dtype=np.float32)
    scores = np.array([0.0, 5, 4, 3, 2, 1, 1, 2])
    # First group: 0.1 first, 0.5 at best among five. Second: 1.0 first.
    expected = ((0.1 + 0.5) / 2 + 1.0) / 2
    assert pick_quality(scores, labels, group) == pytest.approx(expected)


def test_pick_quality_of_equal_scores_does_not_follow_the_order_of_the_file():
    group = np.repeat(np.arange(200), 20)
    labels = np.tile(np.linspace(1, 0.05, 20), 200).astype(np.float32)
    picked = pick_quality(np.zeros(len(group)), labels, group)
    # Random picks: 0.525 for the first and 0.875 for the best of five.
    assert picked == pytest.approx((0.525 + 0.875) / 2, abs=0.05)


def test_standard_scaling_knows_its_training_data_alone():
    training = np.array([[1.0, 5.0, np.nan], [3.0, 5.0, np.nan]], dtype=np.float32)
    scaling = Scaling.standard(training)
    assert scaling(training).tolist() == [[-1, 0, 0], [1, 0, 0]]
    # A constant column stays 0; what is unknown is average; what is far off is clipped.
    later = np.array([[np.nan, 7.0, 2.0], [1e6, np.nan, np.nan]], dtype=np.float32)
    assert scaling(later).tolist() == [[0, 0, 0], [8, 0, 0]]
    assert scaling(later).dtype == np.float32


def test_published_scaling_divides_by_the_largest_value():
    training = np.array([[1.0, 0.0, -2.0], [4.0, 0.0, -1.0]], dtype=np.float32)
    scaling = SCALINGS["maximum"](training)
    assert scaling(training).tolist() == [[0.25, 0, -2], [1, 0, -1]]


def test_unknown_hardware_is_the_average_one():
    known = np.concatenate(
        [_examples.hardware_context(support.machine(threads), 1) for threads in (1, 4)]
    )
    scaling = Scaling.standard(known)
    assert (scaling(_examples.hardware_context(None, 2)) == 0).all()
    assert scaling(known).any()


def weights_of(network):
    return sum(p.numel() for p in network.parameters())


def dense(before, after):
    return before * after + after


@pytest.mark.parametrize(("inputs", "expected"), [(164, 239_873), (174, 242_433)])
def test_tensets_network_has_its_published_number_of_weights(inputs, expected):
    by_formula = dense(inputs, 256) + dense(256, 256) + 2 * dense(256, 256) + dense(256, 1)
    assert weights_of(_networks.StoreNetwork(inputs)) == by_formula == expected


def test_tlps_network_has_the_published_layers():
    embed = dense(22, 64) + dense(64, 128) + dense(128, 256) + dense(256, 256)
    attention = dense(256, 3 * 256) + dense(256, 256)
    decoder = dense(256, 256) + dense(256, 128) + dense(128, 64) + dense(64, 1)
    trunk = embed + attention + 2 * dense(256, 256)
    assert weights_of(_networks.StepNetwork(22)) == trunk + decoder
    assert weights_of(_networks.StepNetwork(22, outputs=5)) == trunk + 5 * decoder


def test_stores_are_added_up():
    torch.manual_seed(0)
    network = _networks.StoreNetwork(4, hidden=8).eval()
    rows = torch.randn(3, 4)
    nothing = torch.zeros(1, 0)
    sum_of_states = network.encoder(rows).sum(dim=0, keepdim=True)
    expected = network.out(network.blocks(sum_of_states))
    assert torch.allclose(network(rows, torch.tensor([3]), nothing), expected, atol=1e-5)
    # The order of the stores is nothing, and one without stores is possible.
    assert torch.allclose(network(rows.flip(0), torch.tensor([3]), nothing), expected, atol=1e-5)
    assert network(rows, torch.tensor([0, 3]), torch.zeros(2, 0)).shape == (2, 1)


def published_scores(network, rows, counts, steps):
    """TLP as it is published: every program filled up with zeros, and nothing masked."""
    filled = torch.zeros(len(counts), steps, rows.shape[1])
    start = 0
    for at, count in enumerate(counts.tolist()):
        filled[at, :count] = rows[start : start + count]
        start += count
    states = network.encoder(filled)
    states = states + network.attention(states, torch.zeros(len(counts), steps))
    return network.decoders[0](network.blocks(states)).sum(dim=1)


def test_one_filler_stands_for_all_of_the_published_network():
    torch.manual_seed(0)
    network = _networks.StepNetwork(5, steps=7, embed=(8, 8), attention_heads=2, decoder=(8,))
    rows, counts = torch.randn(11, 5), torch.tensor([1, 3, 7])
    expected = published_scores(network, rows, counts, 7)
    found = network(rows, counts, torch.zeros(3, 0))
    assert found.shape == (3, 1)
    assert torch.allclose(found, expected, atol=1e-5)


def test_masked_steps_change_nothing():
    torch.manual_seed(0)
    network = _networks.StepNetwork(
        5,
        columns=2,
        steps=9,
        embed=(8,),
        attention_heads=2,
        decoder=(8,),
        masked=True,
        positions=True,
        norm=True,
        dropout=0.5,
    ).eval()
    rows, context = torch.randn(10, 5), torch.randn(2, 2)
    alone = network(rows[:2], torch.tensor([2]), context[:1])
    beside = network(rows, torch.tensor([2, 8]), context)
    assert torch.allclose(alone[0], beside[0], atol=1e-6)


def test_the_step_size_rises_and_falls():
    config = MlpVariantsConfig(warm_up=0.25)
    shares = [_training.step_share(at / 100, config) for at in range(101)]
    assert shares[0] == 0.0
    assert shares[25] == 1.0
    assert shares[100] == pytest.approx(0.0)
    assert np.all(np.diff(shares[:26]) > 0)
    assert np.all(np.diff(shares[25:]) < 0)


def test_the_published_step_size_is_constant():
    seen = set()

    class Watched(neural_training.StudyTraining):
        def share(self, progress):
            seen.add(super().share(progress))
            return super().share(progress)

    ranker = MlpVariants(hidden=8, epochs=2, batch=64, decay=False, **FIT)
    ranker._trainer = lambda: Watched
    ranker.fit(support.groups(2))
    assert seen == {1.0}


def test_the_best_epoch_is_kept():
    ranker = MlpVariants(hidden=16, epochs=12, batch=64, storage="float32", patience=12, **FIT)
    held = support.groups(6, seed=3)
    ranker.fit(support.groups(6), held)
    scores = np.concatenate([ranker.score(g.programs, None) for g in held])
    labels = np.concatenate([g.labels for g in held]).astype(np.float32)
    group = np.repeat(np.arange(len(held)), [len(g) for g in held])
    best = max(epoch.quality for epoch in ranker.history)
    assert len(ranker.history) == 12
    assert pick_quality(scores, labels, group) == pytest.approx(best)


def test_training_ends_when_nothing_gets_better():
    # With a vanishing step size the first epoch stays the best.
    options = {"hidden": 8, "learning_rate": 1e-12, "decay": False, "patience": 3, **FIT}
    ranker = MlpVariants(epochs=30, **options)
    ranker.fit(support.groups(3), support.groups(3, seed=3))
    assert len(ranker.history) == 4
    without = MlpVariants(epochs=5, **options)
    without.fit(support.groups(3))
    assert len(without.history) == 5
    assert all(math.isnan(epoch.quality) for epoch in without.history)


@pytest.mark.parametrize("select", ["training", "rows"])
def test_epochs_are_chosen_as_published_without_validation_groups(select):
    ranker = MlpVariants(hidden=8, epochs=4, batch=64, select=select, mixed=True, **FIT)
    ranker.fit(support.groups(4))
    assert 1 <= len(ranker.history) <= 4
    assert all(epoch.quality < 0 for epoch in ranker.history)


def test_weights_without_bound_are_refused():
    ranker = MlpVariants(hidden=8, epochs=3, learning_rate=1e30, storage="float32", **FIT)
    with pytest.raises(BadInputError, match="lower learning_rate"):
        ranker.fit(support.groups(3))
    assert (ranker.score(support.groups(1)[0].programs, None) == 0).all()


def test_threads_and_random_numbers_of_others_are_left_alone():
    before = torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(3).tolist()
    torch.manual_seed(5)
    ranker = MlpVariants(**{**FIT, "threads": before + 1}, hidden=8, epochs=1)
    ranker.fit(support.groups(2))
    ranker.score(support.groups(1)[0].programs, None)
    assert torch.get_num_threads() == before
    assert torch.rand(3).tolist() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs >= 1"),
        ({"batch": 0}, "batch >= 1"),
        ({"patience": 0}, "patience >= 1"),
        ({"members": 0}, "members >= 1"),
        ({"list_size": 1}, "list_size >= 2"),
        ({"learning_rate": 0.0}, "learning_rate > 0"),
        ({"learning_rate": math.nan}, "learning_rate > 0"),
        ({"clip": -1.0}, "clip > 0"),
        ({"weight_decay": -1.0}, "weight_decay >= 0"),
        ({"warm_up": 1.0}, "0 <= warm_up < 1"),
        ({"dropout": 1.0}, "0 <= dropout < 1"),
        ({"blocks": -1}, "blocks >= 0"),
        ({"hidden": 0}, "hidden >= 1"),
        ({"loss": "hinge"}, "'hinge'.*lambda_rank"),
        ({"select": "luck"}, "'luck'.*validation"),
        ({"precision": "int8"}, "'int8'.*bfloat16"),
        ({"storage": "int8"}, "'int8'.*float16"),
        ({"scaling": "rank"}, "'rank'.*standard"),
        ({"threads": 0}, "threads >= 1"),
        ({"seed": -1}, "seed >= 0"),
        ({"layers": 3}, "no option 'layers': choose from .*hidden"),
    ],
)
def test_options_without_sense_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        MlpVariants(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps >= 1"),
        ({"width": 0}, "width >= 1"),
        ({"attention_heads": 0}, "attention_heads >= 1"),
        ({"embed": (64, 30)}, "attention_heads divides the last of embed, 30"),
        ({"embed": ()}, "embed: every width >= 1"),
        ({"decoder": (0,)}, "decoder: every width >= 1"),
        ({"masked": False}, "masked, where there are positions"),
        ({"heads": "many"}, "'many'.*hardware"),
    ],
)
def test_networks_without_sense_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        TlpVariants(**options)


def test_a_device_that_is_not_there_is_refused():
    ranker = MlpVariants(**{**FIT, "device": "abacus"}, epochs=1)
    with pytest.raises(BadInputError, match="'abacus' cannot be used"):
        ranker.fit(support.groups(2))


@pytest.mark.parametrize("kind", [MlpRanker, TlpRanker])
def test_without_pytorch_the_message_says_how_to_install_it(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'foretune\[torch\]'"):
        kind().fit(support.groups(2))


def test_importing_the_rankers_does_not_import_pytorch():
    code = (
        "import sys, foretune.cost.mlp, foretune.cost.tlp; "
        "foretune.cost.mlp.MlpRanker(); foretune.cost.tlp.TlpRanker(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_reference_is_as_published():
    mlp = MlpReference().config
    tlp = TlpReference().config
    for config in (mlp, tlp):
        assert (config.loss, config.mixed, config.epochs) == ("lambda_rank", True, 50)
        assert (config.learning_rate, config.decay, config.weight_decay) == (7e-4, False, 1e-6)
        assert (config.clip, config.dropout, config.norm, config.hardware) == (0.5, 0, False, False)
        assert (config.blocks, config.members) == (2, 1)
    assert (mlp.batch, mlp.hidden, mlp.scaling, mlp.actions) == (512, 256, "maximum", False)
    assert (tlp.batch, tlp.steps, tlp.width, tlp.scaling) == (1024, 25, 22, "none")
    assert (tlp.embed, tlp.decoder) == ((64, 128, 256, 256), (256, 128, 64))
    assert not (tlp.masked or tlp.positions)
    assert tlp == TlpVariantsConfig(**TlpReference.presets)
    # For a GPU, the published numbers are others.
    assert TlpReference(steps=40, width=20).config.steps == 40


def test_what_is_constant_names_the_research_package():
    for kind in (MlpRanker, TlpRanker):
        with pytest.raises(BadInputError, match="'mixed': it is one of the package foretune_resea"):
            kind(mixed=True)


def test_the_variants_begin_with_what_the_products_are():
    for own, variants in ((MlpRanker(), MlpVariants()), (TlpRanker(), TlpVariants())):
        for name in type(variants.config).__dataclass_fields__:
            if name != "choices":
                assert getattr(own.config, name) == getattr(variants.config, name), name
