"""Training, scoring and model files of whole ensembles."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretune._model_file import read_model, write_model
from foretune.errors import BadInputError, MissingDependencyError, RecordError, VersionMismatchError
from foretune.tgraph import (
    TGraph,
    TGraphConfig,
    by_configuration,
    judge,
    load,
    named,
    read_graph,
    train,
    whole,
)
from foretune.tgraph import model as room
from foretune.tgraph.configurations import packed
from foretune.tgraph.model import Member, best, fold_figures
from foretune.tgraph.prepare import Scaler, Scalers
from tests.tgraph.made import layout_arrays, layout_graph, layout_runtime, tile_graph, write

torch = pytest.importorskip("torch")

from foretune.tgraph import _training  # noqa: E402
from foretune_research.tgraph import training as studies  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def config_of(name: str = "corrected", **options: Any) -> TGraphConfig:
    kind = "variants" if name == "corrected" else name
    return named(kind, {"width": 16, "epochs": 2, "batch": 16, "chunk": 16, **options})


@pytest.fixture(scope="module")
def learned() -> TGraph:
    """What learned the order of one graph's configurations from four fifths of them."""
    graph = layout_graph(1, configurations=400)
    part, _ = by_configuration(graph, 5, np.random.default_rng(0))
    config = config_of(width=32, epochs=100, batch=64, learning_rate=3e-3)
    return train([part], config, name="corrected", seed=0)


def test_the_order_of_configurations_is_learned(learned):
    graph = layout_graph(1, configurations=400)
    _, held = by_configuration(graph, 5, np.random.default_rng(0))
    figures = judge(learned, held)
    assert figures["tau"] > 0.8
    assert figures["slowdown1"] < 0.02


def test_published_learns_too():
    graph = layout_graph(1, configurations=200)
    part, held = by_configuration(graph, 5, np.random.default_rng(0))
    config = config_of("published", width=32, epochs=80, batch=64, permutations=2)
    assert judge(train([part], config), held)["tau"] > 0.6


def test_tiles_are_learned():
    parts = [whole(tile_graph(seed, 30)) for seed in range(6)]
    model = train(parts[1:], config_of(width=32, epochs=40, learning_rate=3e-3, trained=1))
    figures = judge(model, parts[0])
    assert figures["tau"] > 0.5
    assert figures["m_tile"] > 0.9


def test_neither_order_nor_copies_nor_companions_change_a_score(learned):
    graph = layout_graph(2, configurations=50)
    plain = learned.score(graph)
    rows = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(learned.score(graph, rows), plain[rows])
    np.testing.assert_array_equal(learned.score(graph, np.tile(rows, 2)), np.tile(plain[rows], 2))
    np.testing.assert_allclose(learned.score(graph, rows[:7]), plain[rows[:7]], atol=1e-4)


def test_scores_are_the_same_whatever_is_scored_later_where_a_graph_has_anchors(learned):
    few = layout_graph(2, configurations=20)
    fixed = layout_arrays(7)["node_config_feat"][:16]
    more = np.concatenate(
        [few.configurations.features(np.arange(20)), layout_arrays(9)["node_config_feat"]]
    )
    many = replace(few, configurations=packed([more], len(more), 4), runtime=None)
    rows = np.arange(16, 20)
    assert not np.allclose(learned.score(many, rows), learned.score(few, rows), atol=1e-5)
    few, many = (replace(graph, anchors=packed([fixed], 16, 4)) for graph in (few, many))
    np.testing.assert_allclose(learned.score(many, rows), learned.score(few, rows), atol=1e-5)


def test_a_file_in_another_order_has_the_same_scores(learned):
    graph = layout_graph(2, configurations=50)
    features = graph.configurations.features(np.arange(50))
    order = np.random.default_rng(1).permutation(50)
    mixed = np.concatenate([features[order], features[order[:20]]])
    other = replace(graph, configurations=packed([mixed], 70, 4), runtime=layout_runtime(mixed))
    plain = learned.score(graph)
    np.testing.assert_array_equal(
        learned.score(other), np.concatenate([plain[order], plain[order[:20]]])
    )


