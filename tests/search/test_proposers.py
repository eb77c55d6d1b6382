"""Proposers: edits of the space, distinct, and better than chance where they claim to be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from foretune._model_file import write_model
from foretune.cost import Abilities
from foretune.dataset import Group, Program
from foretune.errors import BadInputError, RecordError, VersionMismatchError
from foretune.hardware import Hardware, preset
from foretune.search import create as create_strategy
from foretune.search import proposers
from foretune.search.proposers import Situation, Variant
from foretune.search.proposers import _policy as policies
from foretune.search.proposers._ranked import features_of
from foretune.search.proposers.heuristic import (
    CPU_RULES,
    HeuristicProposer,
    complaints,
    gpu_rules,
)
from foretune.search.proposers.learned import LearnedProposer
from foretune.space import PerfectTile, Space
from foretune.testing import SyntheticSpace, strategies
from foretune.testing.strategies import OracleModel
from foretune.workload import catalog
from foretune_research import plugin
from tests.tuning.support import matmul

CPU = Hardware(
    "test", '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}', 2, simd_bits=256,
    l1_bytes=32768, l2_bytes=1 << 20, l3_bytes=1 << 25,
)  # fmt: skip
OWN = ("heuristic", "learned", "random")


@pytest.fixture(scope="module")
def space():
    return Space.generate(matmul(128), CPU)


def situations(space, n, wanted=6, seed=0):
    programs = space.sample(np.random.default_rng(seed), n)
    return [Situation(Variant(program), wanted) for program in programs]


@pytest.mark.parametrize("name", OWN)
def test_edits_are_distinct_legal_and_of_the_same_sketch(space, name):
    asked = situations(space, 8)
    for situation, edits in zip(
        asked, proposers.create(name, space, 1).propose(asked), strict=True
    ):
        program = situation.program.candidate
        assert 0 < len(edits) <= situation.wanted
        assert len({edit.key for edit in edits} | {program.key}) == len(edits) + 1
        for edit in edits:
            assert edit.sketch == program.sketch
            assert space.candidate(edit.to_json()) == edit


@pytest.mark.parametrize("name", OWN)
def test_the_same_seed_gives_the_same_edits(space, name):
    def keys(seed):
        found = proposers.create(name, space, seed).propose(situations(space, 4))
        return [[edit.key for edit in edits] for edits in found]

    assert keys(1) == keys(1) != keys(2)


@pytest.mark.parametrize("name", OWN)
def test_spaces_without_a_compiler_are_edited_too(name):
    space = SyntheticSpace(seed=1)
    found = proposers.create(name, space, 0).propose(situations(space, 3))
    assert all(len(edits) == 6 for edits in found)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("strategy", ["mcts", "evolutionary"])
def test_any_strategy_that_edits_takes_any_proposer(strategy, name):
    made = create_strategy(strategy, SyntheticSpace(seed=2), OracleModel(), 0, proposer=name)
    assert len({c.key for c, _ in strategies.run(made, 32)}) == 32


@pytest.mark.parametrize("looks_ahead", [False, True])
def test_evolution_tells_proposers_what_a_program_was_made_of(looks_ahead, monkeypatch):
    space = SyntheticSpace(seed=2)
    made = create_strategy("evolutionary", space, OracleModel(), 0, proposer="heuristic")
    if looks_ahead:
        # Told of programs while candidates are measured, as a language model is.
        monkeypatch.setattr(HeuristicProposer, "foresight", 4)
    asked, parents = [], {}

    def made_of(child, parent):
        parents.setdefault(child.key, set()).add(parent.key)
        return child

    propose, mutate, crossover = made.proposer.propose, space.mutate, space.crossover

    def spied(given):
        found = propose(given)
        asked.extend(given)
        for situation, edits in zip(given, found, strict=True):
            for edit in edits:
                made_of(edit, situation.program.candidate)
        return found

    def mutated(parent, rng):
        child = mutate(parent, rng)
        # One that is mutated once more was made of the first.
        for first in parents.get(parent.key, set()) | {parent.key}:
            parents.setdefault(child.key, set()).add(first)
        return child

    made.proposer.propose = spied
    monkeypatch.setattr(space, "mutate", mutated)
    monkeypatch.setattr(space, "crossover", lambda a, b, rng: made_of(crossover(a, b, rng), a))
    measured = {c.key: seconds for c, seconds in strategies.run(made, 96)}
    with_ancestors = [situation for situation in asked if situation.ancestors]
    assert any(len(situation.ancestors) > 1 for situation in with_ancestors)
    for situation in with_ancestors:
        line = [situation.program, *situation.ancestors]
        assert len({each.candidate.key for each in line}) == len(line) <= 4
        for child, parent in itertools.pairwise(each.candidate.key for each in line):
            assert parent in parents[child]
        for each in line:
            assert each.seconds in (None, measured.get(each.candidate.key))
            known = each.seconds is not None or each.score is not None
            assert known, "an ancestor was measured, or scored before it was bred from"
    # Of thousands of edits it keeps only what leads to programs that were proposed.
    assert len(made._lineage) < 4 * len(measured)


def test_what_was_asked_about_before_evolution_breeds_is_not_asked_for_nothing(monkeypatch):
    monkeypatch.setattr(HeuristicProposer, "foresight", 4)
    told = []
    monkeypatch.setattr(HeuristicProposer, "prepare", lambda _, found: told.append(list(found)))
    model = type("Late", (OracleModel,), {"abilities": Abilities(ready=False)})()
    made = create_strategy("evolutionary", SyntheticSpace(seed=2), model, 0, proposer="heuristic")
    strategies.run(made, 16, 4)
    (first,) = [found for found in told if found]
    model.abilities = Abilities()
    proposed = []
    propose = made.proposer.propose
    monkeypatch.setattr(
        made.proposer, "propose", lambda given: proposed.append(list(given)) or propose(given)
    )
    made.ask(4)
    assert proposed[0] == first


def test_nothing_asked_gives_nothing(space):
    for name in OWN:
        assert proposers.create(name, space, 0).propose([]) == []


def test_heuristic_edits_suit_the_machine_better_than_random_ones(space):
    asked = situations(space, 24)
    before = complaints(features_of([s.program.candidate for s in asked]), CPU_RULES)

    def improved(name):
        found = proposers.create(name, space, 0).propose(asked)
        after = [complaints(features_of(edits), CPU_RULES).mean() for edits in found]
        return float((before - np.array(after)).mean())

    assert improved("heuristic") > improved("random") + 0.2


def test_rules_complain_about_what_is_wrong(space):
    sketch = next(s for s in space.sketches if len(s.variables) == 6)
    i, j, k, *_ = sketch.variables
    assert (i.extent, j.extent, k.extent) == (128, 128, 128)
    good = sketch.candidate([(8, 4, 1, 4), (4, 1, 2, 16), (32, 4), 4, 4, 2])
    scalar = sketch.candidate([(8, 4, 1, 4), (4, 16, 2, 1), (32, 4), 4, 4, 2])
    serial = sketch.candidate([(1, 1, 32, 4), (1, 1, 8, 16), (32, 4), 4, 4, 2])
    spilled = sketch.candidate([(2, 1, 1, 64), (2, 1, 1, 64), (32, 4), 4, 4, 2])
    best, *worse = complaints(features_of([good, scalar, serial, spilled]), CPU_RULES)
    assert best < min(worse)


def test_gpu_rules_complain_about_what_is_wrong():
    space = Space.generate(catalog.get("matmul:1024x1024x1024"), preset("a100"))
    wanted = [(1024, 5), (1024, 5), (1024, 3)]
    sketch = next(
        s
        for s in space.sketches
        if [(v.extent, v.parts) for v in s.variables if isinstance(v, PerfectTile)] == wanted
    )
    rest = [0] * (len(sketch.variables) - 3)

    def tiled(i, j, k):
        return sketch.candidate([i, j, k, *rest])

    good = tiled((16, 1, 8, 8, 1), (16, 1, 16, 4, 1), (64, 16, 1))
    few_threads = tiled((16, 1, 1, 64, 1), (16, 1, 16, 4, 1), (64, 16, 1))
    spilled = tiled((8, 2, 8, 8, 1), (8, 2, 16, 4, 1), (64, 16, 1))
    unshared = tiled((16, 1, 8, 8, 1), (16, 1, 16, 4, 1), (2, 512, 1))
    few_blocks = tiled((2, 1, 16, 8, 4), (16, 1, 16, 4, 1), (64, 16, 1))
    best, *worse = complaints(
        features_of([good, few_threads, spilled, unshared, few_blocks]),
        gpu_rules(space.hardware),
    )
    assert best < min(worse)


def test_names_are_listed_and_unknown_ones_refused(space):
    studies = plugin.TABLES["foretune.proposers"]
    assert proposers.names() == sorted(["heuristic", "learned", "llm", "random", *studies])
    assert all(proposers.descriptions().values())
    with pytest.raises(BadInputError, match=r"unknown proposer 'oracle'.*heuristic"):
        proposers.create("oracle", space, 0)
    proposers.check_name("default")
    with pytest.raises(BadInputError, match="default"):
        proposers.check_name("oracle")


def test_the_default_fits_the_hardware(space):
    assert isinstance(proposers.create("default", space, 0), LearnedProposer)
    gpu = Hardware("gpu", '{"kind": "cuda"}', 1)
    assert proposers.default_name(gpu) == "heuristic"
    with pytest.raises(BadInputError, match="choose the proposer 'heuristic'"):
        LearnedProposer(Space(space.workload, gpu, ()), np.random.default_rng(0))


class TestPolicy:
    def group(self, space, n=120):
        """Programs whose seconds depend on one thing: how long vectors are."""
        sketch = max(space.sketches, key=lambda s: s.size)
        rng = np.random.default_rng(0)
        few = Space(space.workload, CPU, (sketch,)).sample(rng, 12)
        programs = {c.key: c for c in few}
        while len(programs) < n:
            parent = list(programs.values())[int(rng.integers(len(programs)))]
            edit = space.mutate(parent, rng)
            programs[edit.key] = edit
        seconds = np.array([1e-3 / np.gcd(c.decisions[1][-1], 8) for c in programs.values()])
        return Group(
            space.workload.key, "mm", "dense", CPU.key, [Program(c) for c in programs.values()],
            seconds, CPU,
        )  # fmt: skip

    def test_pairs_are_near_and_go_both_ways(self, space):
        group = self.group(space)
        pairs = policies.pairs_of(group, 1)
        assert len(pairs.gain) and set(pairs.apart.tolist()) == {1}
        for i, j, gain in zip(pairs.first, pairs.second, pairs.gain, strict=True):
            a, b = group.programs[i].candidate, group.programs[j].candidate
            assert sum(x != y for x, y in zip(a.decisions, b.decisions, strict=True)) == 1
            assert gain == pytest.approx(np.log2(group.seconds[i] / group.seconds[j]))
        assert {(i, j) for i, j in zip(pairs.first, pairs.second, strict=True)} == {
            (j, i) for i, j in zip(pairs.first, pairs.second, strict=True)
        }

    def test_it_learns_what_makes_programs_faster(self, space, tmp_path):
        policy, pairs = policies.Policy.train([self.group(space)])
        assert pairs > 100
        policy.save(tmp_path / "policy.npz")
        asked = situations(space, 16, seed=5)

        def lanes(**options):
            found = LearnedProposer(space, np.random.default_rng(0), **options).propose(asked)
            return np.mean([np.gcd(e.decisions[1][-1], 8) for edits in found for e in edits])

        plain = proposers.create("random", space, 0).propose(asked)
        random = np.mean([np.gcd(e.decisions[1][-1], 8) for edits in plain for e in edits])
        assert lanes(policy=policy) == lanes(policy=tmp_path / "policy.npz") > random

    def test_files_that_do_not_fit_are_refused(self, tmp_path, monkeypatch):
        with pytest.raises(RecordError, match="is not a policy"):
            policies.Policy.load(tmp_path / "none.npz")
        (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
        with pytest.raises(RecordError, match="is not a policy"):
            policies.Policy.load(tmp_path / "bad.npz")
        meta = {"schema": policies.SCHEMA, "actions": policies.ACTION_FEATURE_VERSION}
        write_model(tmp_path / "bare.npz", meta, {})
        with pytest.raises(RecordError, match="is not a policy: it holds no trees"):
            policies.Policy.load(tmp_path / "bare.npz")
        monkeypatch.setattr(policies, "ACTION_FEATURE_VERSION", "0+0+0")
        with pytest.raises(VersionMismatchError, match=r"again with `python -m benchmarks"):
            policies.Policy.load(policies.weights("llvm"))

    def test_nothing_to_learn_from(self):
        with pytest.raises(BadInputError, match="learns from programs that differ"):
            policies.Policy.train([])

    def test_what_ships_is_small_and_says_what_it_was_made_of(self):
        path = policies.weights("llvm")
        assert len(path.read_bytes()) < 1 << 20
        assert path.with_suffix(".json").is_file()
