"""Attention kernels: random sizes, views, masks and machines against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune import _tvm
from foretune.operators.attention import attention_kernel
from foretune.operators.attention_form import Attention, Machine, Step
from foretune.operators.views import View

tvm = _tvm.tvm
MACHINES = [Machine(4, 16), Machine(8, 16), Machine(16, 32), Machine(8, 16, 4096)]


def computed(attention, machine, *operands):
    program = attention_kernel(attention, machine).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": program}), tvm.target.Target("llvm"))
    y = tvm.runtime.tensor(np.full(attention.result.size, np.nan, "float32"))
    library["main"](*[tvm.runtime.tensor(o.reshape(-1)) for o in operands], y)
    return read(attention.result, y.numpy())


def read(view, memory):
    """The tensor that a view describes."""
    places = np.zeros(view.shape, int) + view.offset
    for axis, factors in enumerate(view.axes):
        index = np.arange(view.shape[axis])
        inner, place = view.shape[axis], np.zeros(len(index), int)
        for extent, stride in factors:
            inner //= extent
            place += index // inner % extent * stride
        places += place.reshape([-1 if at == axis else 1 for at in range(len(view.axes))])
    return memory.reshape(-1)[places]


def expected(a, q, k, v, *masks):
    q, k, v = (read(w, x.astype("float64")) for w, x in ((a.query, q), (a.key, k), (a.value, v)))
    scores, left = a.scale * q @ k.transpose(0, 2, 1), list(masks)
    for step in a.steps:
        mask = None if step.view is None else read(step.view, left.pop(0))
        if step.kind == "scale":
            scores = scores * step.value
        elif step.kind == "add":
            scores = scores + mask
        else:
            scores = np.where(mask if step.kind == "keep" else ~mask, scores, step.value)
    if a.causal:
        seen = np.tril(np.ones((a.rows, a.columns), bool), a.columns - a.rows)
        scores = np.where(seen, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
    if a.safe:
        weights = np.where((scores == -np.inf).all(-1, keepdims=True), 0, weights)
    return weights @ v


def heads_first(heads, rows, width):
    return View.of((heads, rows, width))


def heads_inside(heads, rows, width):
    """As a projection leaves them: ``[rows, heads * width]``."""
    return View.of((rows, heads, width)).permuted((1, 0, 2))


def part_of_three(heads, rows, width):
    """The middle one of a joint projection of queries, keys and values."""
    whole = View.of((rows, 3, heads, width)).narrowed(1, 1, 1)
    return whole.permuted((2, 0, 3, 1)).reshaped((heads, rows, width))


@st.composite
def attentions(draw):
    heads, rows = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    columns = draw(st.integers(1, 70))
    depth, width = draw(st.sampled_from([3, 8, 16, 40])), draw(st.sampled_from([1, 5, 8, 16, 50]))
    group = draw(st.sampled_from([g for g in (1, 2, 4) if heads % g == 0]))
    layout = draw(st.sampled_from([heads_first, heads_inside, part_of_three]))

    def shared(extent, length):
        return layout(heads // group, extent, length).repeated(0, group)

    steps = [Step("scale", 0.5)] if draw(st.booleans()) else []
    kind = draw(st.sampled_from(["", "add", "keep", "drop"]))
    if kind:
        shape = (heads, rows, columns)
        own = [draw(st.sampled_from([1, e])) for e in shape]
        mask = View.of(own).broadcast(shape)
        dtype = "float32" if kind == "add" else "bool"
        steps.append(Step(kind, draw(st.sampled_from([-math.inf, -1e4])), mask, dtype))
    causal = columns >= rows and draw(st.booleans())
    output = draw(st.sampled_from([heads_first, heads_inside]))
    return Attention(
        heads, rows, columns, depth, width, layout(heads, rows, depth), shared(columns, depth),
        shared(columns, width), output(heads, rows, width), draw(st.sampled_from([1.0, 0.3])),
        tuple(steps), causal, draw(st.booleans()),
    )  # fmt: skip


def operands(a, seed=0):
    rng = np.random.default_rng(seed)
    given = [rng.normal(size=v.size).astype("float32") for v in (a.query, a.key, a.value)]
    for step in a.steps:
        if step.kind == "add":
            given.append(rng.normal(size=step.view.size).astype("float32"))
        elif step.view is not None:
            given.append(rng.random(step.view.size) < 0.7)
    return given


def check(attention, machine, given):
    found = computed(attention, machine, *given)
    assert found.shape == (attention.heads, attention.rows, attention.width)
    np.testing.assert_allclose(found, expected(attention, *given), rtol=2e-5, atol=2e-5)


@settings(max_examples=12, deadline=None)
@given(attentions(), st.sampled_from(MACHINES))
def test_any_attention(attention, machine):
    check(attention, machine, operands(attention))


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(attentions(), st.sampled_from(MACHINES))
def test_very_many_attentions(attention, machine):
    check(attention, machine, operands(attention))


def plain(heads, rows, columns, depth, **options):
    of = heads_first
    return Attention(
        heads, rows, columns, depth, depth, of(heads, rows, depth), of(heads, columns, depth),
        of(heads, columns, depth), of(heads, rows, depth), **options,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 2, 30])
@pytest.mark.parametrize("safe", [False, True])
def test_a_row_that_sees_nothing_gives_zeros_only_where_that_is_asked(rows, safe):
    mask = np.ones((rows, 12), bool)
    mask[-1] = False
    view = View.of((rows, 12)).broadcast((2, rows, 12))
    attention = plain(2, rows, 12, 8, steps=(Step("keep", -math.inf, view, "bool"),), safe=safe)
    given = [*operands(plain(2, rows, 12, 8)), mask.reshape(-1)]
    found = computed(attention, MACHINES[1], *given)
    assert (found[:, -1] == 0).all() if safe else np.isnan(found[:, -1]).all()
    np.testing.assert_allclose(found[:, :-1], expected(attention, *given)[:, :-1], atol=2e-5)


def test_scores_far_apart_overflow_nowhere():
    attention = plain(1, 20, 33, 8, scale=100.0)
    check(attention, MACHINES[1], operands(attention))


def test_one_token_reads_shared_keys_once():
    """Heads over the same keys are rows of one job: as many jobs as heads of keys."""
    key = heads_first(2, 48, 16).repeated(0, 4)
    query = heads_first(8, 1, 16)
    attention = Attention(8, 1, 48, 16, 16, query, key, key, query)
    program = attention_kernel(attention, MACHINES[1]).script()
    assert "T.parallel(2)" in program
    check(attention, MACHINES[1], operands(attention))
