"""Self-attention over scheduling steps: what it learns, ignores, refuses and reads back."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from foretune.cost._heads import Heads
from foretune.cost._ranker import score_group
from foretune.cost._ranker_file import read_model, write_model
from foretune.cost.tlp import TlpConfig, TlpRanker
from foretune.dataset import Group, Program
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.hardware import Hardware
from foretune_research.neural import MtlTlp, MtlTlpReference, TlpReference, TlpVariants
from tests.cost import neural_support as support

torch = pytest.importorskip("torch")

READ = {"read_tokens": support.read_tokens, **support.ON_CPU}
SMALL = {"steps": 6, "width": 5, "embed": (16, 16), "attention_heads": 2, "decoder": (16,)}
QUICK = {"epochs": 2, "batch": 64}
KINDS = {
    "variants": TlpVariants,
    "reference": TlpReference,
    "mtl_tlp": MtlTlp,
    "mtl_tlp:reference": MtlTlpReference,
}
LEARN = {"epochs": 40, "batch": 64, "list_size": 16, "learning_rate": 5e-3, "dropout": 0.0}


def make(variant="variants", **options):
    """The product's ranker with more options, or as published."""
    return KINDS[variant](**{**READ, **SMALL, **QUICK, **options})


def fitted(**options):
    ranker = make(**options)
    ranker.fit(support.groups(4))
    return ranker


def some(n=20):
    return support.groups(1, n=n, seed=99)[0].programs


def both(count, seed):
    """Groups of two machines that like the opposite."""
    one = support.groups(count, seed=seed, hardware="one", threads=1)
    return one + support.groups(count, seed=seed + 1, hardware="eight", threads=8, direction=-1.0)


def test_orders_programs_of_unseen_workloads():
    ranker = make(**LEARN)
    ranker.fit(support.groups(10), support.groups(4, seed=1))
    assert ranker.name == "tlp:variants"
    assert ranker.needs.decisions_only
    assert support.pair_accuracy(ranker, support.groups(8, seed=2)) > 0.85


def test_the_reference_learns_from_programs_of_all_workloads_in_one_list():
    ranker = make(**{**LEARN, "learning_rate": 3e-3}, variant="reference")
    ranker.fit(support.groups(10))
    assert ranker.name == "tlp:reference"
    assert len(ranker.history) == 40
    assert support.pair_accuracy(ranker, support.groups(8, seed=2)) > 0.7


@pytest.mark.slow
def test_one_model_serves_machines_that_like_the_opposite():
    ranker = make(**{**LEARN, "epochs": 60}, embed=(32, 32))
    ranker.fit(both(12, 0))
    assert support.pair_accuracy(ranker, both(5, 10)) > 0.75
    blind = make(**LEARN, hardware=False)
    blind.fit(both(12, 0))
    assert abs(support.pair_accuracy(blind, both(5, 10)) - 0.5) < 0.1


@pytest.mark.parametrize("variant", ["mtl_tlp", "mtl_tlp:reference"])
@pytest.mark.slow
def test_a_head_per_hardware_tells_machines_apart(variant):
    ranker = make(**LEARN, hardware=False, variant=variant)
    ranker.fit(both(12, 0))
    assert ranker.name.startswith("mtl_tlp")
    assert support.pair_accuracy(ranker, both(5, 10)) > 0.75
    # Unknown hardware: the mean of all heads.
    one, eight, unknown = (ranker.score(some(), None, name) for name in ("one", "eight", "third"))
    assert unknown == pytest.approx((one + eight) / 2, rel=1e-4, abs=1e-5)


def two_heads(**options):
    ranker = make(heads="hardware", hardware=False, **options)
    ranker.fit(both(2, 0))
    return ranker


def test_unseen_hardware_has_the_head_of_the_nearest_which_is_logged_once(caplog):
    ranker = two_heads()
    one, eight = (ranker.score(some(), None, name) for name in ("one", "eight"))
    assert (one != eight).all()
    with caplog.at_level(logging.INFO, "foretune.cost"):
        for threads, nearest in ((2, one), (6, eight), (64, eight)):
            for _ in range(2):
                unseen = ranker.score(some(), support.machine(threads), f"of {threads}")
                assert (unseen == nearest).all()
        ranker.score(some(), None, "unknown")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert "hardware of 2: the head of one answers, which is nearest (1 threads" in lines[0]
    assert "hardware of 6: the head of eight answers" in lines[1]
    assert "hardware unknown: the mean of all heads answers" in lines[3]
    gpu = Hardware("gpu", '{"kind": "cuda"}', threads=8, gpu={"warp_size": 32.0})
    mean = pytest.approx((one + eight) / 2, rel=1e-4, abs=1e-5)
    assert ranker.score(some(), gpu, "a gpu") == mean, "a CPU is not near"


