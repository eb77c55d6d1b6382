"""Recurrent layers of PyTorch, as kernels and unrolled, against eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import foretune
from foretune.errors import UnsupportedModelError
from foretune.graph import compile_model, extract
from foretune.graph.artifact import Artifact
from foretune.graph.simplify import simplify
from foretune.hardware import probe
from foretune.workload import from_object

torch = pytest.importorskip("torch")
nn = torch.nn
prune = pytest.importorskip("torch.nn.utils.prune")


class Calls(nn.Module):
    """A part that is called as it is, all its tensors being outputs."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, *given):
        return self.part(*given)


class Side(nn.Module):
    """Layers side by side."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, *given):
        return [part(*given) for part in self.parts]


def check(module, *inputs, without=()):
    """Imports, compiles and compares with eager PyTorch, which goes on as before."""
    module.eval()
    with torch.no_grad():
        before = module(*inputs)
    model = from_object((module, inputs), "net")
    artifact = compile_model(model, probe(), {}, extract(model, probe(), without))
    for arrays in (model.examples, model.draw_inputs(1)):
        outputs, expected = artifact.run(list(arrays)), model.reference(arrays)
        assert [(o.shape, o.dtype) for o in outputs] == [(e.shape, e.dtype) for e in expected]
        for output, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(module(*inputs), before, rtol=0, atol=0)
    return model


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


KINDS = {
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "gru": (nn.GRU, {}),
    "lstm": (nn.LSTM, {}),
    "projected": (nn.LSTM, {"proj_size": 3}),
}
OPTIONS = [
    {},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
]


def layers(*options, inputs=5, hidden=7, **more):
    return [
        kind(inputs, hidden, **own, **each, **more)
        for kind, own in KINDS.values()
        for each in options
    ]


def test_one_layer_of_each_kind():
    one = [kind(5, 7, **own) for kind, own in KINDS.values()]
    check(Side(*one, nn.LSTM(5, 7, bidirectional=True)), draw(3, 2, 5))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "steps", "batch"),
    [
        ((), 4, 2),
        (("recurrences",), 2, 2),
        ((), 1, 1),
        ((), 3, 9),
    ],
)
def test_layers_of_all_kinds(without, steps, batch):
    check(Side(*layers(*OPTIONS)), draw(steps, batch, 5), without=without)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [16, 33, 100])
def test_hidden_units_that_fill_vectors_and_threads_or_do_not(hidden):
    check(Side(*layers({}, {"bidirectional": True}, hidden=hidden)), draw(3, 1, 5))


@pytest.mark.slow
def test_batches_first():
    check(Side(*layers(*OPTIONS, batch_first=True)), draw(2, 3, 5))


@pytest.mark.slow
def test_without_a_batch():
    check(Side(*layers(*OPTIONS)), draw(3, 5))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("kind", ["gru", "lstm", "projected"])
def test_given_states(kind, batch):
    layer, own = KINDS[kind]
    layer = layer(5, 7, num_layers=2, bidirectional=True, **own)
    shape = [4, *([] if batch is None else [batch])]
    hidden, state = draw(*shape, own.get("proj_size", 7)), draw(*shape, 7)
    initial = hidden if kind == "gru" else (hidden, state)
    check(Calls(layer), draw(3, *shape[1:], 5), initial)


@pytest.mark.slow
def test_cells():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.gru, self.rnn = nn.LSTMCell(5, 7), nn.GRUCell(5, 7), nn.RNNCell(5, 7)

        def forward(self, x, h, c):
            return self.lstm(x, (h, c)), self.lstm(x), self.gru(x, h), self.gru(x), self.rnn(x, h)

    check(Cells(), draw(2, 5), draw(2, 7), draw(2, 7))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_are_unrolled(dtype):
    kind = getattr(torch, dtype)
    model = from_object((nn.LSTM(5, 7).to(kind), (draw(3, 2, 5).to(kind),)), "net")
    found = compile_model(model, probe(), {}).run(list(model.examples))
    bound = 1e-2 if dtype == "float16" else 1e-12
    for output, wanted in zip(found, model.reference(model.examples), strict=True):
        assert output.dtype == wanted.dtype
        np.testing.assert_allclose(output, wanted, rtol=bound, atol=bound)


def kernels(model, without=()):
    """Calls of kernels in a network."""
    return str(simplify(model, probe(), without).program["main"]).count("R.call_tir(")


def test_a_direction_is_one_kernel_however_long():
    few, many = (from_object((nn.LSTM(5, 7), (draw(n, 5),)), "net") for n in (4, 700))
    assert kernels(few) == kernels(many) < 9
    with pytest.raises(UnsupportedModelError, match=r"700 steps, and no more than 512 .*--pass"):
        simplify(many, probe(), ["recurrences"])


class Streaming(nn.Module):
    """Goes on where the call before ended."""

    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(5, 7)
        self.register_buffer("hidden", torch.zeros(1, 1, 7))

    def forward(self, x):
        self.layer.flatten_parameters()
        y, self.hidden = self.layer(x, self.hidden)
        return y


def test_hidden_states_in_buffers_are_states():
    module, parts = Streaming().eval(), [draw(2, 1, 5), draw(2, 1, 5) + 1]
    with torch.no_grad():
        whole = module.layer(torch.cat(parts))[0].numpy()
    model = from_object((module, (parts[0],)), "net")
    assert model.states == ("state.hidden",)
    artifact, states = compile_model(model, probe(), {}), []
    for part, wanted in zip(parts, np.split(whole, 2), strict=True):
        y, *states = artifact.run([part.numpy(), *states])
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_layers_that_are_called_twice_and_tied_weights():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.LSTM(5, 5), nn.LSTM(5, 5)
            self.again = self.one
            self.other.weight_hh_l0 = self.one.weight_hh_l0

        def forward(self, x):
            return self.other(self.again(self.one(x)[0])[0])

    check(Twice(), draw(3, 1, 5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "norm",
    [
        nn.utils.weight_norm,
        nn.utils.parametrizations.weight_norm,
        nn.utils.spectral_norm,
        nn.utils.parametrizations.spectral_norm,
        lambda layer, name: prune.random_unstructured(layer, name, 0.5),
    ],
    ids=["weight_norm", "weight_norm, new", "spectral_norm", "spectral_norm, new", "pruning"],
)
def test_weights_that_are_computed_in_each_call(norm):
    torch.manual_seed(0)
    model = check(
        Side(norm(nn.LSTM(5, 7), "weight_hh_l0"), norm(nn.Linear(5, 5), "weight")), draw(3, 5)
    )
    assert not model.states


def test_dropped_attributes_beside_a_layer_are_still_refused():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.kept = nn.RNN(5, 7), torch.zeros(3, 7)

        def forward(self, x):
            self.kept = self.kept + self.layer(x)[0]
            return self.kept * 2

    with pytest.raises(UnsupportedModelError, match=r"its own attribute 'kept', .*register_buffer"):
        from_object((Keeps(), (draw(3, 5),)), "net")


def test_packed_sequences_are_refused_with_a_remedy():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(5, 7)

        def forward(self, x, lengths, initial=None):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return nn.utils.rnn.pad_packed_sequence(self.layer(packed, initial)[0])[0]

    x, initial = draw(3, 2, 5), (draw(1, 2, 7), draw(1, 2, 7))
    for given in ((torch.tensor([3, 2]),), (torch.tensor([3, 2]), initial), ([3, 2],)):
        with pytest.raises(UnsupportedModelError, match=r"packs sequences, .*: give .* padded"):
            from_object((Packed(), (x, *given)), "net")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layer = nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(48, 5)

    def forward(self, words):
        return self.tags(self.layer(self.words(words))[0])


@pytest.mark.slow
def test_a_tagger_is_tuned_and_proven(tmp_path):
    torch.manual_seed(0)
    module, words = Tagger().eval(), torch.randint(0, 50, (1, 12))
    result = foretune.tune((module, (words,)), trials=4, work_dir=tmp_path / "work")
    path = tmp_path / "tagger.so"
    result.compile().save(path)
    found = Artifact.load(path).run([words.numpy()])
    with torch.no_grad():
        np.testing.assert_allclose(found[0], module(words).numpy(), rtol=1e-4, atol=1e-5)
