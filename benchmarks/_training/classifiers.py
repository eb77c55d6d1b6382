"""Convolutional classifiers that transformers lacks, written out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks._training.parts import Branches, Definition, conv
from foretune.workload.catalog import _definitions as d


def _headed(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100))


def vgg_narrow() -> Definition:
    """VGG without batch norm, widths of 48 to 384, three dense layers at the end; 160 pixels."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs in (48, 96, 192, 384, 384):
        for _ in range(2):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(384 * 25, 1024), nn.ReLU(), nn.Linear(1024, 1024)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(1024, 200)), (d.image(3, 160, 160),)


def inception() -> Definition:
    """Inception V3-like: 5x5, 1x7 and 7x1, 1x3 and 3x1, pooled branches; 235 pixels."""
    blocks: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        conv(32, 32), conv(32, 64), nn.MaxPool2d(3, 2), conv(64, 80, 1), conv(80, 176),
        nn.MaxPool2d(3, 2),
        Branches(
            conv(176, 64, 1),
            nn.Sequential(conv(176, 48, 1), conv(48, 64, 5)),
            nn.Sequential(conv(176, 64, 1), conv(64, 88), conv(88, 88)),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(176, 40, 1)),
        ),
        Branches(
            nn.Sequential(nn.Conv2d(256, 320, 3, 2, bias=False), nn.BatchNorm2d(320), nn.ReLU()),
            nn.MaxPool2d(3, 2),
        ),
        Branches(
            conv(576, 144, 1),
            nn.Sequential(conv(576, 112, 1), conv(112, 112, (1, 7)), conv(112, 144, (7, 1))),
            nn.Sequential(
                conv(576, 112, 1), conv(112, 112, (7, 1)), conv(112, 112, (1, 7)),
                conv(112, 144, (7, 1)),
            ),
            nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(576, 144, 1)),
        ),
        nn.MaxPool2d(3, 2),
        Branches(
            conv(576, 256, 1),
            nn.Sequential(
                conv(576, 320, 1), Branches(conv(320, 320, (1, 3)), conv(320, 320, (3, 1)))
            ),
        ),
    ]  # fmt: skip
    return _headed(*blocks, width=896), (d.image(3, 235, 235),)


class _DenseLayer(nn.Module):
    """Norm, 1x1, norm, 3x3; what it makes is joined to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], 1)


def densenet() -> Definition:
    """DenseNet of growth 24: batch norm in front, joins, 1x1 with pooling between; 184 pixels."""
    width = 48
    layers: list[nn.Module] = [conv(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for _ in range(3):
        for _ in range(3):
            layers.append(_DenseLayer(width, 24))
            width += 24
        half = width // 2
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, half, 1, bias=False)]
        layers.append(nn.AvgPool2d(2))
        width = half
    return _headed(*layers, width=width), (d.image(3, 184, 184),)


class _Shuffle(nn.Module):
    """Channels of the groups in turn."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        y = x.view(batch, self.groups, channels // self.groups, height, width)
        return y.transpose(1, 2).reshape(x.shape)


class _ShuffleUnit(nn.Module):
    """Grouped 1x1, shuffle, depthwise 3x3, grouped 1x1, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        inner = outputs // 4
        made = outputs - inputs if stride == 2 else outputs
        self.layers = nn.Sequential(
            conv(inputs, inner, 1, groups=groups), _Shuffle(groups),
            conv(inner, inner, 3, stride, activation=None, groups=inner),
            conv(inner, made, 1, activation=None, groups=groups),
        )  # fmt: skip
        self.pool = nn.AvgPool2d(3, 2, 1) if stride == 2 else None

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        joined = x + y if self.pool is None else torch.cat([self.pool(x), y], 1)
        return torch.relu(joined)


def shufflenet() -> Definition:
    """ShuffleNet with three groups, widths of 24 to 960, 208 pixels."""
    layers: list[nn.Module] = [conv(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 24
    for outputs in (240, 480, 960):
        layers += [_ShuffleUnit(inputs, outputs, 2, 3), _ShuffleUnit(outputs, outputs, 1, 3)]
        inputs = outputs
    return _headed(*layers, width=960), (d.image(3, 208, 208),)


def squeezenet() -> Definition:
    """SqueezeNet-like: 1x1 that narrows, 1x1 beside 3x3 that widens; 200 pixels."""
    layers: list[nn.Module] = [nn.Conv2d(3, 80, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    inputs = 80
    for at, narrow in enumerate((16, 16, 32, 40, 56, 72)):
        layers += [nn.Conv2d(inputs, narrow, 1), nn.ReLU()]
        one, three = nn.Conv2d(narrow, 4 * narrow, 1), nn.Conv2d(narrow, 4 * narrow, 3, padding=1)
        layers += [Branches(one, three), nn.ReLU()]
        inputs = 8 * narrow
        if at in (1, 3):
            layers.append(nn.MaxPool2d(3, 2))
    return nn.Sequential(*layers, nn.Conv2d(inputs, 50, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten()), (d.image(3, 200, 200),)  # fmt: skip


class _Excite(nn.Module):
    """Squeeze and excite with the hard sigmoid."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 4, 1), nn.ReLU(),
            nn.Conv2d(width // 4, width, 1), nn.Hardsigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x * self.layers(x)
        return y


def mobilenet_v3() -> Definition:
    """MobileNetV3-like: hard swish, 5x5 depthwise, squeeze and excite; two images of 144 pixels."""
    layers: list[nn.Module] = [conv(3, 24, 3, 2, nn.Hardswish)]
    inputs = 24
    for inner, outputs, kernel, stride in (
        (72, 32, 3, 2), (120, 48, 5, 2), (288, 96, 5, 2), (576, 96, 5, 1), (672, 144, 3, 2),
    ):  # fmt: skip
        layers += [
            conv(inputs, inner, 1, 1, nn.Hardswish),
            conv(inner, inner, kernel, stride, nn.Hardswish, groups=inner),
            _Excite(inner), conv(inner, outputs, 1, activation=None),
        ]  # fmt: skip
        inputs = outputs
    layers.append(conv(inputs, 864, 1, 1, nn.Hardswish))
    return _headed(*layers, width=864), (d.normal(2, 3, 144, 144),)


class _Bottleneck(nn.Module):
    """A bottleneck whose middle has groups."""

    def __init__(self, inputs: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        outputs = 2 * width
        self.layers = nn.Sequential(
            conv(inputs, width, 1), conv(width, width, 3, stride, groups=groups),
            conv(width, outputs, 1, activation=None),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = conv(inputs, outputs, 1, stride, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


def resnext() -> Definition:
    """ResNeXt of 32 groups, widths of 96 to 768, 176 pixels."""
    layers: list[nn.Module] = [conv(3, 48, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 48
    for at, width in enumerate((96, 192, 384, 768)):
        layers += [_Bottleneck(inputs, width, 1 + (at > 0), 32)]
        layers += [_Bottleneck(2 * width, width, 1, 32)]
        inputs = 2 * width
    return _headed(*layers, width=inputs), (d.image(3, 176, 176),)


NETWORKS = (
    vgg_narrow, inception, densenet, shufflenet, squeezenet, mobilenet_v3, resnext,
)  # fmt: skip
