"""Speech and audio: 1-D convolutions over samples, and transformers over what they make."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._training.parts import Call, Definition, Residual, made
from foretune.workload.catalog import _definitions as d


def whisper_tiny() -> Definition:
    """Whisper tiny encoder, 384 wide, 3.2 seconds: 160 states of 80 bands."""
    module = made("WhisperModel", "WhisperConfig", d_model=384, encoder_layers=2, decoder_layers=1,
                  encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536,
                  decoder_ffn_dim=1536, max_source_positions=160, vocab_size=1000,
                  pad_token_id=0, bos_token_id=1, eos_token_id=2,
                  decoder_start_token_id=1)  # fmt: skip
    return d.Pick(module.get_encoder(), "last_hidden_state"), (d.normal(1, 80, 320),)


_SAMPLED = {"mask_time_prob": 0.0, "apply_spec_augment": False}


def hubert_narrow() -> Definition:
    """HuBERT with convolutions 320 wide, 448 wide behind, layer norms; 9,600 samples."""
    module = made("HubertModel", "HubertConfig", conv_dim=[320] * 7, hidden_size=448,
                  num_attention_heads=7, intermediate_size=1792, num_hidden_layers=1,
                  num_conv_pos_embeddings=64, num_conv_pos_embedding_groups=8, conv_bias=True,
                  feat_extract_norm="layer", **_SAMPLED)  # fmt: skip
    return d.Pick(module, "last_hidden_state"), (d.normal(1, 9600),)


def sew_tiny() -> Definition:
    """SEW tiny: convolutions of 64 to 256, squeezed twice, 384 wide; 12,800 samples."""
    module = made("SEWModel", "SEWConfig", hidden_size=384, num_attention_heads=6,
                  intermediate_size=1536, num_hidden_layers=1,
                  conv_dim=[64, 128, 128, 128, 128, 160, 160, 160, 160, 256, 256, 256, 256],
                  num_conv_pos_embeddings=31, **_SAMPLED)  # fmt: skip
    return d.Pick(module, "last_hidden_state"), (d.normal(1, 12800),)


def conformer() -> Definition:
    """Conformer: relative positions, gated depthwise 1-D; 288 wide, 8,000 samples."""
    module = made("Wav2Vec2ConformerModel", "Wav2Vec2ConformerConfig", conv_dim=[192] * 7,
                  hidden_size=288, num_attention_heads=4, intermediate_size=1152,
                  num_hidden_layers=1, num_conv_pos_embeddings=32,
                  num_conv_pos_embedding_groups=8, **_SAMPLED)  # fmt: skip
    return d.Pick(module, "last_hidden_state"), (d.normal(1, 8000),)


def spectrogram_transformer() -> Definition:
    """AST: patches of a spectrogram that overlap, 256 wide, 400 frames of 96 bands."""
    module = made("ASTModel", "ASTConfig", hidden_size=256, num_attention_heads=4,
                  intermediate_size=1024, num_hidden_layers=2, max_length=400,
                  num_mel_bins=96)  # fmt: skip
    return d.Pick(module, "last_hidden_state"), (d.normal(1, 400, 96),)


def hifigan() -> Definition:
    """HiFi-GAN: transposed and dilated 1-D convolutions, width 256; 40 frames of 80 bands."""
    module = made("SpeechT5HifiGan", "SpeechT5HifiGanConfig", upsample_initial_channel=256,
                  normalize_before=False)  # fmt: skip
    return Call(module, lambda m, x: m(x)), (d.normal(40, 80),)


def encodec_decoder() -> Definition:
    """EnCodec-like decoder: ELU, transposed 1-D at strides of 8, 5 and 4; 75 frames."""
    layers: list[nn.Module] = [nn.Conv1d(128, 256, 7, padding=3)]
    inputs = 256
    for stride in (8, 5, 4):
        outputs = inputs // 2
        layers += [nn.ELU(), nn.ConvTranspose1d(inputs, outputs, 2 * stride, stride, stride // 2)]
        layers.append(Residual(nn.Sequential(
            nn.ELU(), nn.Conv1d(outputs, outputs // 2, 3, padding=1),
            nn.ELU(), nn.Conv1d(outputs // 2, outputs, 1),
        )))  # fmt: skip
        inputs = outputs
    return nn.Sequential(*layers, nn.ELU(), nn.Conv1d(32, 1, 7, padding=3)), (d.normal(1, 128, 75),)


class _Separator(nn.Module):
    """Conv-TasNet (Luo and Mesgarani, 2019): a mask of each speaker on a learned spectrum."""

    def __init__(self, basis: int, narrow: int, wide: int, speakers: int = 2) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, basis, 16, 8, bias=False)
        blocks = [self._block(narrow, wide, 1 << at) for at in range(4)]
        self.layers = nn.Sequential(
            nn.GroupNorm(1, basis), nn.Conv1d(basis, narrow, 1), *blocks, nn.PReLU(),
            nn.Conv1d(narrow, speakers * basis, 1), nn.Sigmoid(),
        )  # fmt: skip
        self.decoder = nn.ConvTranspose1d(basis, 1, 16, 8, bias=False)
        self.speakers = speakers

    @staticmethod
    def _block(narrow: int, wide: int, dilation: int) -> nn.Module:
        depthwise = nn.Conv1d(wide, wide, 3, padding=dilation, dilation=dilation, groups=wide)
        return Residual(nn.Sequential(
            nn.Conv1d(narrow, wide, 1), nn.PReLU(), nn.GroupNorm(1, wide), depthwise, nn.PReLU(),
            nn.GroupNorm(1, wide), nn.Conv1d(wide, narrow, 1),
        ))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(1, 1, samples) to (speakers, 1, samples)."""
        spectrum = self.encoder(x)
        masks = self.layers(spectrum).unflatten(1, (self.speakers, -1))[0]
        sound: Tensor = self.decoder(masks * spectrum)
        return sound


