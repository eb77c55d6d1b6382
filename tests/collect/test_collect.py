"""Collecting: every group of the plan, once, whatever interrupts it."""

from __future__ import annotations

import importlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from foretune.collect import (
    EVOLVED,
    PREDICTED,
    UNIFORM,
    Collector,
    Plan,
    audit,
    host_variants,
    measured_twice,
    pack,
    plan,
    reread,
    summarise_audit,
)
from foretune.collect.collector import Store
from foretune.collect.reread import joined
from foretune.cost import Prediction
from foretune.cost.random import RandomModel
from foretune.dataset import AUDIT, StoredWorkload, is_dataset, load, read_dataset
from foretune.errors import BadInputError, RecordError
from foretune.hardware import probe, usable_cores, why_not_here
from foretune.measure import Measurement, Status
from foretune.space import Candidate
from tests.collect.device import FormulaMeasurer
from tests.dataset.measured import seconds_of
from tests.space import programs

pytestmark = pytest.mark.slow

ONE = programs.CPU
TWO = replace(ONE, threads=1, target=json.dumps(json.loads(ONE.target) | {"num-cores": 1}))


@pytest.fixture(autouse=True)
def fresh_device() -> Iterator[None]:
    FormulaMeasurer.measured = []
    FormulaMeasurer.closed = 0
    FormulaMeasurer.stop_after = None
    FormulaMeasurer.drift = 1.0
    FormulaMeasurer.disturbed = staticmethod(lambda _candidate: False)
    yield


@pytest.fixture(scope="module")
def workloads() -> tuple[StoredWorkload, ...]:
    names = {"matmul": "dense", "softmax": "softmax"}
    return tuple(StoredWorkload(programs.space(n).workload, kind) for n, kind in names.items())


def small(workloads: tuple[StoredWorkload, ...], **options: int) -> Plan:
    return Plan(workloads, (ONE, TWO), **{"programs": 10, "uniform": 6, "rounds": 2, **options})


def collect(path: Path, of: Plan, **options: object) -> tuple[bool, list[str]]:
    """Runs a collector to its end; whether it was complete, and what it said."""
    said: list[str] = []
    store = Store(path)
    try:
        with Collector(of, store, measurer=FormulaMeasurer, say=said.append, **options) as made:  # type: ignore[arg-type]
            return made.run(), said
    finally:
        store.close()


def test_every_group_gets_its_programs_of_both_origins(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...]
) -> None:
    complete, said = collect(tmp_path, small(workloads))
    assert complete
    store = Store(tmp_path)
    for stored in workloads:
        for hardware in (ONE, TWO):
            found = store.journal.records(stored.workload.key, hardware.key)
            assert Counter(r.origin for r in found) == {UNIFORM: 6, EVOLVED: 4}
            assert len({r.candidate_key for r in found}) == 10
    store.close()
    assert FormulaMeasurer.closed == 2
    assert "40 of 40 programs" in said[-1]
    assert "0 min left" in said[-1]


def test_what_the_default_search_proposes_is_measured_behind_what_was_drawn(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...]
) -> None:
    of = small(workloads[:1], programs=12, uniform=4, predicted=5)
    assert collect(tmp_path, of)[0]
    # Stopped in the middle, it goes on with the share that is missing.
    assert collect(tmp_path, replace(of, programs=16, predicted=7))[0]
    with Store(tmp_path) as store:
        for hardware in (ONE, TWO):
            found = store.journal.records(workloads[0].workload.key, hardware.key)
            names = [r.origin for r in sorted(found, key=lambda r: r.time)]
            assert names[:12] == [UNIFORM] * 4 + [PREDICTED] * 5 + [EVOLVED] * 3
            assert Counter(names) == {UNIFORM: 4, PREDICTED: 7, EVOLVED: 5}


def test_a_group_that_another_processor_has_is_left_out(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...]
) -> None:
    wide = replace(ONE, simd_bits=512)
    collect(tmp_path / "a", Plan(workloads[:1], (wide,), programs=8, uniform=6))
    pack(Store(tmp_path / "a"), tmp_path / "data")
    known = read_dataset(tmp_path / "data")
    other = replace(wide, name="another processor")
    narrow = replace(wide, name="a narrow one", simd_bits=256)
    FormulaMeasurer.measured = []
    of = Plan(workloads[:1], (other, narrow), programs=8, uniform=6)
    assert collect(tmp_path / "b", of, known=known)[0]
    assert {r.hardware for r in Store(tmp_path / "b").journal.records()} == {narrow.key}
    # What that processor has too little of is measured from the start.
    assert collect(tmp_path / "c", replace(of, programs=10), known=known)[0]
    found = Store(tmp_path / "c").journal.records()
    assert Counter(r.hardware for r in found) == {other.key: 10, narrow.key: 10}


