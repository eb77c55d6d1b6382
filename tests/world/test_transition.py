"""The transition model: its step, its losses, its rollouts, what it learns, and what it refuses.

The worlds here follow a rule: an action ``("turn", x)`` turns a state by an angle that grows with
log2 x, in a plane that belongs to its kind. What is learned on some states holds for all.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune._model_file import write_model
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.space import Action
from foretune.world._paths import Draw, Plan, windows_of
from foretune.world.transition import (
    NUMBERS,
    ActionTable,
    Paths,
    TransitionModel,
    train_transition,
)
from foretune_research.transitions import judge
from foretune_research.world.following import TransitionStudyConfig

torch = pytest.importorskip("torch")

from foretune.world._dynamics import Inputs, Member, Step  # noqa: E402 - needs PyTorch
from foretune.world._losses import rollout_loss  # noqa: E402
from foretune.world._training import Side, _rolled_loss  # noqa: E402

D = 12
KINDS = ("split", "fuse", "bind")
FACTORS = (1, 2, 4, 8, 16, 32)
ON_CPU = {"threads": 1, "device": "cpu"}
QUICK = {"members": 1, "horizons": ((1, 2), (0, 2)), "terminal_epochs": 1, "batch": 256}
LEARN = {
    "members": 1,
    "horizons": ((1, 10), (4, 10), (0, 15)),
    "terminal_epochs": 10,
    "batch": 256,
    "learning_rate": 3e-3,
}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def table_of(kinds=KINDS, factors=FACTORS, seed=0):
    """Every kind with every factor. Texts are random: nothing in them says that 4 is near 8."""
    actions = [Action(kind, ("C.i", factor)) for kind in kinds for factor in factors]
    rng = np.random.default_rng(seed)
    return actions, rng.standard_normal((len(actions), 10)).astype(np.float32)


def turned(state, action):
    """Where an action leads; kind k acts in the plane of axes 2k and 2k + 1, and pushes."""
    at = 2 * KINDS.index(action.kind)
    angle = 0.25 * math.log2(1 + action.args[1])
    out = state.copy()
    cos, sin = math.cos(angle), math.sin(angle)
    out[at], out[at + 1] = (
        cos * state[at] - sin * state[at + 1],
        sin * state[at] + cos * state[at + 1],
    )
    out[at + 6] += 0.15
    return unit(out)


def world(workloads, each=8, seed=0, factors=FACTORS, longest=8):
    """Paths of several workloads, each with its own initial state."""
    rng = np.random.default_rng(seed)
    actions, texts = table_of()
    usable = [at for at, action in enumerate(actions) if action.args[1] in factors]
    states, steps, owner = [], [], []
    for workload in range(workloads):
        initial = unit(rng.standard_normal(D))
        states.append(initial)
        first = len(states) - 1
        for _ in range(each):
            chosen = rng.choice(usable, rng.integers(3, longest + 1))
            path, state = [first], initial
            for at in chosen:
                state = turned(state, actions[at])
                states.append(state)
                path.append(len(states) - 1)
            steps.append((np.array(path), chosen))
            owner.append(workload)
    table = ActionTable.of(actions, texts)
    return Paths(np.array(states, dtype=np.float32), table, steps, np.array(owner))


def train(paths, validation=None, seed=0, **options):
    config = TransitionStudyConfig(**{**QUICK, **options})
    return train_transition(paths, config, validation=validation, seed=seed, **ON_CPU)


@pytest.fixture(scope="module")
def learned():
    return train(world(40), world(6, seed=8), **LEARN)


@pytest.fixture(scope="module")
def quick():
    return train(world(4), members=2)


def random_states(*shape, seed=0):
    rows = np.random.default_rng(seed).standard_normal((*shape, D))
    return torch.tensor(unit(rows), dtype=torch.float32)


# Losses


def test_a_right_prediction_far_from_others_costs_nothing():
    target = random_states(4, 3)
    negatives = -target[:, :, None].expand(-1, -1, 5, -1)
    mask = torch.ones(4, 3, dtype=torch.bool)
    assert rollout_loss(target, target, mask, negatives).item() == pytest.approx(0.0, abs=1e-6)


def test_the_loss_is_that_of_the_hardest_negative():
    predicted, target = random_states(1, 1), random_states(1, 1, seed=1)
    negatives = random_states(1, 1, 6, seed=2)
    match = (predicted - target).square().sum().item()
    nearest = (predicted[:, :, None] - negatives).square().sum(dim=-1).min().item()
    expected = 0.3 * match + 0.7 * max(0.0, match - nearest + 0.9)
    mask = torch.ones(1, 1, dtype=torch.bool)
    options = {"match_share": 0.3, "margin": 0.9, "attainable": False}
    assert rollout_loss(predicted, target, mask, negatives, **options).item() == pytest.approx(
        expected, abs=1e-5
    )


def test_padded_steps_count_for_nothing_and_long_windows_not_for_more():
    predicted, target = random_states(2, 4), random_states(2, 4, seed=1)
    negatives = random_states(2, 4, 3, seed=2)
    mask = torch.tensor([[True, True, False, False], [True, False, False, False]])
    predicted = predicted.clone().requires_grad_()
    loss = rollout_loss(predicted, target, mask, negatives)
    loss.backward()
    assert not predicted.grad[~mask].any()
    assert predicted.grad[mask].any(dim=-1).all()
    ones = torch.ones(1, 1, dtype=torch.bool)
    each = [
        rollout_loss(
            predicted[i, t][None, None], target[i, t][None, None], ones, negatives[i, t][None, None]
        )
        for i, t in ((0, 0), (0, 1), (1, 0))
    ]
    assert loss.item() == pytest.approx(sum(e.item() for e in each) / 3, abs=1e-5)
    assert rollout_loss(predicted, target, torch.zeros_like(mask), negatives).item() == 0.0


def test_negatives_that_are_the_target_are_left_out():
    target = random_states(3, 2)
    mask = torch.ones(3, 2, dtype=torch.bool)
    same = target[:, :, None].expand(-1, -1, 2, -1)
    for attainable in (True, False):
        alone = rollout_loss(target, target, mask, same, attainable=attainable)
        assert alone.item() == 0.0
    others = random_states(3, 2, 2, seed=3)
    predicted = random_states(3, 2, seed=4)
    both = rollout_loss(predicted, target, mask, torch.cat([same, others], dim=2))
    assert both.item() == pytest.approx(rollout_loss(predicted, target, mask, others).item())


def test_a_margin_that_cannot_be_kept_is_lowered():
    target = random_states(1, 1)
    near = torch.nn.functional.normalize(target + 0.1 * random_states(1, 1, seed=1), dim=-1)
    mask = torch.ones(1, 1, dtype=torch.bool)
    at_target = rollout_loss(target, target, mask, near[:, :, None])
    assert at_target.item() == pytest.approx(0.0, abs=1e-6)
    assert rollout_loss(target, target, mask, near[:, :, None], attainable=False).item() > 0.05
    assert rollout_loss(near, target, mask, near[:, :, None]).item() > 0.0


# The step


def a_step(seed=0):
    torch.manual_seed(seed)
    return Step(D)


def test_a_step_projects_moves_and_normalises():
    step = a_step()
    states, actions = random_states(5), random_states(5, seed=1) * 2.0
    with torch.inference_mode():
        found = step(states, step.prepared(actions)).numpy()
        normal = unit(step.normal(actions).numpy())
        moved = states.numpy() - (normal * states.numpy()).sum(axis=1, keepdims=True) * normal
        assert (normal * moved).sum(axis=1) == pytest.approx(0.0, abs=1e-6)
        moved = math.sqrt(D) * moved + step.translation(actions).numpy()
        hidden = step.first(torch.cat([torch.tensor(moved), actions], dim=1))
        change = step.second(torch.nn.functional.gelu(step.norm(hidden))).numpy()
    assert found == pytest.approx(unit(states.numpy() + change), abs=1e-5)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("dimension", [8, 128, 512])
@pytest.mark.parametrize("scaled", [True, False])
def test_a_step_sees_states_about_as_much_as_actions_where_they_are_scaled(dimension, scaled):
    torch.manual_seed(0)
    member = Member(40, NUMBERS, len(KINDS), dimension, scaled=scaled)
    drawn = Inputs(torch.arange(256) % 4, torch.randn(256, 40), torch.randn(256, NUMBERS))
    states = torch.nn.functional.normalize(torch.randn(256, dimension), dim=1)
    with torch.inference_mode():
        prepared = member.prepared(drawn)
        seen = (states @ prepared.of_state).std(dim=0).mean()
        share = float(seen / prepared.base.std(dim=0).mean())
    # The layer behind is normalised: what is much smaller is not seen.
    assert 1 / 3 < share * (1.0 if scaled else math.sqrt(dimension)) < 3


def test_no_state_and_no_action_give_no_nan():
    step = a_step()
    nothing = torch.zeros(2, D)
    with torch.inference_mode():
        assert torch.isfinite(step(nothing, step.prepared(nothing))).all()


# Rollouts

SEQUENCES = st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=12)


def as_matrix(sequences):
    lengths = np.array([len(sequence) for sequence in sequences])
    actions = np.full((len(sequences), int(lengths.max(initial=0)) + 1), 3)
    for row, sequence in zip(actions, sequences, strict=True):
        row[: len(sequence)] = sequence
    return actions, lengths


@pytest.mark.parametrize(("kind", "apart"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@given(SEQUENCES, st.integers(1, 3))
@settings(deadline=None, max_examples=30)
@pytest.mark.slow
def test_a_rollout_is_its_steps_one_by_one(kind, apart, sequences, roots):
    """In double precision; in single precision rounding adds up over the steps."""
    torch.manual_seed(0)
    member = Member(4, 2, 3, D).eval().to(kind)
    rng = np.random.default_rng(0)
    inputs = Inputs(
        torch.tensor([0, 1, 2, 3, 1]),
        torch.tensor(rng.standard_normal((5, 4)), dtype=kind),
        torch.tensor(rng.standard_normal((5, 2)), dtype=kind),
    )
    states = random_states(roots).to(kind)
    start = np.arange(len(sequences)) % roots
    actions, lengths = as_matrix(sequences)
    plan = Plan.of(start, actions, lengths)
    with torch.inference_mode():
        found = member.rolled(states, inputs, plan, len(sequences))
        table = member.prepared(inputs)
        for row, sequence in enumerate(sequences):
            state = states[start[row]][None]
            for action in sequence:
                state = member.step(state, table.rows(torch.tensor([action])))
            assert found[row].numpy() == pytest.approx(state[0].numpy(), abs=apart)
        mask = torch.tensor(np.arange(actions.shape[1]) < lengths[:, None])
        padded = member.unrolled(states[start], table, torch.tensor(actions), mask)[:, -1]
        assert padded.numpy() == pytest.approx(found.numpy(), abs=apart)


@given(SEQUENCES)
def test_common_beginnings_are_rolled_out_once(sequences):
    actions, lengths = as_matrix(sequences)
    plan = Plan.of(np.zeros(len(sequences), dtype=int), actions, lengths)
    beginnings = {tuple(s[:t]) for s in sequences for t in range(1, len(s) + 1)}
    assert plan.steps == len(beginnings)
    assert sorted(np.concatenate(plan.ending).tolist()) == list(range(len(sequences)))


def test_predictions_have_length_one_for_every_member(quick):
    paths = world(3, seed=2)
    start = np.arange(len(paths))
    initial = paths.states[paths.initial]
    found = quick.rollout(initial, paths.actions, paths.matrix(), paths.lengths, start)
    assert found.shape == (2, len(paths), D)
    assert found.dtype == np.float32
    assert np.linalg.norm(found, axis=2) == pytest.approx(1.0, abs=1e-5)
    assert not np.allclose(found[0], found[1], atol=1e-3)
    none = quick.rollout(initial[0], paths.actions, np.zeros((2, 0), int), np.zeros(2, int))
    assert none == pytest.approx(np.broadcast_to(initial[0], (2, 2, D)))
    assert (
        quick.rollout(initial[0], paths.actions, np.zeros((0, 3), int), np.zeros(0, int)).size == 0
    )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_smooth_rollout_of_whole_numbers_is_the_rollout(quick, data):
    """Sequences of the same actions but for the numbers of some of them."""
    paths = world(1)
    kinds = data.draw(st.lists(st.sampled_from((*KINDS, "tensorize")), min_size=1, max_size=6))
    at = sorted(data.draw(st.sets(st.integers(0, len(kinds) - 1))))
    factors = data.draw(
        st.lists(st.tuples(*[st.integers(0, 64) for _ in at]), min_size=1, max_size=4, unique=True)
    )
    texts = random_states(len(kinds)).numpy()[:, :10]
    rows, tables = [], []
    for own in factors:
        changed = dict(zip(at, own, strict=True))
        actions = [Action(kind, ("C.i", changed.get(i, 3))) for i, kind in enumerate(kinds)]
        tables.append(ActionTable.of(actions, texts))
        rows.append(np.arange(len(kinds)) + len(kinds) * len(rows))
    table = ActionTable(
        tuple(kind for each in tables for kind in each.kinds),
        np.concatenate([each.numbers for each in tables]),
        np.concatenate([each.texts for each in tables]),
    )
    lengths = np.full(len(rows), len(kinds))
    expected = quick.rollout(paths.states[0], table, np.stack(rows), lengths)
    numbers = torch.tensor(np.stack([each.numbers[at] for each in tables]), requires_grad=True)
    found = quick.smooth_rollout(paths.states[0], tables[0], np.array(at, dtype=int), numbers)
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)
    if at:
        found.sum().backward()
        # Of an action's eight numbers one is there, and the others count as zeros.
        assert (numbers.grad[:, :, 0] != 0).all()


def test_a_path_longer_than_any_in_training_is_followed_to_its_end(quick):
    """Training had at most eight actions, here are a hundred: nothing is cut off."""
    paths = world(1)
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(paths.actions), 100)
    actions = np.tile(drawn, (3, 1))
    actions[1, -1] = (drawn[-1] + 1) % len(paths.actions)
    lengths = np.array([100, 100, 50])
    found = quick.rollout(paths.states[0], paths.actions, actions, lengths)
    assert np.linalg.norm(found, axis=2) == pytest.approx(1.0, abs=1e-5)
    first, last_differs, half = found[0]
    assert not np.allclose(first, last_differs, atol=1e-4)
    alone = quick.rollout(paths.states[0], paths.actions, actions[2:, :50], lengths[2:])
    assert alone[0, 0] == pytest.approx(half, abs=1e-4)


def test_what_is_behind_the_last_action_is_not_looked_at(quick):
    paths = world(1)
    state = paths.states[0]
    actions, lengths = np.array([[1, 2, 3], [1, 2, 5]]), np.array([2, 2])
    found = quick.rollout(state, paths.actions, actions, lengths)
    assert np.array_equal(found[:, 0], found[:, 1])
    actions[:, 2] = 10**9
    assert np.array_equal(quick.rollout(state, paths.actions, actions, lengths), found)


# Paths


@given(horizon=st.integers(0, 9), seed=st.integers(0, 20))
@settings(deadline=None, max_examples=30)
def test_windows_hold_every_action_once_and_draws_tell_the_truth(horizon, seed):
    paths = world(3, each=3, seed=seed)
    rng = np.random.default_rng(seed)
    windows = windows_of(paths, horizon, rng, whole=False)
    assert windows.length.max() <= (horizon or paths.lengths.max())
    seen = [
        (p, s + t)
        for p, s, n in zip(windows.path, windows.start, windows.length, strict=True)
        for t in range(n)
    ]
    assert sorted(seen) == [(p, t) for p, n in enumerate(paths.lengths) for t in range(n)]
    draw = Draw.of(paths, windows, 3, 2, rng)
    assert draw.mask.sum(axis=1).tolist() == windows.length.tolist()
    assert draw.negatives.shape == (*draw.mask.shape, 5)
    for row, (p, s, n) in enumerate(zip(windows.path, windows.start, windows.length, strict=True)):
        states, actions = paths.steps[p]
        assert draw.first[row] == states[s]
        assert draw.targets[row, :n].tolist() == states[s + 1 : s + n + 1].tolist()
        assert draw.actions[row, :n].tolist() == actions[s : s + n].tolist()
        assert set(draw.negatives[row, :, 3:].flat) <= set(states.tolist())
        siblings = np.flatnonzero(paths.workload == paths.workload[p])
        for t in range(n):
            # Of other paths the state at the same step, or their last one: of the same workload
            # every other negative, of any workload the rest.
            own, anyone = (
                {at_step(paths, other, s + t + 1) for other in others}
                for others in (siblings, range(len(paths)))
            )
            assert set(draw.negatives[row, t, 0:3:2].tolist()) <= own
            assert draw.negatives[row, t, 1] in anyone


def at_step(paths, path, step):
    """The state of a path after so many steps, or its last one."""
    states = paths.steps[path][0]
    return int(states[min(step, len(states) - 1)])


def test_numbers_of_an_action_are_small_and_in_order():
    actions = [
        Action("split", ("C.i", 1, 7, 31)),
        Action("reorder", ("C.i.0", "C.j.0")),
        Action("pad", tuple(range(20))),
        Action("storage_align", ("C", -3)),
    ]
    table = ActionTable.of(actions, np.zeros((4, 2), np.float32))
    assert table.kinds == ("split", "reorder", "pad", "storage_align")
    assert table.numbers.shape == (4, NUMBERS)
    assert table.numbers[0, :4].tolist() == [1.0, 3.0, 5.0, 0.0]
    assert not table.numbers[1].any()
    assert table.numbers[3, 0] == -2.0


def test_numbers_beyond_the_eighth_are_not_looked_at():
    """Nor missed: no action that TVM's rules make has more than a tile's factors."""
    texts = np.zeros((3, 2), np.float32)
    actions = [Action("pad", tuple(range(NUMBERS)) + rest) for rest in ((), (5,), (6, 7))]
    table = ActionTable.of(actions, texts)
    assert (table.numbers == table.numbers[0]).all()
    assert table.numbers[0].tolist() == pytest.approx(np.log2(1 + np.arange(NUMBERS)))


# Learning


def test_unseen_workloads_end_nearer_than_both_floors_at_every_length(learned):
    found = judge(learned, world(12, seed=9))
    assert found.predicted.mean() < 0.3 * min(found.initial.mean(), found.mean.mean())
    for length in np.unique(found.length):
        at = found.length == length
        assert found.predicted[at].mean() < 0.5 * min(
            found.initial[at].mean(), found.mean[at].mean()
        )
    assert found.found.mean() > 0.6


def test_training_and_held_out_error_fall(learned):
    assert learned.history[-1].held_out < 0.5 * learned.history[0].held_out
    assert [epoch.horizon for epoch in learned.history][::10] == [1, 4, 0, 0, 0]


def test_training_for_whole_paths_pays_for_long_ones():
    """Errors add up over steps that were learned one at a time."""
    paths, held = world(20), world(8, seed=9)
    one = train(paths, **{**LEARN, "horizons": ((1, 30),), "terminal_epochs": 0})
    grown = train(paths, **{**LEARN, "horizons": ((1, 10), (4, 10), (0, 10)), "terminal_epochs": 0})
    assert judge(grown, held).predicted.mean() < judge(one, held).predicted.mean()


@pytest.mark.slow
def test_numbers_say_what_texts_do_not_of_factors_never_seen():
    seen = tuple(factor for factor in FACTORS if factor != 8)
    paths, held = world(40, factors=seen), world(10, seed=9, factors=(8,))

    def error(embedding, seed):
        model = train(paths, seed=seed, **LEARN, action_embedding=embedding)
        return judge(model, held).predicted.mean()

    texts, both, numbers = (
        np.mean([error(embedding, seed) for seed in (0, 1)])
        for embedding in ("text", "both", "numbers")
    )
    # Texts here are noise that tells actions apart: without them there is less to learn by heart.
    assert numbers < 0.6 * texts and both < 0.95 * texts


def test_without_the_initial_state_actions_alone_decide():
    paths = world(6)
    model = train(paths, initial=False)
    actions, lengths = paths.matrix()[:4], paths.lengths[:4]
    one, two = (model.rollout(s, paths.actions, actions, lengths) for s in paths.states[[0, -1]])
    assert np.array_equal(one, two)
    seeing = train(paths)
    one, two = (seeing.rollout(s, paths.actions, actions, lengths) for s in paths.states[[0, -1]])
    assert not np.allclose(one, two, atol=1e-2)


def test_a_kind_never_seen_is_read_by_its_numbers_alone(quick):
    rng = np.random.default_rng(0)
    actions = [Action("tensorize", (4,)), Action("blockize", (4,)), Action("blockize", (32,))]
    texts = rng.standard_normal((3, 10)).astype(np.float32)
    table = ActionTable.of(actions, texts)
    assert "tensorize" not in quick.kinds
    found = quick.rollout(world(1).states[0], table, np.arange(3)[:, None], np.ones(3, int))
    assert np.linalg.norm(found, axis=2) == pytest.approx(1.0, abs=1e-5)
    assert np.array_equal(found[:, 0], found[:, 1])
    assert not np.allclose(found[:, 1], found[:, 2], atol=1e-4)


def test_paths_that_stand_still_are_learned_too():
    paths = world(6)
    still = [(np.repeat(states[:1], len(states)), actions) for states, actions in paths.steps]
    standing = Paths(paths.states, paths.actions, still, paths.workload)
    found = judge(train(standing, **LEARN), standing)
    assert found.predicted.mean() < 0.05


def test_no_phase_leaves_the_model_untrained():
    model = train(world(2), horizons=(), terminal_epochs=0)
    assert model.history == ()
    assert judge(model, world(2)).predicted.mean() > 0.05


def test_the_same_seed_gives_the_same_model():
    def predictions(seed):
        return judge(train(world(3), seed=seed), world(2, seed=1)).predicted

    assert np.array_equal(predictions(0), predictions(0))
    assert not np.array_equal(predictions(0), predictions(1))


@pytest.mark.slow
def test_members_differ_more_where_nothing_was_learned():
    paths = world(12)
    model = train(paths, **{**LEARN, "members": 3})
    known = judge(model, paths).spread.mean()
    actions = [Action("tensorize", (2**k,)) for k in range(len(paths.actions))]
    foreign = ActionTable.of(actions, paths.actions.texts[::-1].copy())
    strange = Paths(paths.states, foreign, paths.steps, paths.workload)
    assert judge(model, strange).spread.mean() > 2 * known


def side_of(paths):
    table = paths.actions
    kinds = torch.tensor([1 + KINDS.index(kind) for kind in table.kinds])
    return Side(paths, Inputs(kinds, torch.tensor(table.texts), torch.tensor(table.numbers)))


def test_where_only_ends_count_the_loss_is_that_of_the_last_steps():
    paths = world(3, each=5)
    side, config = side_of(paths), TransitionStudyConfig(unknown=0.0)
    windows = windows_of(paths, 0, np.random.default_rng(0), whole=True)
    draw = Draw.of(paths, windows, 3, 2, np.random.default_rng(0))
    assert len(np.unique(windows.length)) > 1
    torch.manual_seed(0)
    member = Member(10, NUMBERS, len(KINDS), D)
    loss = _rolled_loss(member, side, draw, config, True, np.random.default_rng(0))
    loss.backward()
    found = [weight.grad.clone() for weight in member.parameters()]
    member.zero_grad()
    mask = torch.tensor(draw.mask)
    table = member.prepared(side.inputs)
    predicted = member.unrolled(side.at(draw.first), table, torch.tensor(draw.actions), mask)
    last = torch.arange(mask.shape[1]) == mask.sum(dim=1, keepdim=True) - 1
    expected = rollout_loss(predicted, side.at(draw.targets), last, side.at(draw.negatives))
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for one, weight in zip(found, member.parameters(), strict=True):
        assert one.numpy() == pytest.approx(weight.grad.numpy(), abs=1e-6)


def test_the_held_out_error_is_that_of_the_ends(quick):
    paths = world(4, seed=5)
    start = np.arange(len(paths))
    initial = paths.states[paths.initial]
    ends = quick.rollout(initial, paths.actions, paths.matrix(), paths.lengths, start)
    expected = 1.0 - (ends * paths.states[paths.terminal]).sum(axis=2).mean(axis=1)
    inputs = quick._inputs.of(paths.actions, quick.config.action_embedding, "cpu")
    found = [Side(paths, inputs).error(member) for member in quick._members]
    assert found == pytest.approx(expected.tolist(), abs=1e-5)


def test_where_nothing_is_chosen_held_out_paths_are_looked_at_now_and_then():
    options = {"members": 1, "horizons": ((1, 11),), "terminal_epochs": 1, "batch": 256}
    said = []
    model = train_transition(
        world(2, each=2),
        TransitionStudyConfig(**options),
        validation=world(1, each=2, seed=1),
        choose=False,
        progress=said.append,
        **ON_CPU,
    )
    told = [not math.isnan(epoch.held_out) for epoch in model.history]
    assert [at for at, each in enumerate(told) if each] == [9, 11]
    assert ["held out" in line for line in said] == told


# Judging


class Predicts:
    """A model that has its predictions ready, by the first number of the initial state."""

    def __init__(self, ends):
        self.ends = np.asarray(ends, np.float32)
        self.mean_terminal = unit(np.ones(D)).astype(np.float32)
        self.begun = None

    def rollout(self, states, table, actions, lengths, start):
        self.begun = states[start]
        return self.ends[None]


def ending(ends, workload):
    """Paths of one action each that end in these states."""
    actions, texts = table_of()
    states = np.concatenate([unit(np.eye(D)[:1]), ends]).astype(np.float32)
    steps = [(np.array([0, 1 + at]), np.array([at % 3])) for at in range(len(ends))]
    return Paths(states, ActionTable.of(actions, texts), steps, np.asarray(workload))


def test_what_is_missed_of_all_programs_of_a_workload_alike_does_not_count():
    rng = np.random.default_rng(0)
    ends = unit(np.eye(D)[3] + 0.02 * rng.standard_normal((10, D)))
    workload = np.repeat([0, 1], 5)
    paths = ending(ends, workload)
    right = judge(Predicts(ends), paths)
    assert right.missed == pytest.approx(0.0, abs=1e-9) and right.found.all()
    # The same differences elsewhere on the sphere.
    moved = judge(Predicts(unit(ends + 0.5 * np.eye(D)[6])), paths)
    constant = judge(Predicts(np.repeat(unit(np.eye(D)[3:4]), 10, axis=0)), paths)
    assert moved.predicted.min() > 0.05 > constant.predicted.max()
    assert moved.missed.sum() < 0.1 * moved.apart.sum()
    assert constant.missed == pytest.approx(constant.apart, abs=1e-6)


def test_programs_that_look_alike_are_no_rivals():
    one, two, three = unit(np.eye(D)[[1, 2, 3]])
    paths = ending(np.stack([one, one, two, three, three]), [0, 0, 0, 1, 1])
    found = judge(Predicts([one, two, two, three, one]), paths)
    assert found.distinct.tolist() == [2, 2, 2, 1, 1]
    assert found.found[:3].tolist() == [True, False, True]


def test_paths_can_be_judged_from_elsewhere():
    ends = unit(np.eye(D)[[1, 2]])
    model, paths = Predicts(ends), ending(ends, [0, 0])
    elsewhere = unit(np.eye(D)[[4, 5]]).astype(np.float32)
    own, swapped = judge(model, paths), judge(model, paths, elsewhere)
    assert np.array_equal(model.begun, elsewhere)
    assert np.array_equal(own.initial, swapped.initial)


# Files and refusals


def test_a_file_gives_back_the_same_model(quick, tmp_path):
    path = tmp_path / "transition.npz"
    quick.save(path)
    again = TransitionModel.load(path, **ON_CPU)
    assert again.config == quick.config
    assert again.kinds == quick.kinds == tuple(sorted(KINDS))
    paths = world(2, seed=3)
    for name in ("predicted", "mean", "spread"):
        assert np.array_equal(
            getattr(judge(again, paths), name), getattr(judge(quick, paths), name)
        )


def test_another_schema_or_a_damaged_file_is_refused(quick, tmp_path):
    path = tmp_path / "transition.npz"
    meta, arrays = quick.dump()
    meta = json.loads(json.dumps(meta))
    write_model(path, {**meta, "schema": "foretune.transition/9"}, arrays)
    with pytest.raises(VersionMismatchError, match="transition/2"):
        TransitionModel.load(path)
    write_model(path, {**meta, "config": {**meta["config"], "depth": 2}}, arrays)
    with pytest.raises(RecordError, match="damaged"):
        TransitionModel.load(path)
    write_model(path, {**meta, "kinds": ["split"]}, arrays)
    with pytest.raises(RecordError, match="damaged"):
        TransitionModel.load(path)
    write_model(path, meta, {n: a for n, a in arrays.items() if not n.startswith("member1")})
    with pytest.raises(RecordError, match="damaged"):
        TransitionModel.load(path)


def test_states_texts_and_rows_that_do_not_fit_are_refused(quick):
    paths = world(1)
    state, table = paths.states[0], paths.actions
    actions, lengths = np.zeros((2, 3), int), np.full(2, 3)
    with pytest.raises(BadInputError, match="states must have 12 numbers"):
        quick.rollout(state[:5], table, actions, lengths)
    other = ActionTable(table.kinds, table.numbers, table.texts[:, :3])
    with pytest.raises(BadInputError, match="must have 10 columns"):
        quick.rollout(state, other, actions, lengths)
    with pytest.raises(BadInputError, match="actions must be from 0 to 17"):
        quick.rollout(state, table, actions + 18, lengths)
    with pytest.raises(BadInputError, match="lengths must be from 0 to 3"):
        quick.rollout(state, table, actions, lengths + 1)
    with pytest.raises(BadInputError, match="start must be from 0 to 0"):
        quick.rollout(state, table, actions, lengths, np.array([0, 1]))
    with pytest.raises(BadInputError, match="n sequences"):
        quick.rollout(state, table, actions, lengths[:1])


def test_paths_that_are_none_are_refused():
    paths = world(1)
    for steps, workload, message in (
        ([(np.array([0]), np.zeros(0, int))], [0], "T >= 1"),
        ([(np.array([0, 1]), np.array([0, 1]))], [0], "T \\+ 1 states"),
        ([(np.array([0, 10**6]), np.array([0]))], [0], "states of paths must be rows"),
        ([(np.array([0, 1]), np.array([99]))], [0], "actions of paths must be rows"),
        ([(np.array([0, 1]), np.array([0]))], [0, 1], "must have a workload"),
    ):
        with pytest.raises(BadInputError, match=message):
            Paths(paths.states, paths.actions, steps, np.array(workload))
    none = Paths(paths.states, paths.actions, [], np.zeros(0, int))
    with pytest.raises(BadInputError, match="at least 1 path"):
        train(none)
    with pytest.raises(BadInputError, match="table of 18 actions"):
        ActionTable(paths.actions.kinds, paths.actions.numbers[:, :2], paths.actions.texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_embedding": "name"}, "choose one of both, numbers, text"),
        ({"members": 0}, "members >= 1"),
        ({"margin": -1.0}, "margin >= 0"),
        ({"match_share": 1.5}, "match_share <= 1"),
        ({"cross": 0, "same": 0}, "cross \\+ same >= 1"),
        ({"horizons": ((-1, 2),)}, "horizon >= 0"),
        ({"learning_rate": 0.0}, "learning_rate > 0"),
        ({"unknown": 1.0}, "unknown < 1"),
    ],
)
def test_values_that_make_no_sense_are_refused(options, message):
    with pytest.raises(BadInputError, match=message):
        TransitionStudyConfig(**options)


def test_weights_that_grow_without_bound_are_refused():
    with pytest.raises(BadInputError, match="lower learning_rate"):
        train(world(2), learning_rate=1e30, clip=1e30)
