"""Detectors, segmentation and other networks that say something of each place of an image."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from benchmarks._training.parts import Branches, Definition, Residual, conv, made, vision
from foretune.workload.catalog import _definitions as d


class _CrossStage(nn.Module):
    """Half of the channels through residual blocks, the other half past them (CSPNet)."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        half = width // 2
        blocks = [
            Residual(nn.Sequential(*(conv(half, half, side, 1, nn.SiLU) for side in (1, 3))))
            for _ in range(depth)
        ]
        self.halves = Branches(
            nn.Sequential(conv(width, half, 1, 1, nn.SiLU), *blocks),
            conv(width, half, 1, 1, nn.SiLU),
        )
        self.join = conv(width, width, 1, 1, nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.join(self.halves(x))
        return y


class _Pyramid(nn.Module):
    """Three poolings one behind the other, joined (SPPF)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = conv(width, width // 2, 1, 1, nn.SiLU)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.last = conv(2 * width, width, 1, 1, nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        found = [self.first(x)]
        for _ in range(3):
            found.append(self.pool(found[-1]))
        y: Tensor = self.last(torch.cat(found, 1))
        return y


class _Yolo(nn.Module):
    """Cross-stage body, one way down and up again, heads apart for classes and boxes."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        stages: list[nn.Module] = [conv(3, width, 6, 2, nn.SiLU)]
        inputs = width
        for at in range(1, 5):
            outputs = width << at
            stages += [conv(inputs, outputs, 3, 2, nn.SiLU), _CrossStage(outputs, 1)]
            inputs = outputs
        self.low = nn.Sequential(*stages[:5])
        self.middle = nn.Sequential(*stages[5:7])
        self.high = nn.Sequential(*stages[7:], _Pyramid(16 * width))
        self.narrow = conv(16 * width, 8 * width, 1, 1, nn.SiLU)
        self.up = nn.Upsample(scale_factor=2)
        self.joined = nn.Sequential(conv(16 * width, 8 * width, 1, 1, nn.SiLU),
                                    _CrossStage(8 * width, 1))  # fmt: skip
        self.heads = nn.ModuleList(
            Branches(*(
                nn.Sequential(conv(each, 2 * width, 3, 1, nn.SiLU), nn.Conv2d(2 * width, n, 1))
                for n in (classes, 4, 1)
            ))
            for each in (4 * width, 8 * width, 8 * width)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """(1, 3, height, width), both multiples of 32, to (1, classes + 5, places)."""
        low = self.low(x)
        middle = self.middle(low)
        high = self.narrow(self.high(middle))
        middle = self.joined(torch.cat([self.up(high), middle], 1))
        levels = (low, middle, high)
        found = [head(y).flatten(2) for head, y in zip(self.heads, levels, strict=True)]
        return torch.cat(found, 2).sigmoid()


def yolo() -> Definition:
    """YOLO-like detector of width 24: SiLU, pooled pyramid, three heads; 320 pixels."""
    return _Yolo(24, 20), (d.image(3, 320, 320),)


class _Retina(nn.Module):
    """A feature pyramid with heads that share their weights (Lin et al., 2017)."""

    def __init__(self, widths: tuple[int, ...], width: int, classes: int, anchors: int) -> None:
        super().__init__()
        self.stem = conv(3, widths[0], 7, 4)
        self.stages = nn.ModuleList(conv(i, o, 3, 2) for i, o in itertools.pairwise(widths))
        self.sides = nn.ModuleList(nn.Conv2d(each, width, 1) for each in widths[1:])
        self.smooth = nn.Conv2d(width, width, 3, padding=1)
        self.classes = self._head(width, classes * anchors)
        self.boxes = self._head(width, 4 * anchors)

    @staticmethod
    def _head(width: int, outputs: int) -> nn.Sequential:
        layers = [
            layer for _ in range(2) for layer in (nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        ]
        return nn.Sequential(*layers, nn.Conv2d(width, outputs, 3, padding=1))

    def forward(self, x: Tensor) -> Iterable[Tensor]:
        """An image (1, 3, height, width) to scores and boxes of each place of three levels."""
        x = self.stem(x)
        levels = []
        for stage, side in zip(self.stages, self.sides, strict=True):
            x = stage(x)
            levels.append(side(x))
        y = levels[-1]
        scores, boxes = [self.classes(y)], [self.boxes(y)]
        for level in levels[-2::-1]:
            larger = nn.functional.interpolate(y, size=level.shape[-2:])
            y = self.smooth(level + larger)
            scores.append(self.classes(y).sigmoid())
            boxes.append(self.boxes(y))
        flat = [torch.cat([each.flatten(2) for each in part], 2) for part in (scores, boxes)]
        return tuple(flat)


def retinanet() -> Definition:
    """RetinaNet-like: a pyramid of three levels 112 wide with shared heads; 272x336."""
    return _Retina((48, 96, 176, 304), 112, 12, 6), (d.image(3, 272, 336),)


class _Context(nn.Module):
    """Dilated convolutions of several rates beside each other, and the mean of the image."""

    def __init__(self, inputs: int, width: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = Branches(
            conv(inputs, width, 1), *(conv(inputs, width, dilation=rate) for rate in rates)
        )
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inputs, width, 1), nn.ReLU())
        self.join = conv((2 + len(rates)) * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean(x).expand(-1, -1, *x.shape[2:])
        y: Tensor = self.join(torch.cat([self.branches(x), mean], 1))
        return y


def deeplab() -> Definition:
    """DeepLab-like: dilations of 2, 6, 12 and 18, bilinear upsampling; 21 classes, 224 pixels."""
    return nn.Sequential(
        conv(3, 40, 3, 2), conv(40, 80, 3, 2), conv(80, 144, 3, 2),
        Residual(nn.Sequential(conv(144, 144, dilation=2), conv(144, 144, dilation=4))),
        _Context(144, 96, (6, 12, 18)), nn.Conv2d(96, 21, 1),
        nn.Upsample(scale_factor=4, mode="bilinear"),
    ), (d.image(3, 224, 224),)  # fmt: skip


def dilated_context() -> Definition:
    """Context network: 3x3 with dilations of 1 to 16, widths of 28 and 56; 96x120."""
    layers = [conv(i, o, dilation=rate) for i, o, rate in (
        (3, 28, 1), (28, 28, 2), (28, 56, 2), (56, 56, 4), (56, 56, 8), (56, 112, 16),
    )]  # fmt: skip
    return nn.Sequential(*layers, nn.Conv2d(112, 8, 1)), (d.image(3, 96, 120),)


def yolos_tiny() -> Definition:
    """YOLOS tiny: 192 wide, a hundred tokens that find boxes; 208x256."""
    module = made("YolosForObjectDetection", "YolosConfig", hidden_size=192,
                  num_attention_heads=3, intermediate_size=768, num_hidden_layers=2,
                  image_size=[208, 256], use_mid_position_embeddings=False)  # fmt: skip
    return d.Detections(module), (d.image(3, 208, 256),)


def detr_small() -> Definition:
    """DETR-like: ResNet of basic blocks, encoder and decoder 192 wide, 50 queries; 416 pixels."""
    return _Queries(192, 50), (d.image(3, 416, 416),)


class _Queries(nn.Module):
    """A convolutional body, an encoder over its places and a decoder of learned queries."""

    def __init__(self, width: int, queries: int) -> None:
        super().__init__()
        steps = [conv(i, o, 3, 2) for i, o in itertools.pairwise((3, 24, 64, 128, 224, 320))]
        self.body = nn.Sequential(*steps, nn.Conv2d(320, width, 1))
        self.queries = nn.Parameter(torch.randn(1, queries, width))
        self.places = nn.Parameter(torch.randn(1, 169, width))
        self.encoder = _EncoderLayer(width, 6)
        self.decoder = _EncoderLayer(width, 6)
        self.cross = _Mixing(width, 6)
        self.classes = nn.Linear(width, 31)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x: Tensor) -> Tensor:
        """(1, 3, 416, 416) to (1, queries, classes + 4)."""
        places = self.body(x).flatten(2).transpose(1, 2) + self.places
        memory = self.encoder(places, places)
        found = self.decoder(self.queries, self.queries)
        found = found + self.cross(found, memory)
        return torch.cat([self.classes(found), self.boxes(found).sigmoid()], -1)


class _Mixing(nn.Module):
    """Attention of one sequence to another, products and softmax one by one."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """(batch, n, width) and (batch, m, width) to (batch, n, width)."""
        query, key, value = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, y in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        y: Tensor = self.output((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
        return y


class _EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.mixing = _Mixing(width, heads)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.inner = nn.Sequential(
            nn.Linear(width, 5 * width), nn.ReLU(), nn.Linear(5 * width, width)
        )

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """As ``_Mixing``, norms behind."""
        x = self.norms[0](x + self.mixing(x, memory))
        y: Tensor = self.norms[1](x + self.inner(x))
        return y


def superpoint() -> Definition:
    """SuperPoint's network: 3x3 to 56 and 112 wide, points and descriptors; 168x216."""
    return _Points(), (d.image(1, 168, 216),)


class _Points(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((1, 56), (56, 56), (56, 112), (112, 112)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if len(layers) < 18 and outputs != inputs else []
        self.body = nn.Sequential(*layers, nn.MaxPool2d(2))
        self.points, self.words = (
            nn.Sequential(nn.Conv2d(112, 200, 3, padding=1), nn.ReLU(), nn.Conv2d(200, n, 1))
            for n in (65, 200)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(1, 1, height, width) to softmax over 65 places and unit descriptors."""
        y = self.body(x)
        words = self.words(y)
        return self.points(y).softmax(1), nn.functional.normalize(words, dim=1)


def pspnet() -> Definition:
    """Feature maps pooled to 1, 2, 3 and 6 and back (PSPNet), 30 classes; 144 pixels."""
    return nn.Sequential(
        conv(3, 36, 3, 2), conv(36, 72, 3, 2), conv(72, 160, 3, 2), _Pooled(160),
        conv(320, 88), nn.Conv2d(88, 30, 1),
    ), (d.image(3, 144, 144),)  # fmt: skip


class _Pooled(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.sides = (1, 2, 3, 6)
        self.layers = nn.ModuleList(nn.Conv2d(width, width // 4, 1) for _ in self.sides)

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for side, layer in zip(self.sides, self.layers, strict=True):
            small = layer(nn.functional.adaptive_avg_pool2d(x, side)).relu()
            found.append(nn.functional.interpolate(small, size=x.shape[2:], mode="bilinear"))
        return torch.cat(found, 1)


def depth_anything() -> Definition:
    """DPT head behind a ViT 384 wide: transposed convolutions, fusions; 196 pixels."""
    from transformers import Dinov2Config

    config = Dinov2Config(hidden_size=384, num_attention_heads=6, num_hidden_layers=4,
                          image_size=196, patch_size=14, out_indices=[1, 2, 3, 4],
                          reshape_hidden_states=False)  # fmt: skip
    config._attn_implementation = "eager"
    return vision("DepthAnythingForDepthEstimation", "DepthAnythingConfig", "predicted_depth", 196,
                  backbone_config=config, reassemble_hidden_size=384,
                  neck_hidden_sizes=[40, 80, 160, 320], fusion_hidden_size=56)  # fmt: skip


NETWORKS = (
    yolo, retinanet, deeplab, dilated_context, yolos_tiny, detr_small, superpoint, pspnet,
    depth_anything,
)  # fmt: skip