def test_the_same_seed_makes_the_same_model():
    part = whole(layout_graph(1))
    first, again, other = (train([part], config_of(), seed=seed) for seed in (3, 3, 4))
    for name, weight in first.members[0].weights.items():
        np.testing.assert_array_equal(weight, again.members[0].weights[name])
    assert any(
        (weight != other.members[0].weights[name]).any()
        for name, weight in first.members[0].weights.items()
    )


SWITCHES = [
    {"prune_hops": 0},
    {"prune_hops": 3},
    {"prune_hops": "all"},
    {"dedup": "none"},
    {"dedup": "first"},
    {"repad": False},
    {"logarithms": False},
    {"edges": "none"},
    {"edges": "consumers"},
    {"sage": "paper"},
    {"channel_attention": False},
    {"attention": "none"},
    {"attention": "batch", "permutations": 2},
    {"norm": "instance"},
    {"residual": "paper"},
    {"readout": "mean"},
    {"dropout": 0.5},
    {"loss": "listmle"},
    {"loss": "ranknet"},
    {"loss": "mse"},
    {"hinge_reduction": "sum"},
    {"sampler": "window"},
    {"sampler": "gumbel_best"},
    {"blocks": 0},
]


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
@pytest.mark.parametrize("name", ["published", "corrected"])
def test_every_switch_trains_and_scores(name, switch):
    graph = layout_graph(1, isolated=True)
    config = config_of(name, **switch)
    model = train([whole(graph, config.dedup)], config)
    scores = model.score(graph)
    assert scores.shape == (60,)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("fused", ["inert", "fused", "none"])
@pytest.mark.parametrize("name", ["published", "corrected"])
def test_every_switch_of_tiles_trains_and_scores(name, fused):
    graphs = [tile_graph(seed) for seed in range(3)]
    model = train([whole(graph) for graph in graphs], config_of(name, tile_attention=fused))
    assert np.isfinite(model.score(graphs[0])).all()


# Ensembles.


def test_each_member_leaves_a_fold_out():
    graphs = [layout_graph(seed) for seed in range(5)]
    parts = [whole(graph) for graph in graphs]
    model = train(parts, config_of(folds=4, trained=3))
    assert len(model.members) == 3
    left_out = [name for member in model.members for name in member.left_out]
    assert len(set(left_out)) == len(left_out) >= 3
    assert all(-1 <= member.validation <= 1 for member in model.members)
    assert len(model.seen) == 5


def test_one_network_is_learned_whole():
    model = train([whole(layout_graph(1))], config_of())
    assert len(model.members) == 1
    assert model.members[0].left_out == ()
    assert np.isnan(model.members[0].validation)
    assert len(model.kept) == 1


def _member(validation: float) -> Member:
    empty = np.empty(0, dtype=np.float32)
    scalers = Scalers(Scaler(empty, empty, empty.astype(bool)), None)
    return Member({}, scalers, 1.0, (), validation, 0.0)


def test_published_keeps_the_best_by_validation_and_corrected_keeps_all():
    members = tuple(_member(value) for value in (0.1, 0.9, 0.5, float("nan"), 0.7, 0.6))
    assert [member.validation for member in best(members, 4)] == [0.9, 0.5, 0.7, 0.6]
    assert len(TGraph("", "layout", named("published"), 1, members, frozenset()).kept) == 4
    assert len(TGraph("", "layout", named("corrected"), 1, members, frozenset()).kept) == 6
    figures = fold_figures([member for member in members if member.validation > 0])
    assert figures["all"] == pytest.approx(0.56)
    assert figures["best_four"] == pytest.approx(0.675)
    assert len(figures["folds"]) == 5


def test_the_best_checkpoint_is_kept_where_asked_for(monkeypatch):
    qualities = iter([0.1, 0.8, 0.3] + [0.2] * 20)
    monkeypatch.setattr(_training.Run, "quality", lambda self: next(qualities))
    parts = [whole(layout_graph(seed)) for seed in range(2)]
    model = train(parts, config_of(epochs=4, best_checkpoint=True, trained=1))
    assert model.members[0].validation == 0.8


