"""The world model climbed: equal to the ranker's rollout, true gradients, climbs, bad input."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import cost, search
from foretune.cost import shipped
from foretune.cost.world import WorldRanker
from foretune.cost.world.head import READS
from foretune.cost.world.model import World
from foretune.errors import BadInputError, MissingDependencyError
from foretune.hardware import preset
from foretune.search import _guides
from foretune.search._descent import Descent, descend
from foretune.search._gradient_config import GUIDE_NAMES, GradientConfig
from foretune.search._guides import chosen_guide
from foretune.search._world_guide import WorldGuide
from foretune.search.gradient import Gradient
from foretune.space import Space
from foretune.workload import Workload
from foretune_research.climbs import KINDS, GradientStudy
from foretune_research.world.ranker import WorldVariants
from tests.cost.small_world import LEARNED_FROM, OPTIONS, group, trained
from tests.space.programs import CPU, gpu, matmul, space

LOGGER = "foretune.search.gradient"


@pytest.fixture(scope="module", params=READS)
def guide(request):
    return WorldGuide(trained(request.param))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A world with a head, and one without."""
    folder = tmp_path_factory.mktemp("worlds")
    trained().save(folder / "head.npz")
    without = WorldRanker(**OPTIONS, world=trained()._world)
    without.fit([group(name) for name in LEARNED_FROM])
    without.save(folder / "none.npz")
    return {name: str(folder / f"{name}.npz") for name in ("head", "none")}


def world_model(file):
    return cost.create("world", rng=0, hardware=CPU, ranker=file)


def smooth(landscape, x):
    return landscape.scores(torch.from_numpy(x), 0.0, landscape.anchor(x))


# Scores


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["matmul", "conv2d_nhwc", "depthwise", "pooling", "softmax"]),
    kind=st.sampled_from(list(KINDS)),
    reads=st.sampled_from(READS),
    seed=st.integers(0, 2**16),
)
def test_a_candidates_score_is_that_of_the_rankers_rollout(name, kind, reads, seed):
    ranker = trained(reads)
    guide = WorldGuide(ranker)
    guide.coordinates = KINDS[kind]
    drawn = space(name).sample(np.random.default_rng(seed), 12)
    same = [c for c in drawn if guide.group(c) == guide.group(drawn[0])]
    landscape = guide.landscape(drawn[0])
    x = landscape.relaxed.of([c.decisions for c in same])
    numbers = landscape._numbers(landscape.relaxed.points(torch.from_numpy(x)))
    described = torch.from_numpy(guide.described(same))
    members = ranker.smooth_scores(landscape._route, numbers, described, CPU)
    expected = ranker.member_scores(same, CPU)
    np.testing.assert_allclose(members.detach().numpy(), expected, rtol=1e-4, atol=1e-6)
    exact = guide.scores(same)
    with torch.no_grad():
        found = smooth(landscape, x).numpy()
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)


def test_candidates_with_other_numbers_have_other_scores(guide):
    drawn = space("matmul").sample(np.random.default_rng(0), 40)
    same = [c for c in drawn if guide.group(c) == guide.group(drawn[0])]
    assert len(np.unique(np.round(guide.scores(same), 7))) > len(same) // 2


def test_members_that_differ_lower_the_score():
    candidates = space("softmax").sample(np.random.default_rng(0), 6)
    members = trained().member_scores(candidates, CPU)
    apart = (members - members.mean(1, keepdims=True)).std(0)
    for caution in (0.0, 1.5):
        found = WorldGuide(trained(), caution=caution).scores(candidates)
        np.testing.assert_allclose(found, members.mean(0) - caution * apart)
    assert (apart > 0).all()


def in_double(ranker):
    """A copy of which all networks compute in double precision, as differences need."""
    world = ranker._world
    ranker = copy.copy(ranker)
    ranker._world = World(world.reader, copy.deepcopy(world.transition))
    ranker._head = copy.deepcopy(ranker._head)
    for network in (*ranker._world.transition._members, ranker._head._network):
        network.double()
    return ranker


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("name", ["matmul", "softmax"])
def test_gradients_are_those_of_finite_differences(name, reads):
    guide = WorldGuide(in_double(trained(reads)))
    (start,) = space(name).sample(np.random.default_rng(5), 1)
    landscape = guide.landscape(start)
    rng = np.random.default_rng(0)
    x = landscape.relaxed.of([start.decisions] * 3)
    x += rng.uniform(0.1, 0.3, x.shape)
    anchor = landscape.anchor(x)

    def scores(x):
        return landscape.scores(x, 0.0, anchor)

    moving = torch.tensor(x, requires_grad=True)
    (found,) = torch.autograd.grad(scores(moving).sum(), moving)
    scale = float(found.abs().max())
    assert scale > 0
    for at in range(landscape.relaxed.size):
        step = torch.zeros_like(moving)
        step[:, at] = 1e-5
        with torch.no_grad():
            slope = (scores(moving + step) - scores(moving - step)) / 2e-5
        np.testing.assert_allclose(found[:, at], slope, rtol=1e-3, atol=1e-4 * scale)


# Climbs