def test_evolved_programs_are_faster_than_uniform_ones(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...]
) -> None:
    one = Plan(workloads[:1], (ONE,), programs=60, uniform=30, rounds=3)
    collect(tmp_path, one)
    pack(store := Store(tmp_path), tmp_path / "data")
    store.close()
    (group,) = load(tmp_path / "data")
    origins = np.array(group.origins)
    assert np.median(group.seconds[origins == EVOLVED]) < np.median(
        group.seconds[origins == UNIFORM]
    )


def test_programs_evolve_to_where_the_model_points(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Contrary(RandomModel):
        """Thinks most of the slowest."""

        def predict(self, candidates: Sequence[Candidate]) -> Prediction:
            scores = np.log2([seconds_of(candidate) for candidate in candidates])
            return Prediction(scores, np.zeros(len(candidates)))

        def draft(self, candidates: Sequence[Candidate]) -> np.ndarray:
            return self.predict(candidates).score

    monkeypatch.setattr("foretune.cost.check_name", lambda name: None)
    monkeypatch.setattr(
        "foretune.cost.create",
        lambda name, **options: Contrary(**options) if name == "contrary" else pytest.fail(name),
    )
    options = {"programs": 40, "uniform": 20, "cost_model": "contrary"}
    collect(tmp_path, Plan(workloads[:1], (ONE,), **options))
    with Store(tmp_path) as store:
        times = {
            origin: [r.measurement.best_s for r in store.journal.records() if r.origin == origin]
            for origin in (UNIFORM, EVOLVED)
        }
    assert np.median(times[EVOLVED]) > np.median(times[UNIFORM])


@pytest.mark.parametrize("stop_after", [0, 1, 7, 23])
def test_an_interrupted_collection_goes_on_and_measures_nothing_twice(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...], stop_after: int
) -> None:
    FormulaMeasurer.stop_after = stop_after
    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path, small(workloads))
    FormulaMeasurer.stop_after = None
    assert collect(tmp_path, small(workloads))[0]
    assert len(FormulaMeasurer.measured) == 40
    pairs = Store(tmp_path).journal.records()
    assert len({(r.hardware, r.candidate_key) for r in pairs}) == 40


def test_a_complete_collection_measures_nothing_again(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...]
) -> None:
    collect(tmp_path, small(workloads))
    before = len(FormulaMeasurer.measured)
    assert collect(tmp_path, small(workloads))[0]
    assert len(FormulaMeasurer.measured) == before


@pytest.mark.slow
def test_the_same_seed_collects_the_same_programs(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...]
) -> None:
    collect(tmp_path / "a", small(workloads))
    first, FormulaMeasurer.measured = FormulaMeasurer.measured, []
    collect(tmp_path / "b", small(workloads))
    assert FormulaMeasurer.measured == first
    FormulaMeasurer.measured = []
    collect(tmp_path / "c", small(workloads, seed=1))
    assert FormulaMeasurer.measured != first


def test_a_collection_goes_on_from_what_another_data_set_has(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...]
) -> None:
    collect(tmp_path / "a", small(workloads[:1], programs=8))
    pack(Store(tmp_path / "a"), tmp_path / "data")
    data = read_dataset(tmp_path / "data")
    known = data.records
    assert collect(tmp_path / "b", small(workloads), known=data)[0]
    found = Store(tmp_path / "b").journal.records()
    expected = {workloads[0].workload.key: 2 * 2, workloads[1].workload.key: 2 * 10}
    assert Counter(r.workload for r in found) == expected
    seen = {(r.hardware, r.candidate_key) for r in known}
    assert not seen & {(r.hardware, r.candidate_key) for r in found}
    assert pack(Store(tmp_path / "b"), tmp_path / "data").records == 40


def test_time_ends_a_collection_between_visits(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...]
) -> None:
    store = Store(tmp_path)
    with Collector(small(workloads), store, measurer=FormulaMeasurer) as collector:
        assert not collector.run(seconds=1e-9)
        with pytest.raises(BadInputError, match="seconds > 0"):
            collector.run(seconds=0)
    assert FormulaMeasurer.measured == []


