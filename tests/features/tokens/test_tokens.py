"""Tokens: filling in a sketch gives what reading the actions one by one gives."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from foretune.dataset import Program
from foretune.errors import BadInputError
from foretune.features import action_tokens, token_vocabulary
from foretune.features.tokens._names import kind_index, name_number
from foretune.features.tokens._tokens import REFERENCE_KINDS, encode
from foretune.space import Action, Space
from foretune.space.actions import skeleton_of
from foretune.testing.rankers import nest_space
from foretune.workload import Workload
from tests.space.programs import CPU, TYPICAL, gpu, matmul, space


def slowly(candidate, steps, width, reference):
    """What the fast path has to equal, through ``candidate.actions()``."""
    tokens = np.zeros((steps, width), dtype=np.float32)
    actions = candidate.actions()[:steps]
    for at, action in enumerate(actions):
        tokens[at] = encode(action, candidate.sketch.axes, width, reference)
    return tokens, np.arange(steps) < len(actions)


def check(candidates, steps, width, reference=False):
    programs = [Program(candidate=candidate) for candidate in candidates]
    tokens, mask = action_tokens(programs, CPU, steps, width, reference=reference)
    assert tokens.shape == (len(programs), steps, width) and tokens.dtype == np.float32
    assert mask.shape == (len(programs), steps) and mask.dtype == bool
    for candidate, token, there in zip(candidates, tokens, mask, strict=True):
        expected, expected_there = slowly(candidate, steps, width, reference)
        np.testing.assert_allclose(token, expected, rtol=1e-6)
        assert (there == expected_there).all()


@pytest.mark.parametrize("name", TYPICAL)
def test_the_fast_path_equals_the_slow_one(name):
    drawn = space(name).sample(np.random.default_rng(1), 40)
    check(drawn, 40, 64)
    check(drawn[:10], 9, 50)


def test_it_does_on_a_gpu_and_with_the_published_kinds():
    here = Space.generate(Workload.from_module(matmul(), "matmul"), gpu())
    check(here.sample(np.random.default_rng(0), 20), 40, 64)
    check(here.sample(np.random.default_rng(0), 20), 25, 22, reference=True)


def test_the_untuned_and_the_default_program_have_tokens():
    here = space("matmul")
    check([here.untuned, here.default], 40, 64)
    _, mask = action_tokens([Program(candidate=here.untuned)])
    assert not mask.any()


def test_steps_that_are_switched_off_leave_no_gap():
    drawn = nest_space((64, 64, 64)).sample(np.random.default_rng(0), 60)
    assert len({c.decisions[3:5] for c in drawn}) > 4
    check(drawn, 20, 64)
    _, mask = action_tokens([Program(candidate=c) for c in drawn], None, 20, 64)
    for candidate, there in zip(drawn, mask, strict=True):
        off = sum(decision == 0 for decision in candidate.decisions[3:5])
        assert there.sum() == len(skeleton_of(candidate.sketch)) - off


def test_programs_of_many_sketches_keep_their_places():
    drawn = [
        c
        for name in ("matmul", "softmax", "attention")
        for c in space(name).sample(np.random.default_rng(2), 6)
    ]
    shuffled = [drawn[i] for i in np.random.default_rng(0).permutation(len(drawn))]
    check(shuffled, 40, 64)


def test_sampled_numbers_tell_candidates_apart():
    drawn = space("matmul").sample(np.random.default_rng(3), 64)
    tokens, _ = action_tokens([Program(candidate=c) for c in drawn])
    assert len(np.unique(tokens.reshape(64, -1), axis=0)) == 64


class TestForeign:
    def test_actions_of_others(self):
        actions = [Action("SP", (2, 0, 512, 8, 1)), Action("PR", (0, 0, "auto_unroll_max_step$64"))]
        tokens, mask = action_tokens([Program(actions=actions)], None, 4, 64)
        start = len(token_vocabulary())
        assert mask[0].tolist() == [True, True, False, False]
        assert tokens[0, 0, kind_index("SP")] == 1 and tokens[0, 0, :start].sum() == 1
        expected = np.log2([3, 1, 513, 9, 2])
        np.testing.assert_allclose(tokens[0, 0, start : start + 5], expected, rtol=1e-6)
        assert tokens[0, 1, start + 2] == pytest.approx(np.log2(65))
        assert (tokens[0, 2:] == 0).all()

    def test_the_published_one_hot_has_eleven_kinds(self):
        actions = [Action(code, (1,)) for code in REFERENCE_KINDS]
        tokens, _ = action_tokens([Program(actions=actions)], None, 25, 22, reference=True)
        assert (tokens[0, :11, :11] == np.eye(11)).all()

    def test_steps_the_publication_does_not_know_have_no_kind(self):
        program = Program(actions=[Action("SA", (1, 2)), Action("FFSP", (1,))])
        tokens, mask = action_tokens([program], None, 3, 22, reference=True)
        assert tokens[0, 0, :11].sum() == 0 and mask[0, 0]
        assert tokens[0, 1, REFERENCE_KINDS.index("FSP")] == 1

    def test_unknown_kinds_are_other(self):
        tokens, _ = action_tokens([Program(actions=[Action("fold", ())])])
        assert tokens[0, 0, token_vocabulary().index("other")] == 1

    def test_configurations_are_parameters(self):
        program = Program(configuration={"b": True, "a": "NHWC", "c": 7})
        tokens, mask = action_tokens([program], None, 5, 64)
        assert mask[0].sum() == 3
        assert (tokens[0, :3, kind_index("parameter")] == 1).all()
        assert tokens[0, 2, len(token_vocabulary()) + 1] == 3

    def test_a_program_without_anything_is_all_padding(self):
        tokens, mask = action_tokens([Program()], None, 3, 64)
        assert not mask.any() and (tokens == 0).all()


@pytest.mark.parametrize(("steps", "width"), [(0, 64), (5, 11), (5, 3)])
def test_sizes_without_room_are_refused(steps, width):
    with pytest.raises(BadInputError, match=r"steps >= 1.*width > "):
        action_tokens([], None, steps, width)


def test_nothing_gives_nothing():
    tokens, mask = action_tokens([], None, 7, 64)
    assert tokens.shape == (0, 7, 64) and mask.shape == (0, 7)


class TestNames:
    AXES: ClassVar = {"C": ("i", "j"), "pad": ("yy",)}

    @pytest.mark.parametrize(
        ("name", "number"),
        [
            ("auto", 0.0),
            ("root", -1.0),
            ("inline", -2.0),
            ("C.i", 1.0),
            ("C.j.2", 2.25),
            ("C.j.2+C.i", 2.25),
            ("C.write0.loop3", 4.0),
            ("yy_1", 1.125),
            ("auto_unroll_max_step$0", 0.0),
            ("auto_unroll_max_step$512", np.log2(513)),
        ],
    )
    def test_numbers(self, name, number):
        assert name_number(name, self.AXES) == pytest.approx(number)

    @pytest.mark.parametrize("name", ["C", "T_matmul_NT_1", "meta_schedule.parallel", "", "$"])
    def test_other_names_are_hashed_into_the_unit_interval(self, name):
        assert 0 <= name_number(name, self.AXES) < 1
        assert name_number(name, self.AXES) == name_number(name, {})
