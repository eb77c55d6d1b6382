"""Networks on images of the kinds that people bring: U-Net, detector's head, attention."""

from __future__ import annotations

import torch
from torch import nn


class Up(nn.Module):
    """One step of a U-Net's decoder: a transposed convolution, a skip, group norm, SiLU."""

    def __init__(self, channels: int, skip: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, skip, 3, stride=2, padding=1, output_padding=1)
        self.mix = nn.Conv2d(2 * skip, skip, 3, padding=1)
        self.norm = nn.GroupNorm(2, skip)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.norm(self.mix(torch.cat([self.up(x), skip], 1))))


class UNet(nn.Module):
    """Two levels down and up again."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.deep = nn.Conv2d(16, 12, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.up1, self.up0 = Up(12, 16), Up(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = nn.functional.silu(self.stem(x))
        two = nn.functional.silu(self.norm(self.down(one)))
        low = nn.functional.silu(self.deep(self.pool(two)))
        return self.head(self.up0(self.up1(low, two), one))


class Detector(nn.Module):
    """A detector's head: a grid of cells, boxes, classes by ``argmax(-1)``, several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.head = nn.Conv2d(16, 2 * (5 + 3), 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.head(nn.functional.leaky_relu(self.body(x), 0.1))
        n, _, h, w = y.shape
        y = y.view(n, 2, 8, h, w).permute(0, 1, 3, 4, 2)
        rows = torch.arange(h).view(1, 1, h, 1, 1)
        columns = torch.arange(w).view(1, 1, 1, w, 1)
        centre = y[..., :2].sigmoid() + torch.cat(
            [columns.expand(1, 1, h, w, 1), rows.expand(1, 1, h, w, 1)], -1
        )
        boxes = torch.cat([centre * 2, y[..., 2:4].exp()], -1)
        return boxes.reshape(n, -1, 4), y[..., 4].sigmoid(), y[..., 5:].argmax(-1)


class ImageAttention(nn.Module):
    """Self-attention over the positions of an image, as in diffusion networks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)
        self.stem, self.qkv = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 48, 1)
        self.out = nn.Conv2d(16, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, 3, 2, c // 2, h * w).unbind(1)
        weights = (q.transpose(-1, -2) @ k / 8**0.5).softmax(-1)
        y = (v @ weights.transpose(-1, -2)).reshape(n, c, h, w)
        return x + self.out(y)


class Shuffle(nn.Module):
    """Channels split, convolved depthwise, joined and shuffled; batch norms before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.first = nn.BatchNorm2d(16)
        self.branch = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.slope = nn.PReLU(16)
        self.last = nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.stem(x)).relu()
        one, two = x.chunk(2, 1)
        x = torch.cat([one, self.norm(self.branch(two))], 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        x = nn.functional.avg_pool2d(self.slope(x), 3, 2, 1, count_include_pad=False)
        x = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
        return self.last(x).softmax(1)


IMAGE_NETWORKS = {c.__name__: c for c in (UNet, Detector, ImageAttention, Shuffle)}