def test_members_are_averaged_on_one_scale():
    graph = layout_graph(1)
    model = train([whole(graph), whole(layout_graph(2))], config_of(trained=2))
    assert len(model.members) == 2
    alone = [replace(model, members=(member,)).score(graph) for member in model.members]
    np.testing.assert_allclose(model.score(graph), np.mean(alone, axis=0), atol=1e-6)
    raw = replace(model, config=replace(model.config, average="raw"))
    unscaled = [a * m.spread for a, m in zip(alone, model.members, strict=True)]
    np.testing.assert_allclose(raw.score(graph), np.mean(unscaled, axis=0), atol=1e-6)


def test_an_average_over_permutations_is_put_back_into_place():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20)
    orders = [rng.permutation(20) for _ in range(10)]
    found = studies.averaged_over(orders, lambda order: scores[order])
    np.testing.assert_allclose(found, scores)


def test_permutations_are_averaged(monkeypatch):
    graph = layout_graph(1)
    model = train([whole(graph)], config_of("published", permutations=3))
    calls: list[np.ndarray] = []
    inner = _training._in_chunks
    monkeypatch.setattr(
        _training, "_in_chunks", lambda *args: calls.append(args[2]) or inner(*args)
    )
    model.score(graph)
    assert len(calls) == 3
    assert all(sorted(call) == list(range(60)) for call in calls)


# Sampling and steps.


@pytest.mark.parametrize("sampler", ["uniform", "window", "gumbel_best"])
def test_samples_are_different_rows_of_the_part(sampler):
    part = whole(layout_graph(1, configurations=200))
    rng = np.random.default_rng(0)
    config = config_of(sampler=sampler, batch=20)
    seen = set()
    for _ in range(60):
        rows, runtime = config.sampled(part, rng)
        assert len(set(rows.tolist())) == 20
        assert set(rows.tolist()) <= set(part.rows.tolist())
        assert part.graph.runtime is not None
        np.testing.assert_array_equal(runtime, part.graph.runtime[rows])
        seen |= set(rows.tolist())
    assert len(seen) > 150


def test_fast_configurations_are_drawn_more_often_where_asked_for():
    part = whole(layout_graph(1, configurations=200))
    means = {}
    for sampler in ("uniform", "gumbel_best"):
        rng, config = np.random.default_rng(0), config_of(sampler=sampler, batch=20)
        means[sampler] = np.mean([config.sampled(part, rng)[1] for _ in range(100)])
    assert means["gumbel_best"] < means["uniform"]


def test_a_batch_is_no_larger_than_the_part():
    part = whole(layout_graph(1, configurations=5))
    rows, _ = config_of().sampled(part, np.random.default_rng(0))
    assert len(rows) == len(part.rows) <= 5


def test_the_rate_rises_and_falls():
    shares = [_training.step_share(at / 100, 0.05) for at in range(101)]
    assert shares[0] == 0
    assert max(shares) == pytest.approx(1.0)
    assert shares.index(max(shares)) == 5
    assert shares[-1] == pytest.approx(0.0)
    assert _training.step_share(0.0, 0.0) == 1.0


def test_validation_looks_at_a_thousand_configurations_at_most():
    part = whole(layout_graph(1, configurations=200))
    few = _training.some(part, 50, np.random.default_rng(0))
    assert len(set(few.rows.tolist())) == 50
    assert _training.some(part, 500, np.random.default_rng(0)) is part


# What cannot be done.


def test_graphs_without_an_order_are_left_out():
    graph = layout_graph(1)
    assert graph.runtime is not None
    flat = replace(layout_graph(2), runtime=np.full_like(graph.runtime, 7))
    unmeasured = replace(layout_graph(3), runtime=None)
    model = train([whole(graph), whole(flat), whole(unmeasured)], config_of())
    assert len(model.seen) == 1
    with pytest.raises(BadInputError, match="made2, made3 has none"):
        train([whole(flat), whole(unmeasured)], config_of())


def test_two_kinds_and_other_columns_are_refused(learned):
    graph, tile = layout_graph(1), tile_graph(1)
    with pytest.raises(BadInputError, match="kinds layout, tile"):
        train([whole(graph), whole(tile)], config_of())
    narrow = replace(graph.nodes, features=graph.nodes.features[:, :70])
    with pytest.raises(BadInputError, match="same columns"):
        train([whole(graph), whole(replace(graph, nodes=narrow))], config_of())
    with pytest.raises(BadInputError, match="cannot score tile1, a tile graph"):
        learned.score(tile)
    with pytest.raises(BadInputError, match="140 columns, but those of made1 have 70"):
        learned.score(replace(graph, nodes=narrow))


