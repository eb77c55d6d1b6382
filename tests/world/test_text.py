"""Texts of actions: nothing in them depends on names, numbers or addresses."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from foretune import _tvm
from foretune.space import Action, Candidate, Space
from foretune.workload import Workload
from foretune.world import action_text, steps_of
from tests.space.programs import CPU, PROGRAMS, space

te = _tvm.tvm.te
NAMES = ["A", "B", "C", "i", "j", "k"]


def named_matmul(a, b, c, i, j, k):
    """A matrix product and a bias whose buffers, blocks and loops have these names."""
    left, right = te.placeholder((8, 16), name=a), te.placeholder((16, 4), name=b)
    axis = te.reduce_axis((0, 16), name=k)

    def make(x, y):
        return te.sum(left[x, axis] * right[axis, y], axis=axis)

    # Loops are named after the arguments of this function.
    element = eval(f"lambda {i}, {j}: make({i}, {j})", {"make": make})
    product = te.compute((8, 4), element, name=c)
    done = te.compute((8, 4), lambda x, y: product[x, y] + 1.0, name=f"{c}_done")
    return te.create_prim_func([left, right, done])


def drawn(name: str, count: int = 8) -> list[Candidate]:
    return space(name).sample(np.random.default_rng(0), count)


def renumbered(candidate: Candidate) -> Candidate:
    """The same candidate from a trace with other numbers of blocks, loops and values."""
    trace = json.loads(candidate.sketch.trace)
    text = json.dumps(trace[0])
    text = re.sub(r'"([blv])(\d+)"', lambda f: f'"{f[1]}{int(f[2]) * 7 + 50}"', text)
    sketch = replace(candidate.sketch, trace=json.dumps([json.loads(text), trace[1]]))
    return Candidate.trusted(sketch, candidate.decisions)


class TestActionText:
    AXES = {"pad": ("y", "x"), "C": ("i", "j", "k"), "C_1": ("i", "k_1")}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("action", "text"),
        [
            (Action("split", ("C.i", 4, 1, 2, 24)), "split k1.0 4 1 2 24"),
            (
                Action("reorder", ("C.i.0", "C.k.1", "C_1.i", "C.j")),
                "reorder k1.0.0 .2.1 k2.0 k1.1",
            ),
            (Action("fuse", ("C.i", "C.j")), "fuse k1.0 .1"),
            (Action("split", ("C.i+C.j", 2, "auto")), "split k1.0+k1.1 2 auto"),
            (
                Action("annotate", ("root", "meta_schedule.parallel", 32)),
                "annotate root parallel 32",
            ),
            (Action("cache_write", ("C", 0, "global")), "cache_write k1 0 global"),
            (
                Action("reverse_compute_at", ("C.write0", "C.j.0")),
                "reverse_compute_at k1.write0 .1.0",
            ),
            (Action("compute_at", ("pad", "j_0")), "compute_at k0 *.1.0"),
            (Action("compute_at", ("pad", "k_1")), "compute_at k0 *.1"),
            (Action("compute_at", ("pad", "k_1_0")), "compute_at k0 *.1.0"),
            (Action("compute_at", ("C.read0.loop2", "ax0")), "compute_at k1.read0.loop2 ax0"),
            (Action("compute_at", ("pad", "j_k_fused_1")), "compute_at k0 *.1+.1"),
            (Action("compute_at", ("pad", "i_0_j_0_fused")), "compute_at k0 *.0+"),
            (Action("compute_at", ("pad", "inline")), "compute_at k0 inline"),
            (Action("SP", (2, 0, 512, 8, 0.5)), "SP 2 0 512 8 0.5"),
            (Action("fold", ()), "fold"),
        ],
    )
    def test_examples(self, action, text):
        assert action_text(action, self.AXES) == text

    def test_unknown_names_stay(self):
        action = Action("split", ("C.i", 4))
        assert action_text(action, {}) == "split C.i 4"

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_numbers_of_the_trace_do_not_count(self, name):
        for candidate in drawn(name):
            other = renumbered(candidate)
            assert other.sketch.trace != candidate.sketch.trace
            axes = candidate.sketch.axes
            assert [action_text(a, axes) for a in candidate.actions()] == [
                action_text(a, axes) for a in other.actions()
            ]

    def test_names_of_the_program_do_not_count(self):
        found = []
        for names in (NAMES, ["left", "right", "Out", "row", "col", "sum"]):
            here = Space.generate(Workload.from_module(named_matmul(*names), "matmul"), CPU)
            candidates = here.sample(np.random.default_rng(0), 12)
            found.append([[action_text(a, c.sketch.axes) for a in c.actions()] for c in candidates])
        assert found[0] == found[1]

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_they_tell_candidates_apart(self, name):
        candidates = drawn(name, 60)
        texts = {tuple(action_text(a, c.sketch.axes) for a in c.actions()) for c in candidates}
        assert len(texts) == len({c.actions() for c in candidates})


def test_steps_leave_out_moves_to_the_root_and_fusions_of_one_loop_only():
    actions = [
        Action("compute_at", ("A", "root")),
        Action("annotate", ("root", "x", 1)),
        Action("reverse_compute_at", ("B", "root")),
        Action("compute_at", ("root", "i.0")),
        Action("compute_at", ("A", "inline")),
        Action("fuse", ("A.i.0", "A.j.0")),
        Action("fuse", ("A.i.0",)),
    ]
    assert steps_of(actions) == (actions[1], *actions[3:6])
