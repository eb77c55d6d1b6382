"""The world model's head: what it learns from, what it leaves alone, files, refusals."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.cost import rankers, score_group
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost._tables import Table
from foretune.cost.world import WorldRanker
from foretune.cost.world.actions import ActionBook
from foretune.cost.world.head import READS, Head, train_head
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.space import ComputeLocation
from foretune.world import steps_of
from foretune.world._paths import NUMBERS, ActionTable
from tests.cost.small_world import LEARNED_FROM, OPTIONS, group, trained
from tests.space.programs import space

D, P, H = 6, 3, 3
"""Numbers of a state, columns of phi before the factors of the machine, and these."""


def tables(count=12, n=40, seed=0, tells=0):
    """Groups of which one column says how fast a program is, whatever the machine.

    The first D columns are a state, the next two differ between programs, the third does not.
    """
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        states = rng.normal(size=(n, D))
        states /= np.linalg.norm(states, axis=1, keepdims=True)
        described = rng.uniform(-1.0, 1.0, size=(n, P))
        described[:, -1] = rng.normal()
        machine = rng.normal(size=(1, H)).repeat(n, 0)
        matrix = np.concatenate([states, described, machine], 1)
        seconds = 2.0 ** -(4 * matrix[:, tells])
        seconds[0] = np.nan
        found.append(
            Table(f"w{number}", matrix.astype(np.float32), seconds, np.ones(n, dtype=bool))
        )
    return found


def learned(some, **options):
    return train_head(some, D, range(D + P, D + P + H), device="cpu", threads=1, **options)


@pytest.fixture(scope="module")
def heads():
    return {reads: learned(tables(40), reads=reads) for reads in READS}


@pytest.fixture(scope="module")
def head(heads):
    return heads["both"]


def scored(head, table):
    states = torch.from_numpy(table.matrix[None, :, : 0 if head.reads == "actions" else D])
    described = torch.from_numpy(table.matrix[:, D:])
    with torch.no_grad():
        return head.scores(states, described, table.matrix[0, D + P :])[0].numpy()


@pytest.mark.parametrize(
    ("tells", "reads"), [(0, "states"), (0, "both"), (D, "actions"), (D, "both")]
)
def test_it_orders_programs_of_workloads_it_has_not_seen(tells, reads):
    head = learned(tables(40, tells=tells), reads=reads)
    assert head.reads == reads
    for table in tables(3, seed=1, tells=tells):
        known = ~np.isnan(table.seconds)
        speed = -np.log2(table.seconds[known])
        assert np.corrcoef(scored(head, table)[known], speed)[0, 1] > 0.8


@pytest.mark.parametrize("reads", READS)
def test_nothing_else_is_read(heads, reads):
    """Of phi only what differs within workloads: its third column tells workloads apart."""
    head, (table,) = heads[reads], tables(1, seed=1)
    before = scored(head, table)
    for columns, read in (
        (slice(0, D), reads != "actions"),
        (slice(D, D + P - 1), reads != "states"),
        (D + P - 1, False),
    ):
        (other,) = tables(1, seed=1)
        other.matrix[:, columns] += 0.3
        assert np.array_equal(before, scored(head, other)) != read


def test_without_anything_that_tells_programs_apart_there_is_no_head():
    some = tables()
    for table in some:
        table.matrix[:, D : D + P] = 1.0
    assert learned(some, reads="actions") is None
    assert learned(some).reads == "states"


def test_the_same_seed_gives_the_same_head():
    one, two, other = (learned(tables(), seed=seed) for seed in (0, 0, 1))
    table = tables(1, seed=1)[0]
    assert np.array_equal(scored(one, table), scored(two, table))
    assert not np.array_equal(scored(one, table), scored(other, table))


def test_members_are_scored_one_by_one(head):
    states, described = torch.randn(2, 5, D, dtype=torch.float64), torch.randn(5, P + H)
    factors = np.zeros(H, np.float32)
    both = head.scores(states, described, factors)
    assert both.shape == (2, 5)
    assert torch.allclose(both[1], head.scores(states[1:], described, factors)[0], atol=1e-6)


def test_programs_without_a_state_are_not_learned_from():
    some = tables()
    more = [*some, *tables(4, seed=2)]
    for table in more[len(some) :]:
        table.matrix[:, :D] = 0.0
    table = tables(1, seed=1)[0]
    assert np.array_equal(scored(learned(some), table), scored(learned(more), table))
    assert learned(more[len(some) :]) is None


@pytest.mark.parametrize("reads", READS)
def test_a_head_is_restored(heads, reads):
    head = heads[reads]
    meta, arrays = head.dump()
    again = Head.restore(meta, arrays, "cpu")
    table = tables(1)[0]
    assert again.reads == reads
    assert np.array_equal(scored(head, table), scored(again, table))
    with pytest.raises(VersionMismatchError, match="schema"):
        Head.restore({**meta, "schema": "another"}, arrays)
    for name in arrays:
        with pytest.raises(RecordError, match="damaged"):
            Head.restore(meta, {k: v for k, v in arrays.items() if k != name})


def test_a_head_from_when_states_alone_were_read_answers_as_it_did(heads):
    meta, arrays = heads["states"].dump()
    old = {name.replace("rows/", "states/"): array for name, array in arrays.items()}
    del old["columns"]
    again = Head.restore({**meta, "schema": "foretune.world_head/1"}, old, "cpu")
    table = tables(1)[0]
    assert again.reads == "states"
    assert np.array_equal(scored(heads["states"], table), scored(again, table))


# In the ranker


def test_the_head_does_not_change_what_is_ranked_by(tmp_path):
    without = WorldRanker(**OPTIONS, world=trained()._world)
    without.fit([group(name) for name in LEARNED_FROM])
    here = group("layer_norm")
    assert np.array_equal(score_group(without, here), score_group(trained(), here))
    without.save(tmp_path / "w.npz")
    with pytest.raises(BadInputError, match="--option head=true"):
        rankers.load_for_run(tmp_path / "w.npz").require_head("a test")


@pytest.mark.parametrize("reads", READS)
def test_a_file_holds_the_head(tmp_path, reads):
    trained(reads).save(tmp_path / "w.npz")
    read = rankers.load_for_run(tmp_path / "w.npz")
    here = group("layer_norm")
    candidates = [p.candidate for p in here.programs]
    found = read.member_scores(candidates, here.machine)
    assert found.shape == (1 if reads == "actions" else 2, len(candidates))
    assert len(np.unique(found[0])) > 1 and read.head_reads == reads
    assert np.allclose(found, trained(reads).member_scores(candidates, here.machine), atol=1e-6)


def test_a_file_from_before_there_were_heads_ranks(tmp_path):
    trained().save(tmp_path / "w.npz")
    here = group("layer_norm")
    meta, arrays = read_model(tmp_path / "w.npz")
    del meta["head"], meta["options"]["head"], meta["options"]["head_reads"]
    old = {name: array for name, array in arrays.items() if not name.startswith("head/")}
    write_model(tmp_path / "w.npz", "world", meta, old)
    read = rankers.load(tmp_path / "w.npz")
    assert np.array_equal(score_group(read, here), score_group(trained(), here))


def test_fitting_again_forgets_the_head():
    ranker = WorldRanker(**OPTIONS, head=True, world=trained()._world)
    ranker.fit([group(name) for name in LEARNED_FROM])
    ranker.require_head("a test")
    ranker.head = False
    ranker.fit([group("softmax")])
    with pytest.raises(BadInputError, match="has none"):
        ranker.require_head("a test")


def test_a_given_world_says_itself_what_its_states_are_made_of(tmp_path):
    parts = {name: OPTIONS[name] for name in ("rounds", "boosters", "threads", "device")}
    for head in (True, False):
        ranker = WorldRanker(**parts, head=head, world=trained()._world)
        ranker.fit([group(name) for name in LEARNED_FROM])
        ranker.save(tmp_path / "w.npz")
        read = rankers.load(tmp_path / "w.npz")
        assert read.head == head
        if head:
            read.require_head("a test")
            continue
        with pytest.raises(BadInputError, match="has none: train"):
            read.require_head("a test")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_reads": "words"}, "unknown head_reads of world.*states"),
    ],
)
def test_what_has_no_derivative_gets_no_head(options, message):
    with pytest.raises(BadInputError, match=message):
        WorldRanker(head=True, **options)


def test_what_is_read_is_not_chosen_without_a_head():
    with pytest.raises(BadInputError, match="head=True must hold where head_reads is given"):
        WorldRanker(head_reads="states")


# Routes


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(["matmul", "conv2d_nhwc", "pooling", "softmax"]),
    seed=st.integers(0, 2**16),
)
def test_slots_say_what_the_numbers_of_a_candidates_actions_are(name, seed):
    (candidate,) = space(name).sample(np.random.default_rng(seed), 1)
    book = ActionBook(lambda texts: np.zeros((len(texts), 0), np.float32))
    route = book.route(candidate)
    steps = steps_of(candidate.actions())
    expected = ActionTable.of(steps, np.zeros((len(steps), 0), np.float32))
    assert route.steps.kinds == expected.kinds
    assert np.array_equal(route.steps.numbers, expected.numbers)
    variables = candidate.sketch.variables
    filled = expected.numbers[route.at].copy()
    for at, place, slot in route.slots:
        decision = candidate.decisions[slot.variable]
        value = (
            decision[slot.part]
            if isinstance(decision, tuple)
            else variables[slot.variable].values[decision]
        )
        assert filled[at, place] == pytest.approx(np.log2(1 + value), abs=1e-6)
        assert place < NUMBERS
    named = {slot.variable for _, _, slot in route.slots}
    off = {
        i for i, v in enumerate(variables)
        if v.name in ("parallel", "vectorize") and v.values[candidate.decisions[i]] == 0
    }  # fmt: skip
    locations = {i for i, v in enumerate(variables) if isinstance(v, ComputeLocation)}
    assert named == set(range(len(variables))) - off - locations
