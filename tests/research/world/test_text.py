"""Texts of programs and actions: nothing in them depends on names, numbers or addresses."""

from __future__ import annotations

import json
import keyword
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.space import Candidate, Space
from foretune.workload import Workload
from foretune_research.world import StateStore, program_text, trajectories_of, variant
from foretune_research.world._program import ProgramWriter
from tests.space.programs import PROGRAMS, TYPICAL, gpu, space

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


def state_texts(name: str, count: int = 8) -> dict[str, str]:
    """Key -> text of the states of some candidates."""
    store = StateStore()
    found = trajectories_of(drawn(name, count), store)
    keys = sorted({state for each in found if each is not None for state in each.states})
    return dict(zip(keys, store.texts(keys), strict=True))


class TestProgramText:
    def test_a_program_and_its_schedule(self):
        module = Workload.from_module(named_matmul(*NAMES), "matmul").module
        assert program_text(module).splitlines() == [
            "arg b0:8x16 b1:16x4 b2:8x4",
            "tmp b3:8x4",
            "for i0=8 i1=4 i2=16",
            " k0 s0=i0 s1=i1 r2=i2",
            "  init 0",
            "  b3[s0,s1]=_+b0[s0,r2]*b1[r2,s1]",
            "for i0=8 i1=4",
            " k1 s0=i0 s1=i1",
            "  b2[s0,s1]=b3[s0,s1]+1",
        ]
        schedule = _tvm.Schedule(module)
        block = schedule.get_sblock("C")
        i, j, _ = schedule.get_loops(block)
        outer, inner = schedule.split(i, [3, None])
        schedule.parallel(outer)
        schedule.reverse_compute_at(schedule.get_sblock("C_done"), outer)
        schedule.annotate(inner, "pragma_x", "off")
        schedule.annotate(block, "meta_schedule.z", 2)
        schedule.annotate(block, "a", [1, 2])
        schedule.vectorize(j)
        assert program_text(schedule.mod).splitlines() == [
            "arg b0:8x16 b1:16x4 b2:8x4",
            "tmp b3:8x4",
            "for i0=3:parallel",
            " for i1=3@pragma_x=off i2=4:vector i3=16",
            "  k0 s0=i0*3+i1 s1=i2 r2=i3 if i0*3+i1<8@a=1,2@z=2",
            "   init 0",
            "   b3[s0,s1]=_+b0[s0,r2]*b1[r2,s1]",
            " for i1=3 i2=4",
            "  k1 s0=i0*3+i1 s1=i2 if i0*3+i1<8",
            "   b2[s0,s1]=b3[s0,s1]+1",
        ]

    def test_types_scopes_and_threads_are_told(self):
        a = te.placeholder((8, 8), "float16", name="A")
        b = te.compute((8, 8), lambda i, j: a[j, i].astype("float32") + (i + j) // 3 % 2, name="B")
        schedule = _tvm.Schedule(_tvm.IRModule({"main": te.create_prim_func([a, b])}))
        block = schedule.get_sblock("B")
        i, j = schedule.get_loops(block)
        schedule.bind(i, "blockIdx.x")
        schedule.bind(j, "threadIdx.x")
        schedule.cache_read(block, 0, "shared")
        text = program_text(schedule.mod)
        assert "b0:8x8:float16" in text and ":float16:shared" in text
        assert "i0=8:blockIdx.x i1=8:threadIdx.x" in text
        assert re.search(r"=float32\(b\d\[s1,s0\]\)\+float32\(\(s0\+s1\)%6//3\)", text)

    @settings(max_examples=25, deadline=None)
    @given(
        st.lists(
            st.from_regex(r"[a-zA-Z][a-zA-Z0-9]{0,6}(_[0-9])?", fullmatch=True).filter(
                lambda name: not keyword.iskeyword(name) and name not in ("root", "make")
            ),
            min_size=6,
            max_size=6,
            unique_by=str.lower,
        )
    )
    def test_names_do_not_count(self, names):
        one, other = named_matmul(*names), named_matmul(*NAMES)
        assert program_text(_tvm.IRModule({"main": one})) == program_text(
            _tvm.IRModule({"main": other})
        )

    @pytest.mark.parametrize("name", TYPICAL)
    def test_two_programs_have_one_text_exactly_if_they_have_one_hash(self, name):
        texts = state_texts(name)
        assert len(set(texts.values())) == len(texts) > 8

    @pytest.mark.parametrize("name", PROGRAMS)
    @pytest.mark.slow
    def test_what_was_written_before_does_not_count(self, name):
        writer = ProgramWriter()
        modules = [c.workload.module for c in drawn(name, 1)]
        modules += [c.sketch.template.replay(c.decisions).mod for c in drawn(name)]
        modules += [c.apply() for c in drawn(name)]
        for module in [*modules, *reversed(modules)]:
            text = writer.text(module)
            assert text == program_text(_tvm.load_json(_tvm.save_json(module)))
            assert not re.search(r"[\0\1]|0x[0-9a-f]{4}", text)

    def test_it_forgets_what_it_cannot_keep(self, monkeypatch):
        monkeypatch.setattr("foretune_research.world._program._REMEMBERED", 3)
        writer = ProgramWriter()
        for candidate in drawn("attention"):
            module = candidate.sketch.template.replay(candidate.decisions).mod
            assert writer.text(module) == program_text(module)

    @pytest.mark.parametrize("name", PROGRAMS)
    def test_it_is_short(self, name):
        for candidate in drawn(name):
            module = candidate.sketch.template.replay(candidate.decisions).mod
            text = program_text(module)
            assert len(text) < len(module.script()) / 2
            assert len(text) <= 1500

    @pytest.mark.slow
    def test_programs_of_a_gpu_have_texts(self):
        here = Space.generate(Workload.from_module(PROGRAMS["matmul"](), "matmul"), gpu())
        for candidate in here.sample(np.random.default_rng(0), 3):
            module = candidate.sketch.template.replay(candidate.decisions).mod
            assert ":shared" in program_text(module)

    def test_blocks_are_numbered_as_actions_number_them(self):
        for name in PROGRAMS:
            here = space(name)
            text = program_text(here.workload.module)
            blocks = re.findall(r"^ *k(\d+) (.*)$", text, re.MULTILINE)
            axes = here.sketches[0].axes
            assert [int(number) for number, _ in blocks] == list(range(len(axes)))
            for (_, line), own in zip(blocks, axes.values(), strict=True):
                values = re.findall(r"[sr](\d+)=", line)
                assert [int(number) for number in values] == list(range(len(own)))


def canonical(text: str) -> list[str]:
    """A text with names by first occurrence and everything else sorted that has no order."""
    lines = sorted(text.split("\n"), key=lambda line: line.startswith("tmp "))
    names: dict[str, str] = {}
    count: dict[str, int] = {}

    def renamed(found: re.Match[str]) -> str:
        letter = found[0][0]
        if found[0] not in names:
            names[found[0]] = f"{letter}{count.setdefault(letter, 0)}"
            count[letter] += 1
        return names[found[0]]

    def in_order(found: re.Match[str]) -> str:
        return "+".join(sorted(found[0].split("+")))

    done = []
    for line in lines:
        line = re.sub(r"\b[bisr]\d+\b", renamed, line)  # noqa: PLW2901
        if line.startswith("tmp "):
            line = " ".join(sorted(line.split(" ")))  # noqa: PLW2901
        head, *annotations = line.split("@")
        if line.lstrip().startswith("k"):
            head = re.sub(r"(?<==)[^ =()]+(?= |$)", in_order, head)
        done.append("@".join([head, *sorted(annotations)]))
    return done


class TestVariant:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_it_is_the_same_program_in_other_words(self, name):
        rng = np.random.default_rng(0)
        for text in state_texts(name, 3).values():
            other = variant(text, rng)
            assert other != text
            assert canonical(other) == canonical(text)

    def test_names_stay_apart(self):
        rng = np.random.default_rng(1)
        for text in state_texts("conv2d_nhwc", 3).values():
            other = variant(text, rng)
            for letter in "bisr":
                pattern = rf"\b{letter}\d+\b"
                before, after = re.findall(pattern, text), re.findall(pattern, other)
                assert len(set(before)) == len(set(after)) and len(before) == len(after)

    def test_variants_of_one_text_are_many_and_follow_the_seed(self):
        text = list(state_texts("matmul", 1).values())[-1]
        found = [variant(text, np.random.default_rng(seed)) for seed in range(20)]
        assert len(set(found)) == 20
        assert found == [variant(text, np.random.default_rng(seed)) for seed in range(20)]

    def test_differences_and_conditions_keep_their_order(self):
        line = " k0 s0=i0-i1+i2 s1=(i0+i1)//3+i2 if i0+i1<8"
        seen = {variant(line, np.random.default_rng(seed)) for seed in range(30)}
        pattern = r" k0 s\d+=i(\d+)-i(\d+)\+i(\d+) s\d+=(.*) if i\1\+i\2<8"
        assert {bool(re.fullmatch(pattern, each)) for each in seen} == {True}
        sums = {re.sub(r"\d+", "", re.fullmatch(pattern, each)[4]) for each in seen}
        assert sums == {"(i+i)//+i", "i+(i+i)//"}


def renumbered(candidate: Candidate) -> Candidate:
    """The same candidate from a trace with other numbers of blocks, loops and values."""
    trace = json.loads(candidate.sketch.trace)
    text = json.dumps(trace[0])
    text = re.sub(r'"([blv])(\d+)"', lambda f: f'"{f[1]}{int(f[2]) * 7 + 50}"', text)
    sketch = replace(candidate.sketch, trace=json.dumps([json.loads(text), trace[1]]))
    return Candidate.trusted(sketch, candidate.decisions)