def tasnet() -> Definition:
    """Conv-TasNet-like: basis of 224, 96 and 208 wide, dilated depthwise; 6,400 samples."""
    return _Separator(224, 96, 208), (d.normal(1, 1, 6400),)


def wavenet() -> Definition:
    """WaveNet-like: gated dilated 1-D convolutions with skips, 72 wide; 3,000 samples."""
    return _Waves(72, 6), (d.normal(1, 1, 3000),)


class _Waves(nn.Module):
    """Gated convolutions with doubled dilations (van den Oord et al., 2016)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=1 << at, dilation=1 << at) for at in range(depth)
        )
        self.out = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(depth))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(),
                                  nn.Conv1d(width, 128, 1))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(1, 1, samples) to scores (1, 128, samples)."""
        y = self.first(x)
        skips: Any = 0.0
        for gated, out in zip(self.gated, self.out, strict=True):
            filtered, gate = gated(y).chunk(2, 1)
            more, skip = out(torch.tanh(filtered) * torch.sigmoid(gate)).chunk(2, 1)
            y, skips = y + more, skips + skip
        scores: Tensor = self.last(skips)
        return scores


def keyword_spotter() -> Definition:
    """Keyword spotter (DS-CNN-like) on four spectrograms of 98x40: 10x4 in front, 172 wide."""

    def separable() -> list[nn.Module]:
        return [
            nn.Conv2d(172, 172, 3, padding=1, groups=172, bias=False), nn.BatchNorm2d(172),
            nn.ReLU(), nn.Conv2d(172, 172, 1, bias=False), nn.BatchNorm2d(172), nn.ReLU(),
        ]  # fmt: skip

    return nn.Sequential(
        nn.Conv2d(1, 172, (10, 4), 2, (5, 1), bias=False), nn.BatchNorm2d(172), nn.ReLU(),
        *separable(), *separable(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(172, 12),
    ), (d.normal(4, 1, 98, 40),)  # fmt: skip


NETWORKS = (
    whisper_tiny, hubert_narrow, sew_tiny, conformer, spectrogram_transformer, hifigan,
    encodec_decoder, tasnet, wavenet, keyword_spotter,
)  # fmt: skip
