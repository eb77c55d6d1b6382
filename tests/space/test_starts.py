"""Where a search starts: legal candidates of the space, with the tiles of the default schedule."""

from __future__ import annotations

import numpy as np
import pytest

from foretune import search
from foretune.cost import Abilities, Prediction
from foretune.hardware import probe
from foretune.search.evolutionary import Evolutionary, EvolutionConfig
from foretune.space import PerfectTile, Space
from foretune.space._tiles import tiles_of
from foretune.testing.strategies import OracleModel, UnreadyModel
from foretune.workload import Workload
from tests.space import programs
from tests.space.test_tiles import block, depthwise, function, packed, packed_conv, run, te

HARDWARE = probe()


SPACES = {
    "product": lambda: packed(50, 96, 128),
    "convolution": lambda: packed_conv(14, 16, 32),
    "depthwise": lambda: depthwise(14, 32),
}


@pytest.fixture(params=SPACES)
def operands(request):
    return SPACES[request.param]()


def workload(operands):
    from foretune import _tvm

    return Workload.from_module(_tvm.IRModule({"main": function(operands)}), "w")


def test_starts_are_candidates_that_compute_the_same(operands):
    space = Space.generate(workload(operands), HARDWARE)
    assert space.starts
    assert len(set(space.starts)) == len(space.starts)
    rng = np.random.default_rng(0)
    shapes = [tuple(int(e) for e in each.shape) for each in operands]
    arrays = [rng.integers(-3, 4, shape).astype("float32") for shape in shapes]
    expected = run(space.untuned.apply(), arrays)
    for candidate in space.starts[:4]:
        assert space.candidate(candidate.to_json()) == candidate
        np.testing.assert_array_equal(run(candidate.apply(), arrays), expected)


def test_they_have_the_best_tile_in_registers(operands):
    space = Space.generate(workload(operands), HARDWARE)
    best = space.starts[0]
    inner = [
        decision[-1]
        for variable, decision in zip(best.sketch.variables, best.decisions, strict=True)
        if isinstance(variable, PerfectTile) and variable.parts == 4
    ]
    names = ("matmul", "conv2d", "depthwise")
    (name,) = [name for name in best.sketch.axes if name in names]
    whole = [
        tile
        for tile in tiles_of(block(operands, name), HARDWARE.simd_bits)
        if (dict(tile.factors).get(len(tile.once) + len(tile.again) - 1, 1)).bit_count() == 1
    ]
    assert np.prod(inner) == whole[0].vectors * whole[0].lanes


@pytest.mark.parametrize("name", ["softmax", "pooling"])
def test_programs_of_several_sums_or_none_with_vectors_have_legal_starts_or_none(name):
    for candidate in programs.space(name).starts:
        candidate.apply()


def test_a_sum_over_everything_has_none():
    a, r = te.placeholder((4096,), name="a"), te.reduce_axis((0, 4096), "r")
    made = te.compute((), lambda: te.sum(a[r], axis=r), name="sum")
    assert Space.generate(workload([a, made]), HARDWARE).starts == ()


def test_numbers_that_are_no_vectors_have_none():
    a, b = te.placeholder((32, 64), name="a"), te.placeholder((48, 64), name="b")
    r = te.reduce_axis((0, 64), "r")
    made = te.compute((32, 48), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="dots")
    assert Space.generate(workload([a, b, made]), HARDWARE).starts == ()


def test_a_gpu_has_none():
    space = programs.space("matmul")
    gpu = Space.generate(space.workload, programs.gpu())
    assert gpu.starts == ()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_each_batch_are_starts_until_there_are_none(share, monkeypatch):
    monkeypatch.setattr(EvolutionConfig, "starts", share)
    space = Space.generate(workload(packed(50, 96, 128)), HARDWARE)
    starts = {candidate.key for candidate in space.starts}
    strategy = Evolutionary(space, UnreadyModel(), np.random.default_rng(0))
    first = {candidate.key for candidate in strategy.ask(8)}
    assert len(first & starts) >= 8 * share
    assert share or len(first & starts) < 4
    if share == 0.5:
        seen = first
        for _ in range(12):
            batch = {candidate.key for candidate in strategy.ask(8)}
            assert len(batch) == 8 and not batch & seen
            seen |= batch
        assert starts <= seen


def test_a_model_says_which_starts_come_first():
    space = Space.generate(workload(packed(50, 96, 128)), HARDWARE)
    wanted = space.starts[-1]

    class Prefers(OracleModel):
        abilities = Abilities(informed=True, informed_draft=True)

        def predict(self, candidates):
            score = np.array([float(c.key == wanted.key) for c in candidates])
            return Prediction(score, np.zeros(len(candidates)))

    strategy = search.create("evolutionary", space, Prefers(), np.random.default_rng(0))
    assert strategy.ask(2)[0] == wanted