def test_factors_that_are_not_known_of_both_do_not_count():
    """Caches that are known of one head only do not make it a stranger to who knows none."""
    bare = {"l2_bytes": 0, "l3_bytes": 0}
    machines = {
        "wide": replace(support.machine(4), simd_bits=512, l2_bytes=1 << 20, l3_bytes=1 << 25),
        "narrow": replace(support.machine(2), simd_bits=128, **bare),
    }
    groups = [
        replace(group, hardware=name, machine=machine)
        for group, (name, machine) in zip(support.groups(2), machines.items(), strict=True)
    ]
    heads = Heads.of_groups(list(machines), groups)
    assert heads.of("near the wide one", replace(support.machine(4), simd_bits=512, **bare)) == 0
    assert heads.of("near the narrow one", replace(support.machine(2), simd_bits=128, **bare)) == 1
    assert (heads.of("wide", None), heads.of("narrow", machines["wide"])) == (0, 1)


def test_files_from_before_heads_had_factors_are_read(tmp_path):
    path = tmp_path / "model.npz"
    ranker = two_heads()
    ranker.save(path)
    meta, arrays = read_model(path)
    del arrays["heads/factors"]
    write_model(path, meta["ranker"], meta, arrays)
    one, eight = (ranker.score(some(), None, name) for name in ("one", "eight"))
    unseen = load(path).score(some(), support.machine(8), "third")
    assert unseen == pytest.approx((one + eight) / 2, rel=1e-4, abs=1e-5)
    write_model(path, meta["ranker"], meta, {**arrays, "heads/factors": np.zeros((1, 3))})
    with pytest.raises(RecordError, match="2 heads"):
        load(path)


def test_what_fills_up_a_schedule_changes_no_score():
    ranker = fitted(steps=30)
    short = support.program((1, 2, 4), (8, 8, 8))
    long = support.program(*[(2, 4, 8)] * 25)
    alone = ranker.score([short], None)[0]
    beside = ranker.score([long, short], None)[1]
    assert beside == pytest.approx(alone, rel=1e-4, abs=1e-5)
    # Nor does room for more steps that nobody uses, in a network that knows no positions.
    roomy = fitted(steps=30, positions=False)
    tight = fitted(steps=6, positions=False)
    assert roomy.score(some(), None) == pytest.approx(tight.score(some(), None), rel=1e-3, abs=1e-4)


def test_positions_tell_the_order_of_steps():
    there = support.program((1, 2, 4), (32, 1, 8))
    back = support.program((32, 1, 8), (1, 2, 4))
    with_positions = fitted().score([there, back], None)
    without = fitted(positions=False).score([there, back], None)
    assert abs(with_positions[0] - with_positions[1]) > 1e-4
    assert abs(without[0] - without[1]) < 1e-5


def test_long_schedules_are_cropped():
    ranker = fitted(steps=3)
    long = support.program((1, 2, 4), (8, 4, 2), (1, 1, 1), (32, 32, 32))
    same = support.program((1, 2, 4), (8, 4, 2), (1, 1, 1), (1, 1, 1))
    score = ranker.score([long, same], None)
    assert score[0] == pytest.approx(score[1], rel=1e-5, abs=1e-6)


def test_a_schedule_without_steps_has_a_score():
    ranker = fitted()
    score = ranker.score([Program(actions=()), *some(3)], None)
    assert np.isfinite(score).all()


def test_programs_that_failed_are_learned_from():
    group = support.groups(1, n=40)[0]
    failed = replace(group, seconds=np.where(np.arange(40) % 2, np.nan, group.seconds))
    ranker, without = make(), make()
    ranker.fit([failed])
    without.fit([failed.subset(failed.valid)])
    assert (ranker.score(some(), None) != without.score(some(), None)).any()


