from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.dataset import Group
from foretune.errors import BadInputError
from foretune.evaluate import Split, carve, cross_validation, families, family
from foretune.evaluate.splits import names
from tests.evaluate.support import convolutions, group, of_program, several

DEVICES = ("k80", "mi50", "t4")


@st.composite
def data(draw: st.DrawFn) -> list[Group]:
    """Workloads of several kinds, each on some of the devices."""
    made = []
    for i in range(draw(st.integers(6, 24))):
        kind = draw(st.sampled_from(["conv2d", "dense", "pool", "softmax"]))
        # The first two devices have something each.
        devices = {DEVICES[i % 2], *draw(st.sets(st.sampled_from(DEVICES)))}
        made += [group(f"w{i}", kind=kind, hardware=device) for device in sorted(devices)]
    return draw(st.permutations(made))


def workloads(groups: tuple[Group, ...]) -> set[str]:
    return {g.workload for g in groups}


def keys(groups: tuple[Group, ...]) -> set[str]:
    return {g.key for g in groups}


@settings(max_examples=40, deadline=None)
@given(data(), st.integers(2, 5), st.integers(0, 3))
def test_no_workload_is_on_both_sides_and_every_group_is_tested_once(
    groups: list[Group], folds: int, seed: int
) -> None:
    parts = cross_validation(groups, "workload", folds, seed)
    assert len(parts) == folds
    tested = Counter(g.key for part in parts for g in part.test)
    assert tested == Counter(g.key for g in groups)
    for part in parts:
        assert not workloads(part.test) & workloads((*part.train, *part.validation))
        assert not workloads(part.train) & workloads(part.validation)
        assert keys(part.train) | keys(part.validation) | keys(part.test) == keys(tuple(groups))
        assert part.train


@settings(max_examples=40, deadline=None)
@given(data(), st.integers(2, 5))
def test_folds_are_balanced_over_workloads_and_kinds(groups: list[Group], folds: int) -> None:
    tested = [
        {g.workload: g.kind for g in part.test}
        for part in cross_validation(groups, "workload", folds)
    ]
    sizes = [len(part) for part in tested]
    assert max(sizes) - min(sizes) <= 1
    for kind in {g.kind for g in groups}:
        counts = [Counter(part.values())[kind] for part in tested]
        assert max(counts) - min(counts) <= 1


@settings(max_examples=40, deadline=None)
@given(data())
def test_a_tested_kind_is_not_in_training(groups: list[Group]) -> None:
    if len({g.kind for g in groups}) < 2:
        return
    parts = cross_validation(groups, "kind")
    assert Counter(g.key for part in parts for g in part.test) == Counter(g.key for g in groups)
    for part in parts:
        learned = {g.kind for g in (*part.train, *part.validation)}
        assert not learned & {g.kind for g in part.test}
        assert all(kind in part.name for kind in {g.kind for g in part.test})


@settings(max_examples=40, deadline=None)
@given(data(), st.integers(2, 3))
def test_by_hardware_neither_device_nor_workload_was_seen(groups: list[Group], folds: int) -> None:
    try:
        parts = cross_validation(groups, "hardware", folds)
    except BadInputError as error:
        assert "outside fold" in str(error)
        return
    assert Counter(g.key for part in parts for g in part.test) == Counter(g.key for g in groups)
    for part in parts:
        learned = (*part.train, *part.validation)
        assert not {g.hardware for g in learned} & {g.hardware for g in part.test}
        assert not workloads(learned) & workloads(part.test)
        assert not part.seen_workloads


@settings(max_examples=40, deadline=None)
@given(data())
def test_the_published_split_by_hardware_is_named_for_what_it_allows(groups: list[Group]) -> None:
    parts = cross_validation(groups, "hardware_seen")
    assert Counter(g.key for part in parts for g in part.test) == Counter(g.key for g in groups)
    assert len(parts) == len({g.hardware for g in groups})
    for part in parts:
        assert part.seen_workloads and "seen" in part.name
        assert not {g.hardware for g in (*part.train, *part.validation)} & {
            g.hardware for g in part.test
        }


@settings(max_examples=30, deadline=None)
@given(data(), st.randoms(use_true_random=False), st.sampled_from(["workload", "kind"]))
def test_splits_do_not_depend_on_the_order_of_the_data(
    groups: list[Group], random: object, by: str
) -> None:
    if len({g.kind for g in groups}) < 2:
        return
    shuffled = list(groups)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for one, other in zip(
        cross_validation(groups, by), cross_validation(shuffled, by), strict=True
    ):
        assert one.name == other.name
        for side in ("train", "validation", "test"):
            assert keys(getattr(one, side)) == keys(getattr(other, side))


def test_another_seed_deals_other_folds() -> None:
    groups = several(30)
    folds = [keys(cross_validation(groups, seed=seed)[0].test) for seed in range(4)]
    assert len({frozenset(fold) for fold in folds}) > 1


def test_validation_is_carved_by_workload_and_holds_several_kinds() -> None:
    groups = several(40, kinds=("a", "b", "c", "d"), hardware=("h", "g"))
    train, validation = carve(groups, 0.1)
    assert len(workloads(validation)) == 4
    assert len({g.kind for g in validation}) == 4
    assert len(validation) == 8, "on all hardware"
    assert not workloads(train) & workloads(validation)
    assert carve(groups, 0.0) == (tuple(groups), ())
    assert carve(several(2))[1] == (), "too few to hold any out"