def test_graphs_of_other_columns_are_learned_among_themselves():
    graph = layout_graph(1)
    narrow = replace(graph, nodes=replace(graph.nodes, features=graph.nodes.features[:, :70]))
    model = train([whole(narrow)], config_of())
    assert np.isfinite(model.score(narrow)).all()


def test_weights_that_are_no_numbers_are_refused():
    with pytest.raises(BadInputError, match="lower learning_rate"):
        train([whole(layout_graph(1))], config_of(loss="mse", learning_rate=1e30, clip=1e30))


def test_without_pytorch_the_install_command_is_told(monkeypatch, learned):
    monkeypatch.setattr(room.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"foretune\[torch\]"):
        train([whole(layout_graph(1))], config_of())
    with pytest.raises(MissingDependencyError, match=r"foretune\[torch\]"):
        learned.score(layout_graph(1))


# Files.


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_a_saved_model_scores_the_same(kind, tmp_path):
    make = layout_graph if kind == "layout" else tile_graph
    graphs = [make(seed) for seed in range(3)]
    model = train([whole(graph) for graph in graphs], config_of(trained=2), name="mine")
    model.save(tmp_path / "m.npz", "foretune graph train ...")
    again = load(tmp_path / "m.npz")
    assert (again.name, again.kind, again.config) == ("mine", kind, model.config)
    assert again.seen == model.seen
    assert [m.left_out for m in again.members] == [m.left_out for m in model.members]
    np.testing.assert_array_equal(again.score(graphs[0]), model.score(graphs[0]))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    train([whole(layout_graph(1))], config_of(epochs=0)).save(tmp_path / "m.npz")
    return tmp_path / "m.npz"


@pytest.mark.parametrize(("entry", "value"), [("schema", "foretune.tgraph/0"), ("features", 0)])
def test_another_version_is_refused(entry, value, saved):
    meta, arrays = read_model(saved, "a model")
    write_model(saved, {**meta, entry: value}, arrays)
    with pytest.raises(VersionMismatchError, match=f"{entry} must be"):
        load(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"members": []},
        {"members": [{}]},
        {"config": {"no_such": 1}},
        {"config": {"width": 7}},
        {"columns": "many"},
        {"seen": 5},
    ],
)
def test_meta_data_that_make_no_sense_are_refused(change, saved):
    meta, arrays = read_model(saved, "a model")
    write_model(saved, {**meta, **change}, arrays)
    with pytest.raises(RecordError, match="is not a trained TGraph"):
        load(saved)


def test_weights_that_do_not_fit_are_refused(saved):
    meta, arrays = read_model(saved, "a model")
    name = next(name for name in arrays if name.endswith("out.weight"))
    write_model(saved, meta, {**arrays, name: arrays[name][:, :3]})
    with pytest.raises(RecordError, match="do not fit"):
        load(saved).score(layout_graph(1))


@pytest.mark.parametrize("data", [b"", b"junk", b"PK\x03\x04"])
def test_what_is_no_model_is_refused(data, tmp_path):
    path = tmp_path / "bad.npz"
    path.write_bytes(data)
    with pytest.raises(RecordError, match="a trained TGraph"):
        load(path)


def test_a_graph_of_data_is_no_model(tmp_path):
    with pytest.raises(RecordError, match="a trained TGraph"):
        load(write(tmp_path / "net.npz", layout_arrays(1)))


def test_configurations_in_a_file_train_and_score_as_those_in_memory(monkeypatch, tmp_path):
    path = write(tmp_path / "net.npz", layout_arrays(1, configurations=300))
    inside = read_graph(path)
    monkeypatch.setattr("foretune.tgraph.configurations._IN_MEMORY", 100)
    outside = read_graph(path)
    models = [train([whole(graph)], config_of()) for graph in (inside, outside)]
    scores = [model.score(outside) for model in models]
    np.testing.assert_array_equal(*scores)


def test_meta_data_are_json(saved):
    with np.load(saved) as file:
        meta = json.loads(str(file["meta"]))
    assert meta["schema"] == "foretune.tgraph/2"
    assert meta["members"][0]["validation"] is None