def test_groups_that_say_nothing_are_ignored():
    one = replace(support.groups(1, n=3)[0], seconds=np.array([1e-3, np.nan, np.nan]))
    plain, mixed = make(heads="hardware"), make(heads="hardware")
    plain.fit(support.groups(3))
    mixed.fit([replace(one, hardware="never seen working"), *support.groups(3)])
    assert (plain.score(some(), None) == mixed.score(some(), None)).all()
    with pytest.raises(BadInputError, match="two programs with different seconds"):
        make().fit([one])


def test_the_seed_decides_and_nothing_else():
    first, again, other = fitted(), fitted(), fitted(seed=1)
    assert (first.score(some(), None) == again.score(some(), None)).all()
    assert (first.score(some(), None) != other.score(some(), None)).any()


def test_untrained_every_score_is_zero():
    assert (make().score(some(), None) == np.zeros(20)).all()


def test_training_in_half_precision_learns_the_same():
    ranker, precise = (make(**LEARN, precision=p) for p in ("bfloat16", "float32"))
    for one in (ranker, precise):
        one.fit(support.groups(4))
    programs = some(200)
    scores = ranker.score(programs, None)
    assert (scores != precise.score(programs, None)).any()
    assert support.agreement(precise.score(programs, None), scores) > 0.9


def test_half_precision_keeps_the_order():
    ranker, precise = (make(**LEARN, storage=s) for s in ("float16", "float32"))
    for one in (ranker, precise):
        one.fit(support.groups(4))
    programs = some(200)
    same = support.agreement(precise.score(programs, None), ranker.score(programs, None))
    assert same > 0.98


def load(path, **parts):
    return TlpVariants.load(path, **{**READ, **parts})


@pytest.mark.parametrize("variant", list(KINDS))
def test_what_is_read_back_scores_the_same(tmp_path, variant):
    ranker = make(variant=variant)
    ranker.fit(both(2, 0))
    ranker.save(tmp_path / "model.npz")
    loaded = KINDS[variant].load(tmp_path / "model.npz", **READ)
    assert loaded.config == ranker.config
    assert isinstance(loaded.config, TlpConfig)
    for hardware in ("one", "eight", "third"):
        machine = support.machine(8)
        before = ranker.score(some(), machine, hardware)
        assert (loaded.score(some(), machine, hardware) == before).all()
    assert read_model(tmp_path / "model.npz")[0]["ranker"] == ranker.name == loaded.name


def test_other_versions_and_damaged_files_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    fitted(feature_version="old").save(path)
    with pytest.raises(VersionMismatchError, match="features must be"):
        load(path)
    fitted().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordError):
        load(path)
    write_model(path, "mlp", {}, {})
    with pytest.raises(RecordError, match=r"tlp, mtl_tlp.*holds 'mlp'"):
        load(path)


def test_the_default_is_small_enough_to_ship(tmp_path):
    ranker = TlpRanker(epochs=1, **READ)
    ranker.fit(support.groups(2))
    ranker.save(tmp_path / "model.npz")
    assert (tmp_path / "model.npz").stat().st_size < 1e6


@pytest.mark.parametrize("kind", [TlpRanker, TlpReference])
def test_real_actions_are_read_and_scored(kind):
    def group(seed):
        found = support.groups(1, n=12, seed=seed)[0]
        return replace(found, machine=support.machine(2))

    ranker = kind(epochs=1, **support.ON_CPU)
    ranker.fit([group(0), group(1)])
    score = score_group(ranker, group(2))
    assert np.isfinite(score).all()
    assert len(np.unique(score)) > 1


def test_candidates_of_a_space_are_read_and_scored():
    from tests.space.programs import space

    here = space("matmul")
    rng = np.random.default_rng(0)
    programs = [Program(candidate=c) for c in here.sample(rng, 12)]
    group = Group(
        workload=here.workload.key,
        name="matmul",
        kind="dense",
        hardware=here.hardware.key,
        programs=programs,
        seconds=rng.uniform(1e-4, 1e-3, 12),
        machine=here.hardware,
    )
    ranker = TlpRanker(epochs=1, **support.ON_CPU)
    ranker.fit([group])
    score = score_group(ranker, group)
    assert np.isfinite(score).all()
    assert len(np.unique(score)) > 1