def test_too_few_workloads_kinds_or_devices_are_refused() -> None:
    for by, groups, folds, told in [
        ("workload", several(1), None, "2 <= folds <= workloads"),
        ("workload", several(4), 5, "2 <= folds <= workloads"),
        ("workload", several(4), 1, "got 1 folds"),
        ("kind", several(4, kinds=("conv2d",)), None, "2 <= folds <= operator kinds"),
        ("kind", several(4), 3, "got 3 folds and 2 operator kinds"),
        ("hardware", several(4), None, "two devices"),
        ("hardware_seen", several(4), None, "two devices"),
        ("hardware_seen", several(4, hardware=("a", "b")), 3, "no folds"),
    ]:
        with pytest.raises(BadInputError, match=told):
            cross_validation(groups, by, folds)


def test_a_device_without_workloads_of_others_to_learn_from_is_refused() -> None:
    groups = [group("w0", hardware="a"), group("w0", hardware="b"), group("w1", hardware="b")]
    with pytest.raises(BadInputError, match="outside fold"):
        cross_validation(groups, "hardware", 2)


@pytest.mark.parametrize("by", ["rows", "within_task", "published_rows", "random"])
def test_splitting_rows_is_refused_with_the_reason(by: str) -> None:
    with pytest.raises(BadInputError, match=r"never split by row.*workload"):
        cross_validation(several(4), by)


def test_an_unknown_split_lists_the_known_ones() -> None:
    with pytest.raises(BadInputError, match=", ".join(names())):
        cross_validation(several(4), "luck")


@pytest.mark.parametrize("options", [{"seed": -1}, {"validation": 1.0}, {"validation": -0.1}])
def test_numbers_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadInputError, match="must hold"):
        cross_validation(several(4), **options)  # type: ignore[arg-type]


def test_a_split_with_a_workload_on_two_sides_cannot_be_made() -> None:
    one, other = group("w", hardware="a"), group("w", hardware="b")
    with pytest.raises(ValueError, match="two sides"):
        Split("x", (one,), (), (other,))
    with pytest.raises(ValueError, match="two sides"):
        Split("x", (one,), (other,), ())
    with pytest.raises(ValueError, match="two sides"):
        Split("x", (one,), (), (one,), seen_workloads=True)
    Split("x", (one,), (), (other,), seen_workloads=True)


def test_epilogues_of_one_convolution_are_a_family() -> None:
    made = convolutions((6, 7))
    groups = [of_program(workload) for _, workload in made]
    assert len({g.workload for g in groups}) == 6
    assert len({family(g) for g in groups}) == 2
    for (size, _), one in zip(made, groups, strict=True):
        for (other_size, _), other in zip(made, groups, strict=True):
            assert (family(one) == family(other)) is (size == other_size)


def test_a_workload_without_a_program_is_its_own_family_unless_another_group_knows_it() -> None:
    known = of_program(convolutions((6,))[0][1])
    foreign = group(known.workload, hardware="other")
    assert family(foreign) == foreign.workload
    for groups in ([known, foreign], [foreign, known]):
        assert families(groups) == {known.workload: family(known)}
    with pytest.raises(ValueError, match="two sides"):
        Split("x", (foreign,), (), (of_program(convolutions((6,))[1][1]), known))


@pytest.mark.parametrize("by", ["workload", "kind", "hardware"])
def test_epilogues_of_one_convolution_are_never_on_both_sides(by: str) -> None:
    kinds = {"relu": "conv2d", "relu6": "conv2d", "gelu": "dense"}
    groups = [
        of_program(workload, kind=kinds[workload.name.rpartition("_")[2]], hardware=device)
        for _, workload in convolutions(range(5, 13))
        for device in ("a", "b")
    ]
    # Kinds that have everything in common leave nothing to learn from.
    groups += several(4, kinds=("pool", "softmax"), hardware=("a", "b"))
    parts = cross_validation(groups, by, folds=4 if by == "kind" else 3)
    assert Counter(g.key for part in parts for g in part.test) == Counter(g.key for g in groups)
    for part in parts:
        train, validation, test = (
            {family(g) for g in side} for side in (part.train, part.validation, part.test)
        )
        assert train and not train & test and not validation & (train | test)


def test_a_split_with_a_family_on_two_sides_cannot_be_made() -> None:
    relu, gelu = (of_program(convolutions((6,))[i][1]) for i in (0, 2))
    with pytest.raises(ValueError, match="two sides"):
        Split("x", (relu,), (), (gelu,))
    with pytest.raises(ValueError, match="two sides"):
        Split("x", (relu,), (gelu,), (group("w"),), seen_workloads=True)


def test_families_are_too_few_where_only_epilogues_differ() -> None:
    groups = [of_program(workload) for _, workload in convolutions((6, 7))]
    with pytest.raises(BadInputError, match="got 3 folds and 2 families of workloads"):
        cross_validation(groups, folds=3)
    assert carve(groups)[1] == (), "two families are too few to hold one out"
    both = [of_program(convolutions((6,))[i][1], kind=k) for i, k in ((0, "conv2d"), (1, "dense"))]
    with pytest.raises(BadInputError, match="no other computations to learn from"):
        cross_validation(both, "kind")
