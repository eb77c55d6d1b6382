"""Video and volumes: convolutions over three axes, and what takes them apart."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from benchmarks._training.parts import Definition, made
from foretune.workload.catalog import _definitions as d


def _layer(
    inputs: int, outputs: int, kernel: tuple[int, int, int], stride: tuple[int, int, int]
) -> nn.Sequential:
    padding = tuple((side - 1) // 2 for side in kernel)
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, kernel, stride, padding, bias=False),
        nn.BatchNorm3d(outputs),
        nn.ReLU(),
    )


def _apart(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    between = (inputs + outputs) // 2
    return [
        _layer(inputs, between, (1, 3, 3), (1, stride, stride)),
        _layer(between, outputs, (3, 1, 1), (stride, 1, 1)),
    ]


def video_apart() -> Definition:
    """R(2+1)D-like: 1x3x3 and 3x1x1 by turns, widths of 40 to 280; 8 frames of 96 pixels."""
    return nn.Sequential(
        *_apart(3, 40, 1), nn.MaxPool3d((1, 2, 2)), *_apart(40, 72, 1), *_apart(72, 144, 2),
        *_apart(144, 280, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(280, 101),
    ), (d.image(3, 8, 96, 96),)  # fmt: skip


class _Volumes(nn.Module):
    """A 3-D U-Net of three levels (Cicek et al., 2016)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        cube, one = (3, 3, 3), (1, 1, 1)
        widths = (1, width, 2 * width, 4 * width)
        self.down = nn.ModuleList(
            nn.Sequential(_layer(i, o, cube, one), _layer(o, o, cube, one))
            for i, o in itertools.pairwise(widths)
        )
        self.pool = nn.MaxPool3d(2)
        self.widen = nn.Upsample(scale_factor=2)
        self.up = nn.ModuleList(
            _layer(i + o, o, cube, one) for i, o in ((4 * width, 2 * width), (2 * width, width))
        )
        self.head = nn.Conv3d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 1, depth, height, width), all multiples of 4, to scores of four classes."""
        kept = []
        for at, layer in enumerate(self.down):
            x = layer(self.pool(x) if at else x)
            kept.append(x)
        x = kept.pop()
        for layer in self.up:
            x = layer(torch.cat([self.widen(x), kept.pop()], 1))
        scores: Tensor = self.head(x)
        return scores


def unet_3d() -> Definition:
    """3-D U-Net of widths 20 to 80, a volume of 16x48x56."""
    return _Volumes(20), (d.image(1, 16, 48, 56),)


def slow_video() -> Definition:
    """SlowFast's fast way: 5x7x7 in front, few channels, many frames; 16 frames of 80 pixels."""
    return nn.Sequential(
        _layer(3, 12, (5, 7, 7), (1, 2, 2)), nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)),
        _layer(12, 24, (3, 1, 1), (1, 1, 1)), _layer(24, 24, (1, 3, 3), (1, 1, 1)),
        _layer(24, 96, (1, 1, 1), (1, 1, 1)), _layer(96, 48, (3, 3, 3), (2, 2, 2)),
        _layer(48, 88, (3, 3, 3), (2, 2, 2)), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        nn.Linear(88, 40),
    ), (d.image(3, 16, 80, 80),)  # fmt: skip


def videomae_small() -> Definition:
    """VideoMAE small: patches of 2x16x16, 384 wide, 192 tokens; 6 frames of 128 pixels."""
    module = made("VideoMAEModel", "VideoMAEConfig", hidden_size=384, num_attention_heads=6,
                  intermediate_size=1536, num_hidden_layers=2, image_size=128,
                  num_frames=6)  # fmt: skip
    return d.Pick(module, "last_hidden_state"), (d.normal(1, 6, 3, 128, 128),)


NETWORKS = (video_apart, unet_3d, slow_video, videomae_small)