@pytest.mark.slow
def test_a_small_space_ends_its_group_early(tmp_path: Path) -> None:
    tiny = StoredWorkload(programs.space("global_pooling").workload, "pool")
    size = programs.space("global_pooling").size
    of = Plan((tiny,), (ONE,), programs=size + 500, uniform=size + 500)
    assert collect(tmp_path, of)[0]
    assert 0 < len(FormulaMeasurer.measured) <= size


@pytest.mark.parametrize(
    "options",
    [
        {"uniform": 1},
        {"uniform": 11},
        {"rounds": 0},
        {"seed": -1},
        {"programs": 1},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    workloads: tuple[StoredWorkload, ...], options: dict[str, int]
) -> None:
    with pytest.raises(BadInputError, match="must hold"):
        small(workloads, **options)


def test_a_plan_names_a_cost_model_that_there_is(workloads: tuple[StoredWorkload, ...]) -> None:
    with pytest.raises(BadInputError, match="unknown cost model 'oracle'"):
        Plan(workloads, (ONE,), cost_model="oracle")


def test_a_plan_needs_distinct_workloads_and_hardware(
    workloads: tuple[StoredWorkload, ...],
) -> None:
    for given in ((), workloads[:1] * 2):
        with pytest.raises(BadInputError, match="workloads"):
            Plan(given, (ONE,))
    for machines in ((), (ONE, ONE)):
        with pytest.raises(BadInputError, match="hardware"):
            Plan(workloads, machines)


def test_variants_of_this_machine_are_real_and_measured(
    workloads: tuple[StoredWorkload, ...],
) -> None:
    variants = host_variants()
    assert all(why_not_here(probe(target)) is None for target in variants)
    assert len(set(variants)) == len(variants)
    made = plan(workloads, ["host"], [1], programs=4, uniform=2)
    (hardware,) = made.hardware
    assert hardware.threads == 1 <= usable_cores()
    assert hardware.peak_gflops > 0


class TestPack:
    def test_a_data_set_holds_what_was_collected(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path, small(workloads))
        packed = pack(store := Store(tmp_path), tmp_path / "data")
        store.close()
        assert (packed.records, packed.valid, packed.groups) == (40, 40, 4)
        assert (packed.workloads, packed.kinds, packed.skipped) == (2, 2, 0)
        groups = load(tmp_path / "data")
        assert Counter(g.kind for g in groups) == {"dense": 2, "softmax": 2}
        assert {g.hardware for g in groups} == {ONE.key, TWO.key}
        assert sum(f.stat().st_size for f in (tmp_path / "data").iterdir()) == packed.bytes

    def test_packing_again_adds_to_what_is_there(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        output = tmp_path / "data"
        collect(tmp_path / "a", small(workloads[:1]))
        pack(Store(tmp_path / "a"), output)
        collect(tmp_path / "b", small(workloads[1:]))
        assert pack(Store(tmp_path / "b"), output).records == 40
        assert pack(Store(tmp_path / "b"), output).records == 40
        assert not read_dataset(output).skipped

    def test_nothing_to_pack_is_refused(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        with pytest.raises(BadInputError, match="holds no records"):
            pack(Store(tmp_path / "a"), tmp_path / "data")
        collect(tmp_path / "b", small(workloads))
        pack(Store(tmp_path / "b"), tmp_path / "data")
        with pytest.raises(BadInputError, match="holds no records"):
            pack(Store(tmp_path / "a"), tmp_path / "data")

    def test_records_of_the_place_it_is_written_to_are_not_lost(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        for name, one in zip("ab", workloads, strict=True):
            collect(tmp_path / name, small((one,)))
            pack(Store(tmp_path / name), tmp_path / f"data-{name}")
        known = read_dataset(tmp_path / "data-a")
        with pytest.raises(BadInputError, match="would be lost"):
            pack(Store(tmp_path / "a"), tmp_path / "data-b", known)
        assert len(read_dataset(tmp_path / "data-b").records) == 20

    def test_a_directory_with_other_files_is_left_alone(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path / "a", small(workloads[:1]))
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "thesis.tex").write_text("years of work")
        with pytest.raises(BadInputError, match=r"thesis\.tex"):
            pack(Store(tmp_path / "a"), tmp_path / "home")
        assert [f.name for f in (tmp_path / "home").iterdir()] == ["thesis.tex"]

    def test_a_damaged_space_says_what_to_do(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path, small(workloads))
        for file in (tmp_path / "spaces").iterdir():
            file.write_bytes(file.read_bytes()[:30])
        with pytest.raises(RecordError, match="delete it"):
            pack(Store(tmp_path), tmp_path / "data")


def test_a_target_that_is_not_here_is_refused_before_anything_is_measured(
    workloads: tuple[StoredWorkload, ...],
) -> None:
    with pytest.raises(BadInputError, match=r"cannot be measured here: its code is for riscv"):
        plan(workloads, ["host", "llvm -mtriple=riscv64-linux-gnu"])


def test_a_data_set_may_be_written_into_the_folder_one_is_in(
    tmp_path: Path, workloads: tuple[StoredWorkload, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(tmp_path / "work", small(workloads))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    pack(Store(tmp_path / "work"), Path())
    assert is_dataset(tmp_path / "here")


class TestAudit:
    def test_a_share_is_measured_again_and_compared(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path, small(workloads))
        FormulaMeasurer.drift = 1.1
        store = Store(tmp_path)
        made = audit(store, [ONE, TWO], share=0.25, min_age_s=0, measurer=FormulaMeasurer, say=str)
        assert 1 <= len(made) <= 25
        assert {r.origin for r in made} == {AUDIT}
        result = summarise_audit(store.journal.records())
        assert result.pairs == len(made)
        assert result.median == pytest.approx(np.log(1.1))
        assert result.bias == pytest.approx(np.log(1.1))
        assert result.p95_quiet == pytest.approx(np.log(1.1))
        assert result.valid == result.quiet == 1.0
        assert result.changed == 0
        store.close()

    def test_it_is_measured_as_it_was_collected_with_the_best_in_view(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path, small(workloads))
        told = dict(FormulaMeasurer.best)
        FormulaMeasurer.best = {}
        store = Store(tmp_path)
        audit(store, [TWO], share=1.0, min_age_s=0, measurer=FormulaMeasurer, say=str)
        assert told.keys() <= FormulaMeasurer.best.keys()
        for key, seconds in FormulaMeasurer.best.items():
            mine = store.journal.records(key, TWO.key)
            assert seconds == min(r.measurement.best_s for r in mine if r.origin != AUDIT)
        store.close()

    def test_no_record_is_audited_twice(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path, small(workloads))
        store = Store(tmp_path)
        made = [
            len(audit(store, [ONE, TWO], share, 0.0, measurer=FormulaMeasurer, say=str))
            for share in (0.3, 0.3, 1.0, 1.0)
        ]
        assert 0 < made[0] < 40
        assert made[1:] == [0, 40 - made[0], 0]
        audited = [r for r in store.journal.records() if r.origin == AUDIT]
        assert len({(r.hardware, r.candidate_key) for r in audited}) == 40

    @pytest.mark.slow
    def test_a_stopped_audit_goes_on_with_the_same_sample(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path, small(workloads))
        store = Store(tmp_path)
        FormulaMeasurer.stop_after = len(FormulaMeasurer.measured) + 3
        with pytest.raises(KeyboardInterrupt):
            audit(store, [ONE, TWO], 0.5, 0.0, measurer=FormulaMeasurer, say=str)
        FormulaMeasurer.stop_after = None
        audit(store, [ONE, TWO], 0.5, 0.0, measurer=FormulaMeasurer, say=str)
        stopped = {r.candidate_key for r in store.journal.records() if r.origin == AUDIT}
        collect(tmp_path / "b", small(workloads))
        other = Store(tmp_path / "b")
        whole = audit(other, [ONE, TWO], 0.5, 0.0, measurer=FormulaMeasurer, say=str)
        assert stopped == {r.candidate_key for r in whole}

    def test_young_records_and_other_hardware_are_left(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path, small(workloads))
        store = Store(tmp_path)
        with pytest.raises(BadInputError, match="audit later"):
            audit(store, [ONE, TWO], measurer=FormulaMeasurer, say=str)
        with pytest.raises(BadInputError, match="audit later"):
            audit(store, [], min_age_s=0, measurer=FormulaMeasurer, say=str)
        with pytest.raises(BadInputError, match="share"):
            audit(store, [ONE], share=0, measurer=FormulaMeasurer, say=str)

    def test_without_an_audit_there_is_nothing_to_summarise(self) -> None:
        with pytest.raises(BadInputError, match="no record was measured twice"):
            summarise_audit([])

    def test_audited_records_do_not_count_as_collected(
        self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        collect(tmp_path, small(workloads, programs=8))
        store = Store(tmp_path)
        audit(store, [ONE, TWO], share=1.0, min_age_s=0, measurer=FormulaMeasurer, say=str)
        store.close()
        collect(tmp_path, small(workloads))
        records = [r for r in Store(tmp_path).journal.records() if r.origin != AUDIT]
        assert len(records) == 40


def is_even(candidate: Candidate) -> bool:
    return int(candidate.key, 16) % 2 == 0


class TestReread:
    """Half of the programs were disturbed when they were collected."""

    @pytest.fixture
    def collected(self, tmp_path: Path, workloads: tuple[StoredWorkload, ...]) -> Path:
        FormulaMeasurer.disturbed = staticmethod(is_even)
        collect(tmp_path, small(workloads))
        FormulaMeasurer.disturbed = staticmethod(lambda _candidate: False)
        FormulaMeasurer.measured.clear()
        return tmp_path

    def test_the_disturbed_are_measured_again_and_labels_are_right(
        self, collected: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        store = Store(collected)
        before = store.records()
        noisy = {r.candidate_key for r in before if not any(r.measurement.quiet)}
        best = {h.key: store.best(h) for h in (ONE, TWO)}
        worth = {
            r.candidate_key
            for r in before
            if r.candidate_key in noisy and r.measurement.best_s <= 6 * best[r.hardware][r.workload]
        }
        assert 5 < len(worth) < len(before)
        assert reread(store, [ONE, TWO], measurer=FormulaMeasurer, say=str) == len(worth)
        assert set(FormulaMeasurer.measured) == worth
        after = store.records()
        assert [r.candidate_key for r in after] == [r.candidate_key for r in before]
        assert [r.origin for r in after] == [r.origin for r in before]
        assert reread(store, [ONE, TWO], measurer=FormulaMeasurer, say=str) == 0
        output = tmp_path_factory.mktemp("packed") / "data"
        assert pack(store, output).records == len(before)
        store.close()
        for group in load(output):
            for program, seconds, quiet in zip(
                group.programs, group.seconds, group.quiet, strict=True
            ):
                candidate = program.candidate
                assert candidate is not None
                right = seconds_of(candidate)
                mended = not is_even(candidate) or candidate.key in worth
                assert quiet == mended and seconds == pytest.approx(right * (1 if mended else 2))

    def test_it_goes_on_where_it_was_stopped_and_collecting_does_not_begin_anew(
        self, collected: Path, workloads: tuple[StoredWorkload, ...]
    ) -> None:
        FormulaMeasurer.stop_after = 4
        store = Store(collected)
        with pytest.raises(KeyboardInterrupt):
            reread(store, [ONE, TWO], measurer=FormulaMeasurer, say=str)
        FormulaMeasurer.stop_after = None
        reread(store, [ONE, TWO], measurer=FormulaMeasurer, say=str)
        assert len(FormulaMeasurer.measured) == len(set(FormulaMeasurer.measured))
        store.close()
        FormulaMeasurer.measured.clear()
        complete, _ = collect(collected, small(workloads))
        assert complete and FormulaMeasurer.measured == []

    def test_what_fails_the_second_time_keeps_its_readings(self) -> None:
        first = Measurement(Status.OK, (2.0, 3.0), (False, False))
        assert joined(first, Measurement(Status.TIMEOUT)) == first
        both = joined(first, Measurement(Status.OK, (1.0,), (True,), build_s=0.5))
        assert both.seconds == (2.0, 3.0, 1.0) and both.quiet == (False, False, True)
        assert both.build_s == 0.5 and both.best_s == 1.0

    def test_a_program_found_wrong_is_wrong_and_one_cut_short_is_not(self) -> None:
        first = Measurement(Status.OK, (2.0, 2.1), (False, False), max_error=0.5)
        wrong = Measurement(Status.WRONG_OUTPUT, message="differs")
        assert joined(first, wrong) == wrong
        cut = joined(first, Measurement(Status.CUT_SHORT, (1.9,), (True,), max_error=0.1))
        assert cut.status is Status.OK and cut.best_s == 1.9 and cut.max_error == 0.5

    def test_readings_of_another_environment_stand_alone(
        self, collected: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(FormulaMeasurer, "environment", lambda self: {"tvm": "0.28"})
        store = Store(collected)
        reread(store, [ONE, TWO], measurer=FormulaMeasurer, say=str)
        again = [r for r in store.records() if r.environment["tvm"] == "0.28"]
        assert again and all(len(r.measurement.seconds) == 2 for r in again)
        store.close()

    def test_what_fails_in_another_environment_takes_nothing_away(self) -> None:
        first = Measurement(Status.OK, (2.0, 3.0), (False, False))
        right = Measurement(Status.OK, (1.0,), (True,))
        assert joined(first, Measurement(Status.TIMEOUT), alike=False) == first
        assert joined(first, right, alike=False) == right

    def test_readings_that_stay_keep_their_environment(
        self, collected: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(
            self: FormulaMeasurer, candidates: Sequence[Candidate], best: object = None
        ) -> Iterator[tuple[Candidate, Measurement]]:
            return iter([(c, Measurement(Status.TIMEOUT)) for c in candidates])

        monkeypatch.setattr(FormulaMeasurer, "environment", lambda self: {"tvm": "0.28"})
        monkeypatch.setattr(FormulaMeasurer, "measure", fails)
        store = Store(collected)
        before = {(r.hardware, r.candidate_key): r for r in store.records()}
        assert reread(store, [ONE, TWO], measurer=FormulaMeasurer, say=str) == 0
        after = {(r.hardware, r.candidate_key): r for r in store.records()}
        assert after.keys() == before.keys()
        for key, record in after.items():
            assert record.measurement.seconds == before[key].measurement.seconds
            assert record.environment == before[key].environment
        store.close()

    def test_it_counts_what_it_mended_before_its_time_was_over(
        self, collected: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # By its path, as the room's function has its module's name.
        rereading = importlib.import_module("foretune.collect.reread")
        monkeypatch.setattr(rereading, "_BATCH", 1)
        ticks = itertools.count()
        clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))
        monkeypatch.setattr(rereading, "time", clock)
        store = Store(collected)
        assert reread(store, [ONE], seconds=3.0, measurer=FormulaMeasurer, say=str) == 2
        store.close()

    def test_what_was_read_again_after_its_audit_is_not_judged_by_it(self, collected: Path) -> None:
        store = Store(collected)
        audit(store, [ONE, TWO], share=1.0, min_age_s=0, measurer=FormulaMeasurer, say=str)
        reread(store, [ONE, TWO], measurer=FormulaMeasurer, say=str)
        packed = store.records()
        later = {
            r.candidate_key for r in packed if r.origin != AUDIT and len(r.measurement.seconds) > 2
        }
        pairs = measured_twice(packed)
        assert later and pairs
        assert not {a.candidate_key for a, _ in pairs} & later
        assert all(a.time <= b.time for a, b in pairs)
        store.close()

    def test_what_stays_disturbed_comes_last_when_it_is_called_again(self, collected: Path) -> None:
        FormulaMeasurer.disturbed = staticmethod(is_even)
        FormulaMeasurer.stop_after = 4
        store = Store(collected)
        with pytest.raises(KeyboardInterrupt):
            reread(store, [TWO], measurer=FormulaMeasurer, say=str)
        tried = set(FormulaMeasurer.measured)
        FormulaMeasurer.stop_after = None
        FormulaMeasurer.measured.clear()
        assert reread(store, [TWO], measurer=FormulaMeasurer, say=str) == 0
        assert set(FormulaMeasurer.measured[-4:]) == tried
        store.close()

    def test_an_audit_is_compared_with_what_came_before_it(self, collected: Path) -> None:
        store = Store(collected)
        audit(store, [ONE, TWO], share=1.0, min_age_s=0, measurer=FormulaMeasurer, say=str)
        before = summarise_audit(store.journal.records())
        reread(store, [ONE, TWO], measurer=FormulaMeasurer, say=str)
        after = summarise_audit(store.journal.records())
        assert after.hours == before.hours >= 0 and after.p90 == before.p90 > 0.5
        store.close()

    def test_no_time_makes_no_sense(self, collected: Path) -> None:
        store = Store(collected)
        with pytest.raises(BadInputError, match="seconds > 0"):
            reread(store, [ONE], seconds=0, measurer=FormulaMeasurer, say=str)
        store.close()
