"""Rankers over decisions and behaviour: the contract, real programs, and what is kept of them."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace

import numpy as np
import pytest

from foretune.cost import rankers, score_group
from foretune.cost._perceptrons import PerceptronConfig
from foretune.cost.behaviour import table_rankers
from foretune.cost.behaviour.table_rankers import GbdtBehaviourRanker, MlpBehaviourRanker
from foretune.cost.mlp_actions import MlpActionRanker
from foretune.dataset import Group, Program
from foretune.errors import BadInputError, MissingDependencyError, VersionMismatchError
from foretune.features import action_columns
from foretune.features.memory import Memory
from foretune.hardware import device_of
from foretune.testing import rankers as suite
from foretune.testing.rankers import Subject, pair_accuracy
from tests.cost.test_ranker import SMALL
from tests.space.programs import space

SMALL_MLP = {"hidden": 64, "members": 2, "epochs": 40, "learning_rate": 3e-3}
READ = {"read_nests": suite.nest_batches}
SUBJECTS = {
    "gbdt_behaviour": Subject(
        functools.partial(GbdtBehaviourRanker, **READ, **SMALL),
        functools.partial(GbdtBehaviourRanker.load, **READ),
    ),
    "mlp_behaviour": Subject(
        functools.partial(MlpBehaviourRanker, **READ, **SMALL_MLP),
        functools.partial(MlpBehaviourRanker.load, **READ),
    ),
    "mlp_actions": Subject(functools.partial(MlpActionRanker, **SMALL_MLP)),
}


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.slow
def test_contract(name, check):
    if name.startswith("mlp"):
        pytest.importorskip("torch")
    check(SUBJECTS[name])


@functools.lru_cache(maxsize=4)
def reductions(seed=0, n=24):
    """Sums of rows that take the longer the fewer lanes work: decisions say so in many ways."""
    drawn = space("softmax").sample(np.random.default_rng(seed), n)
    device = device_of(space("softmax").hardware)
    programs = [Program(candidate=candidate) for candidate in drawn]
    seconds = np.full(n, np.nan)
    from foretune import describe

    for rows, nests in describe.nests_of(drawn):
        seconds[rows] = describe.behaviours(nests, device).seconds
    return Group(
        workload=space("softmax").workload.key,
        name="softmax",
        kind="softmax",
        hardware="cpu",
        programs=programs,
        seconds=seconds,
        machine=space("softmax").hardware,
    )


def test_what_formulas_say_of_real_programs_is_learned():
    learned, other = reductions(0), reductions(1)
    ranker = GbdtBehaviourRanker(**SMALL)
    ranker.fit([learned])
    by_decisions = rankers.create("gbdt_actions", **SMALL)
    by_decisions.fit([learned])
    ours = pair_accuracy(score_group(ranker, other), other.seconds)
    assert ours > 0.75
    assert ours > pair_accuracy(score_group(by_decisions, other), other.seconds)


def test_columns_are_those_of_actions_and_then_of_behaviour():
    group = reductions()
    matrix, legal = GbdtBehaviourRanker()._matrix(group.programs, group.machine)
    assert legal.all() and np.isfinite(matrix).all()
    assert matrix.shape[1] == len(action_columns()) + len(table_rankers._COLUMNS)
    predicted = matrix[:, -1]
    order = np.argsort(group.seconds)
    assert (np.diff(predicted[order]) >= -1e-5).all()


def forget(monkeypatch):
    monkeypatch.setattr(table_rankers, "_memory", Memory(2**24))


def test_behaviour_is_computed_once_where_a_folder_keeps_it(tmp_path, monkeypatch):
    asked = []
    real = table_rankers.asked

    def counted(source, workload, programs, *rest):
        asked.extend(program.key for program in programs)
        return real(source, workload, programs, *rest)

    monkeypatch.setattr(table_rankers, "asked", counted)
    group = reductions()
    scores = []
    forget(monkeypatch)
    GbdtBehaviourRanker(cache=tmp_path / "rows").prepare([group])
    assert len(asked) == len(group)
    for _ in range(2):
        forget(monkeypatch)
        ranker = GbdtBehaviourRanker(**SMALL, cache=tmp_path / "rows")
        ranker.fit([group])
        scores.append(score_group(ranker, group))
    assert len(asked) == len(set(asked)) == len(group)
    assert np.array_equal(*scores)
    # Another machine behaves otherwise.
    ranker.score(group.programs, replace(group.machine, threads=1, l2_bytes=1 << 18))
    assert len(asked) == 2 * len(group)


@pytest.mark.parametrize("kept", [False, True])
def test_programs_of_actions_alone_cannot_be_described(kept, tmp_path):
    ranker = GbdtBehaviourRanker(rounds=2, cache=tmp_path if kept else None)
    ranker.fit([reductions()])
    with pytest.raises(BadInputError, match="described from candidates"):
        ranker.score([Program(actions=[])], reductions().machine)


def test_more_than_ten_members_are_read_back(tmp_path):
    group = reductions()
    ranker = GbdtBehaviourRanker(rounds=3, boosters=12)
    ranker.fit([group])
    ranker.save(tmp_path / "m.npz")
    read = rankers.load(tmp_path / "m.npz")
    assert np.array_equal(score_group(read, group), score_group(ranker, group))


def test_readings_that_something_disturbed_count_less(monkeypatch):
    pytest.importorskip("torch")
    right = reductions()
    wrong = right.seconds[::-1].copy()
    seconds = np.concatenate([right.seconds, wrong])
    both = replace(
        right,
        programs=[*right.programs, *right.programs],
        seconds=seconds,
        origins=(),
        quiet=np.arange(len(seconds)) < len(right),
    )
    found = {}
    for disturbed in (0.0, 1.0):
        monkeypatch.setattr(PerceptronConfig, "disturbed", disturbed)
        ranker = MlpActionRanker(**{**SMALL_MLP, "members": 1})
        ranker.fit([both])
        found[disturbed] = pair_accuracy(score_group(ranker, right), right.seconds)
    assert found[0.0] > 0.8 > found[1.0]


def test_another_version_of_behaviour_is_refused(tmp_path, monkeypatch):
    GbdtBehaviourRanker().save(tmp_path / "m.npz")
    monkeypatch.setattr(table_rankers, "COLUMNS_VERSION", -1)
    with pytest.raises(VersionMismatchError, match="versions must be"):
        GbdtBehaviourRanker.load(tmp_path / "m.npz")


@pytest.mark.parametrize("ranker_type", [MlpActionRanker, MlpBehaviourRanker])
def test_a_saved_perceptron_scores_without_pytorch(ranker_type, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    group = reductions()
    ranker = ranker_type(**SMALL_MLP)
    ranker.fit([group])
    expected = ranker.score(group.programs, group.machine)
    assert pair_accuracy(expected, group.seconds) > 0.8
    ranker.save(tmp_path / "m.npz")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    read = rankers.load(tmp_path / "m.npz")
    assert np.array_equal(read.score(group.programs, group.machine), expected)
    with pytest.raises(MissingDependencyError, match="the training of perceptrons needs PyTorch"):
        ranker_type(**SMALL_MLP).fit([group])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hiden": 3}, r"no option 'hiden'.*hidden"),
        ({"hidden": 0}, "`hidden >= 1` must hold, but got hidden=0"),
        ({"learning_rate": 0}, "`learning_rate > 0` must hold"),
        ({"max_rows": 1}, "`max_rows >= 2` must hold"),
        ({"features": "store"}, r"unknown features of mlp_actions 'store'"),
    ],
)
def test_unknown_and_impossible_options_of_perceptrons_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        MlpActionRanker(**options)


def test_a_perceptron_computes_what_pytorch_trains():
    torch = pytest.importorskip("torch")
    from foretune.cost._examples import Scaling
    from foretune.cost._perceptron_training import _NAMES, _network
    from foretune.cost._perceptrons import Perceptron

    torch.manual_seed(0)
    network = _network(PerceptronConfig(hidden=32), 9).eval()
    weights = {}
    for at, name in _NAMES.items():
        weights[name] = network[at].weight.detach().numpy()
        weights[f"{name}_bias"] = network[at].bias.detach().numpy()
    rows = np.random.default_rng(0).standard_normal((50, 9), dtype=np.float32)
    shift, factor = rows.mean(axis=0), np.full(9, 2.0, np.float32)
    one = Perceptron(np.arange(9), Scaling(shift, factor), weights)
    with torch.no_grad():
        expected = network(torch.from_numpy((rows - shift) * factor))[:, 0].numpy()
    np.testing.assert_allclose(one.scores(rows), expected, atol=1e-5)
