"""Recurrent networks and other sequence models with a state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks._training.parts import VOCABULARY, Call, Definition, decoder, made
from foretune.workload.catalog import _definitions as d


class _Memory(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber, 1997), step by step: one product takes in all inputs."""

    gates = 4

    def __init__(self, inputs: int, width: int, reverse: bool = False) -> None:
        super().__init__()
        self.taken = nn.Linear(inputs, self.gates * width)
        self.kept = nn.Linear(width, self.gates * width)
        self.reversed = reverse

    def forward(self, x: Tensor) -> Tensor:
        """(batch, steps, inputs) to the states (batch, steps, width)."""
        taken = self.taken(x)
        state = x.new_zeros(x.shape[0], self.kept.in_features)
        memory, states = state, []
        steps = range(x.shape[1])
        for at in reversed(steps) if self.reversed else steps:
            state, memory = self.step(taken[:, at], state, memory)
            states.append(state)
        return torch.stack(states[::-1] if self.reversed else states, 1)

    def step(self, taken: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One step: the next state and memory, all of shape (batch, width)."""
        enter, forget, new, leave = (taken + self.kept(state)).chunk(4, 1)
        memory = forget.sigmoid() * memory + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * memory.tanh(), memory


class _Gated(_Memory):
    """A GRU (Cho et al., 2014), which has no memory beside its state."""

    gates = 3

    def step(self, taken: Tensor, state: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """As that of the LSTM."""
        resets, updates, news = zip(taken.chunk(3, 1), self.kept(state).chunk(3, 1), strict=True)
        new = torch.tanh(news[0] + torch.sigmoid(resets[0] + resets[1]) * news[1])
        update = torch.sigmoid(updates[0] + updates[1])
        return (1 - update) * new + update * state, memory


class _Ways(nn.Module):
    """The states of one way and of the other, joined."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.ways = nn.ModuleList(_Memory(inputs, width, way) for way in (False, True))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([way(x) for way in self.ways], -1)


def _words(inputs: int, layer: nn.Module, states: int, outputs: int) -> nn.Module:
    embedding = nn.Embedding(VOCABULARY, inputs)
    return nn.Sequential(embedding, layer, nn.Linear(states, outputs))


def lstm_language_model() -> Definition:
    """LSTM language model: two layers 650 wide, 6 tokens, scores of 1000 words."""
    layers = nn.Sequential(_Memory(650, 650), _Memory(650, 650))
    return _words(650, layers, 650, VOCABULARY), (d.tokens(6, VOCABULARY),)


def lstm_tagger() -> Definition:
    """Bidirectional LSTM tagger: 100 in, 192 each way, 9 tokens of four sentences, 17 tags."""
    return _words(100, _Ways(100, 192), 384, 17), (d.tokens(9, VOCABULARY).repeat(4, 1),)


def gru_encoder() -> Definition:
    """GRU encoder: 240 in, 480 wide, 8 steps of two sequences."""
    return _words(240, _Gated(240, 480), 480, 96), (d.tokens(8, VOCABULARY).repeat(2, 1),)


class _Cells(nn.Module):
    """An LSTM cell and a GRU cell behind it, one step of eight streams."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTMCell(320, 448)
        self.gru = nn.GRUCell(448, 352)

    def forward(
        self, x: Tensor, hidden: Tensor, memory: Tensor, state: Tensor
    ) -> tuple[Tensor, ...]:
        hidden, memory = self.lstm(x, (hidden, memory))
        return self.gru(hidden, state), hidden, memory


def streaming_cells() -> Definition:
    """One step of an LSTM cell (448) and a GRU cell (352), eight streams at once."""
    return _Cells(), (d.normal(8, 320), d.normal(8, 448), d.normal(8, 448), d.normal(8, 352))


def mamba() -> Definition:
    """Mamba: 512 wide, a scan over 12 tokens written out, short depthwise convolution."""
    module = made("MambaModel", "MambaConfig", vocab_size=VOCABULARY, hidden_size=512,
                  num_hidden_layers=1)  # fmt: skip
    return d.Pick(module, "last_hidden_state"), (d.tokens(12, VOCABULARY),)


def recurrent_memory() -> Definition:
    """RWKV-like time mixing: 384 wide, decays in place of attention, 10 tokens."""
    return _TimeMixing(384, 2), (d.normal(1, 10, 384),)


class _TimeMixing(nn.Module):
    """Blocks of time mixing and channel mixing (Peng et al., 2023)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_TimeMixingBlock(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class _TimeMixingBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.key, self.value, self.receptance, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.widen = nn.Linear(width, 3 * width, bias=False)
        self.narrow = nn.Linear(3 * width, width, bias=False)
        self.gate = nn.Linear(width, width, bias=False)
        self.mix = nn.Parameter(torch.rand(5, width))
        self.decay = nn.Parameter(torch.rand(width))
        self.first = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        now = self.norms[0](x)
        before = nn.functional.pad(now, (0, 0, 1, -1))
        key, value, gate = (
            layer(now * mix + before * (1 - mix))
            for layer, mix in zip((self.key, self.value, self.receptance), self.mix, strict=False)
        )
        x = x + self.output(torch.sigmoid(gate) * self._averages(key, value))
        now = self.norms[1](x)
        before = nn.functional.pad(now, (0, 0, 1, -1))
        inner = torch.relu(self.widen(now * self.mix[3] + before * (1 - self.mix[3]))) ** 2
        opened = torch.sigmoid(self.gate(now * self.mix[4] + before * (1 - self.mix[4])))
        y: Tensor = x + opened * self.narrow(inner)
        return y

    def _averages(self, key: Tensor, value: Tensor) -> Tensor:
        weights, sums = torch.zeros_like(key[:, 0]), torch.zeros_like(key[:, 0])
        found = []
        for at in range(key.shape[1]):
            own = torch.exp(key[:, at] + self.first)
            found.append((sums + own * value[:, at]) / (weights + own))
            kept, new = torch.exp(-torch.exp(self.decay)), torch.exp(key[:, at])
            sums, weights = kept * sums + new * value[:, at], kept * weights + new
        return torch.stack(found, 1)


def time_series() -> Definition:
    """PatchTSMixer: mixing over channels and patches; 7 series of 336 steps."""
    module = made("PatchTSMixerModel", "PatchTSMixerConfig", context_length=336, patch_length=16,
                  patch_stride=8, num_input_channels=7, d_model=96, num_layers=2,
                  mode="mix_channel")  # fmt: skip
    return d.Pick(module, "last_hidden_state"), (d.normal(4, 336, 7),)


def smollm_step() -> Definition:
    """SmolLM2 360M, 960 wide with 5 of 15 heads that have keys; one token."""
    return decoder("LlamaModel", "LlamaConfig", 1, hidden_size=960, intermediate_size=2560,
                   num_hidden_layers=1, num_attention_heads=15, num_key_value_heads=5)  # fmt: skip


def ranking_network() -> Definition:
    """Recommender (DLRM-like): towers of dense layers, pairwise products; a batch of 64."""
    bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                           nn.Linear(256, 64), nn.ReLU())  # fmt: skip
    top = nn.Sequential(nn.Linear(64 + 10 * 10, 480), nn.ReLU(), nn.Linear(480, 240), nn.ReLU(),
                        nn.Linear(240, 1), nn.Sigmoid())  # fmt: skip
    tables = nn.ModuleList(nn.Embedding(500, 64) for _ in range(9))
    module = nn.ModuleDict({"bottom": bottom, "top": top, "tables": tables})
    indices = torch.randint(500, (64, 9), generator=torch.Generator().manual_seed(1))

    def call(parts: nn.ModuleDict, numbers: Tensor, words: Tensor) -> Tensor:
        dense = parts["bottom"](numbers)
        found = [table(words[:, at]) for at, table in enumerate(parts["tables"].children())]
        rows = torch.stack([dense, *found], 1)
        pairs = (rows @ rows.transpose(1, 2)).flatten(1)
        scores: Tensor = parts["top"](torch.cat([dense, pairs], 1))
        return scores

    return Call(module, call), (d.normal(64, 13), indices)


NETWORKS = (
    lstm_language_model, lstm_tagger, gru_encoder, streaming_cells, mamba, recurrent_memory,
    time_series, smollm_step, ranking_network,
)  # fmt: skip
