"""Transitions whose predictions depend on where a path begins: joins, shares of extents, files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foretune._model_file import write_model
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.space import Action
from foretune.world._action_inputs import ActionInputs, columns_of
from foretune.world._paths import Plan
from foretune.world.transition import (
    JOINED_SCHEMA,
    JOINS,
    SCHEMA,
    ActionTable,
    TransitionModel,
)
from foretune_research.transitions import judge
from foretune_research.world.following import TransitionStudyConfig

torch = pytest.importorskip("torch")

from foretune.world._dynamics import Inputs, Member  # noqa: E402 - needs PyTorch
from tests.world.test_transition import (  # noqa: E402
    ON_CPU,
    D,
    random_states,
    train,
    unit,
    world,
)

JOINED = tuple(name for name in JOINS if name != "none")
ENDS = {"horizons": (), "terminal_epochs": 8, "same": 0, "learning_rate": 3e-3}


def stirred(member: Member) -> Member:
    """No weight is 0, so that all that is joined counts."""
    with torch.no_grad():
        for weight in member.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return member.eval()


def a_member(joins: str, initial: bool = True) -> Member:
    torch.manual_seed(0)
    tuned, joined = JOINS[joins]
    return stirred(Member(4, 2, 3, D, initial=initial, tuned=tuned, joined=joined))


def drawn_inputs(count: int = 5) -> Inputs:
    torch.manual_seed(1)
    return Inputs(torch.arange(count) % 4, torch.randn(count, 4), torch.randn(count, 2))


@pytest.fixture(scope="module", params=JOINED)
def learned(request):
    return train(world(12), joins=request.param, members=2, **ENDS)


def ends(model, paths, begun):
    found = model.rollout(
        begun, paths.actions, paths.matrix(), paths.lengths, np.arange(len(paths))
    )
    return found.mean(axis=0)


# What depends on the start


def test_a_prediction_changes_with_the_start_and_one_of_actions_alone_does_not(learned):
    paths = world(4, seed=5)
    own, other = paths.states[paths.initial], random_states(len(paths), seed=3).numpy()
    moved = np.linalg.norm(ends(learned, paths, own) - ends(learned, paths, other), axis=1)
    assert moved.min() > 0.01
    joins = learned.config.joins
    blind = train(world(12), joins=joins, initial=False, members=1, **ENDS)
    assert np.array_equal(ends(blind, paths, own), ends(blind, paths, other))


@pytest.mark.parametrize("joins", JOINED)
def test_the_start_is_not_forgotten_over_a_long_path(joins):
    """Steps of the plain model can forget it; where it is joined, it is read at the end, too."""
    member, inputs = a_member(joins), drawn_inputs()
    actions = np.random.default_rng(0).integers(0, 5, (1, 60)).repeat(2, axis=0)
    plan = Plan.of(np.arange(2), actions, np.full(2, 60))
    with torch.inference_mode():
        one, other = member.rolled(random_states(2), inputs, plan, 2)
    assert float((one - other).norm()) > 0.01


@pytest.mark.parametrize("joins", JOINED)
def test_all_ways_to_follow_a_path_end_alike(joins):
    member, inputs = a_member(joins), drawn_inputs()
    states = random_states(3)
    lengths = np.array([4, 2, 3])
    actions = np.random.default_rng(0).integers(0, 5, (3, 4))
    mask = torch.from_numpy(np.arange(4) < lengths[:, None])
    with torch.inference_mode():
        rolled = member.rolled(states, inputs, Plan.of(np.arange(3), actions, lengths), 3)
        table = member.prepared(inputs)
        unrolled = member.unrolled(states, table, torch.from_numpy(actions), mask)[:, -1]
        followed = [
            member.followed(states[[row]], inputs, [(int(a), 1) for a in actions[row, :length]])
            for row, length in enumerate(lengths)
        ]
    assert unrolled.numpy() == pytest.approx(rolled.numpy(), abs=1e-5)
    assert torch.cat(followed).numpy() == pytest.approx(rolled.numpy(), abs=1e-5)
    assert rolled.norm(dim=1).numpy() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("joins", JOINED)
def test_no_action_leaves_the_state_as_it_is(joins):
    member, states = a_member(joins), random_states(2)
    plan = Plan.of(np.arange(2), np.zeros((2, 1), int), np.zeros(2, int))
    with torch.inference_mode():
        assert torch.equal(member.rolled(states, drawn_inputs(), plan, 2), states)
        assert torch.equal(member.followed(states, drawn_inputs(), []), states)


def test_untrained_a_join_says_nothing():
    """It begins as the plain model, and learns what the start adds."""
    torch.manual_seed(0)
    plain = Member(4, 2, 3, D).eval()
    torch.manual_seed(0)
    joined = Member(4, 2, 3, D, joined=True).eval()
    plan = Plan.of(np.zeros(1, int), np.array([[1, 2, 4]]), np.array([3]))
    with torch.inference_mode():
        found = [m.rolled(random_states(1), drawn_inputs(), plan, 1) for m in (plain, joined)]
    assert torch.equal(*found)


def test_the_same_seed_gives_the_same_model():
    """Also where numbers of a layer are dropped at random in training."""
    paths = world(3)
    one, two = (judge(train(paths, joins="end"), paths).predicted for _ in range(2))
    assert np.array_equal(one, two)


# Shares of extents


def splits() -> ActionTable:
    actions = [
        Action("split", ("C.i", 4, 32)),
        Action("split", ("C.i", 16, 1024)),
        Action("split", ("C.i", 1, 1)),
        Action("annotate", ("parallel", 64)),
    ]
    return ActionTable.of(actions, unit(np.ones((4, 3), np.float32)))


def test_factors_become_shares_of_the_extent():
    found = columns_of(splits(), relative=True)[:, 3:]
    assert found[0, :2] == pytest.approx([2 / 7, 5 / 7], abs=1e-6)
    # An extent twice as large in the logarithm, in the same proportion.
    assert found[1, :2] == pytest.approx([4 / 14, 10 / 14], abs=1e-6)
    assert not found[2].any() and not found[:3, 2:].any()
    # What is no split stays.
    assert np.array_equal(found[3], splits().numbers[3])
    assert np.array_equal(columns_of(splits(), relative=False)[:, 3:], splits().numbers)


def test_two_extents_split_alike_are_one_action_until_the_start_tells_them_apart():
    inputs = ActionInputs.fitted(splits(), relative=True).of(splits(), "numbers", "cpu")
    assert torch.allclose(inputs.numbers[0], inputs.numbers[1], atol=1e-5)
    plain = ActionInputs.fitted(splits()).of(splits(), "numbers", "cpu")
    assert not torch.allclose(plain.numbers[0], plain.numbers[1], atol=1e-2)


def test_numbers_with_gradients_are_read_as_those_of_a_table():
    fitted = ActionInputs.fitted(splits(), relative=True)
    table = fitted.of(splits(), "both", "cpu")
    numbers = torch.tensor(splits().numbers)[:, None].repeat(1, 2, 1).requires_grad_()
    found = fitted.varied(table, numbers)
    assert torch.allclose(found.numbers[::2], table.numbers, atol=1e-5)
    found.numbers.square().sum().backward()
    assert torch.isfinite(numbers.grad).all() and numbers.grad[0].any()


@pytest.mark.parametrize("options", [{"joins": "change"}, {"joins": "end"}, {"relative": True}])
def test_a_smooth_rollout_is_the_rollout(options):
    paths = world(2)
    model = train(paths, members=2, **options)
    actions = paths.actions
    steps = ActionTable(actions.kinds[:4], actions.numbers[:4], actions.texts[:4])
    rows, lengths = np.array([[0, 1, 2, 3]]), np.array([4])
    expected = model.rollout(paths.states[0], steps, rows, lengths)
    numbers = torch.tensor(steps.numbers[None, [1, 3]], requires_grad=True)
    found = model.smooth_rollout(paths.states[0], steps, np.array([1, 3]), numbers)
    assert found.detach().numpy() == pytest.approx(expected, abs=1e-5)


# Files and refusals


@pytest.mark.parametrize("options", [{"joins": "change"}, {"joins": "end"}, {"relative": True}])
def test_a_file_gives_back_the_same_model(options, tmp_path):
    model, path = train(world(3), **options), tmp_path / "transition.npz"
    model.save(path)
    again = TransitionModel.load(path, **ON_CPU)
    assert again.config == model.config and model.dump()[0]["schema"] == JOINED_SCHEMA
    paths = world(2, seed=3)
    assert np.array_equal(judge(again, paths).predicted, judge(model, paths).predicted)


def test_a_plain_file_is_what_it_was(tmp_path):
    """Who knows no joins reads it, and files from before there were any are read."""
    meta, arrays = train(world(2)).dump()
    assert meta["schema"] == SCHEMA and not {"joins", "relative"} & set(meta["config"])
    again = TransitionModel.restore(json.loads(json.dumps(meta)), arrays, **ON_CPU)
    assert again.config.joins == "none" and not again.config.relative


def test_files_of_another_schema_or_without_their_join_are_refused(tmp_path):
    path = tmp_path / "transition.npz"
    meta, arrays = train(world(2), joins="end").dump()
    write_model(path, {**meta, "schema": "foretune.transition/9"}, arrays)
    with pytest.raises(VersionMismatchError, match="transition/2"):
        TransitionModel.load(path)
    write_model(path, meta, {k: v for k, v in arrays.items() if "join" not in k})
    with pytest.raises(RecordError, match="damaged"):
        TransitionModel.load(path)
    write_model(path, {**meta, "config": {**meta["config"], "joins": "middle"}}, arrays)
    with pytest.raises(RecordError, match="damaged"):
        TransitionModel.load(path)


def test_an_unknown_join_is_refused():
    with pytest.raises(BadInputError, match="choose one of change, end, none"):
        TransitionStudyConfig(joins="begin")