@pytest.mark.slow
def test_a_climb_raises_the_score(guide):
    drawn = space("matmul").sample(np.random.default_rng(1), 60)
    starts = [c for c in drawn if guide.group(c) == guide.group(drawn[0])][:8]
    landscape = guide.landscape(starts[0])
    x = landscape.relaxed.of([c.decisions for c in starts])
    visited = descend(landscape, x, Descent(12, 0.3, 5))
    ends = [
        space("matmul").edit(starts[0], changes, np.random.default_rng(0))
        for changes in landscape.relaxed.nearest(visited[-1])
    ]
    before, after = guide.scores(starts), guide.scores(ends)
    assert after.mean() > before.mean()
    assert (after > before).mean() > 0.7


def test_a_search_by_climbs_finds_more_than_random_candidates(guide):
    best = {}
    for objective in ("gradient", "random"):
        strategy = GradientStudy(
            space("matmul"), cost.create("random", rng=0), np.random.default_rng(0), guide=guide,
            objective=objective, seeds=16, steps=10, structures=1,
        )  # fmt: skip
        strategy.explore()
        best[objective] = strategy.best_score
    assert best["gradient"] > best["random"]


@pytest.mark.slow
def test_what_a_gpu_does_not_allow_costs_score(guide):
    here = Space.generate(Workload.from_module(matmul(), "matmul"), gpu())
    drawn = here.sample(np.random.default_rng(0), 40)
    landscape = guide.landscape(drawn[0])
    same = [c for c in drawn if guide.group(c) == guide.group(drawn[0])]
    x = landscape.relaxed.of([c.decisions for c in same])
    beyond = landscape.excess(x)
    assert (beyond > 0).any()
    with torch.no_grad():
        np.testing.assert_allclose(
            smooth(landscape, x).numpy(), guide.scores(same) - guide.penalty * beyond, atol=1e-4
        )


# Which guide is climbed


def test_the_models_own_world_is_climbed_where_asked(files):
    model = world_model(files["head"])
    found = Gradient(space("matmul"), model, np.random.default_rng(0), guide="world")
    assert isinstance(found._guide, WorldGuide) and found._guide.ranker is model.ranker
    by_default = Gradient(space("matmul"), model, np.random.default_rng(0))
    assert not isinstance(by_default._guide, WorldGuide)


def test_a_file_is_climbed_beside_any_model(files):
    options = {"guide": "world", "weights": files["head"], "seeds": 8, "steps": 2,
               "opening": False}  # fmt: skip
    asked = []
    for _ in range(2):
        model = cost.create("random", rng=0)
        strategy = search.create("gradient", space("softmax"), model, 3, **options)
        asked.append([c.key for c in strategy.ask(4)])
    assert asked[0] == asked[1] and len(asked[0]) == 4
    assert strategy.predictions > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guide": "tlp"}, "unknown guide of gradient.*world"),
        ({"guide": "world", "weights": "none"}, "world with a head.*--option head=true"),
        ({"weights": "head"}, "must be of the ranker 'mlp'.*choose guide='world'"),
        ({"guide": "world", "weights": "mlp"}, "is a MlpRanker: choose guide='mlp'"),
        ({"guide": "world", "weights": "tlp"}, "foretune train world"),
    ],
)
def test_what_cannot_be_climbed_is_refused(files, options, message):
    options = {k: files.get(v, v) for k, v in options.items()}
    with pytest.raises(BadInputError, match=message):
        search.create("gradient", space("matmul"), cost.create("random"), 0, **options)


def test_the_runs_own_world_without_a_head_is_refused(files):
    with pytest.raises(BadInputError, match="needs a world with a head"):
        Gradient(
            space("matmul"), world_model(files["none"]), np.random.default_rng(0), guide="world"
        )


def test_states_of_texts_are_named():
    with pytest.raises(BadInputError, match="made of text"):
        WorldGuide(WorldVariants(target="text"))


def test_without_pytorch_it_says_what_to_install(files, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="torch"):
        chosen_guide(
            cost.create("random"), CPU, GradientConfig(guide="world", weights=files["head"])
        )


@pytest.mark.parametrize("guide", GUIDE_NAMES)
def test_what_x86_taught_is_not_climbed_on_other_processors(guide):
    model = cost.create("random")
    assert chosen_guide(model, CPU, GradientConfig(guide=guide)) is not None
    assert chosen_guide(model, preset("raspberry-pi-5"), GradientConfig(guide=guide)) is None


def test_every_guide_has_a_name():
    assert set(_guides._KINDS) == set(GUIDE_NAMES)


def test_the_world_of_the_package_can_be_climbed():
    strategy = search.create(
        "gradient", space("matmul"), cost.create("random"), 0, guide="world", seeds=8, steps=2,
        opening=False,
    )  # fmt: skip
    assert len(strategy.ask(4)) == 4
    assert strategy.predictions > 8
    assert isinstance(chosen_guide(cost.create("random"), CPU, strategy.config), WorldGuide)


def test_without_a_trained_world_evolution_proposes(caplog, monkeypatch):
    monkeypatch.setattr(shipped, "shipped", lambda name, kind: None)
    strategy = Gradient(
        space("softmax"), cost.create("random"), np.random.default_rng(0), guide="world"
    )
    with caplog.at_level(logging.WARNING, LOGGER):
        assert len(strategy.ask(4)) == 4
    assert sum("no world model is trained" in r.message for r in caplog.records) == 1
