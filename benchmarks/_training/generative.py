"""Networks that make images: transposed convolutions, upsampling, norms over groups."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from benchmarks._training.parts import Definition, Residual, vision
from foretune.workload.catalog import _definitions as d


def dcgan_wide() -> Definition:
    """DCGAN generator of width 48 with noise of 128, four images at once."""
    return d.Generator(noise=128, width=48), (d.normal(4, 128, 1, 1),)


def discriminator() -> Definition:
    """DCGAN discriminator: 4x4 at stride 2, leaky ReLU; widths of 40 to 320, 96 pixels."""
    layers: list[nn.Module] = [nn.Conv2d(3, 40, 4, 2, 1), nn.LeakyReLU(0.2)]
    for width in (40, 80, 160):
        layers += [nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width)]
        layers.append(nn.LeakyReLU(0.2))
    return nn.Sequential(*layers, nn.Conv2d(320, 1, 4)), (d.image(3, 96, 96),)


def unet_24() -> Definition:
    """U-Net of width 24, 160 pixels."""
    return d.UNet(classes=2, width=24), (d.image(3, 160, 160),)


def unet_40() -> Definition:
    """U-Net of width 40, 112 pixels."""
    return d.UNet(classes=5, width=40), (d.image(3, 112, 112),)


class _Translator(nn.Module):
    """The generator of pix2pix (Isola et al., 2017): instance norm, joins, 4x4 at stride 2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.first = nn.Conv2d(3, width, 4, 2, 1)
        self.down = nn.ModuleList(
            nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(i, o, 4, 2, 1), nn.InstanceNorm2d(o))
            for i, o in itertools.pairwise(widths)
        )
        self.up = nn.ModuleList(
            nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(i, o, 4, 2, 1), nn.InstanceNorm2d(o))
            for i, o in ((8 * width, 4 * width), (8 * width, 2 * width), (4 * width, width))
        )
        self.last = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(2 * width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width), both multiples of 16, to the same shape."""
        kept = [self.first(x)]
        for layer in self.down:
            kept.append(layer(kept[-1]))
        y = kept.pop()
        for layer in self.up:
            y = torch.cat([layer(y), kept.pop()], 1)
        image: Tensor = self.last(y)
        return image


def pix2pix() -> Definition:
    """pix2pix generator of width 56 with instance norms, 144 pixels."""
    return _Translator(56), (d.image(3, 144, 144),)


class _Block(nn.Module):
    """Group norm, SiLU and 3x3 twice, with a time embedding between and a shortcut."""

    def __init__(self, inputs: int, outputs: int, embedding: int = 0) -> None:
        super().__init__()
        self.before = nn.Sequential(
            nn.GroupNorm(16, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.time = nn.Linear(embedding, outputs) if embedding else None
        self.after = nn.Sequential(
            nn.GroupNorm(16, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        y = self.before(x)
        if self.time is not None and time is not None:
            y = y + self.time(nn.functional.silu(time))[:, :, None, None]
        z: Tensor = self.after(y) + self.shortcut(x)
        return z


class _Attention(nn.Module):
    """Attention over the pixels of an image, behind a group norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(16, width)
        self.heads = heads
        self.inner = nn.Conv2d(width, 3 * width, 1)
        self.outer = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width, height, width) to the same shape."""
        batch, width, *sides = x.shape
        parts = self.inner(self.norm(x)).view(batch, 3, self.heads, width // self.heads, -1)
        query, key, value = parts.unbind(1)
        scores = query.transpose(-1, -2) @ key / math.sqrt(width // self.heads)
        mixed = value @ scores.softmax(-1).transpose(-1, -2)
        y: Tensor = x + self.outer(mixed.reshape(batch, width, *sides))
        return y


class _Diffusion(nn.Module):
    """A small U-Net of denoising diffusion (Ho et al., 2020)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 2 * width
        self.time = nn.Sequential(
            nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width)
        )
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = _Block(width, width, 4 * width)
        self.narrow = nn.Conv2d(width, width, 3, 2, 1)
        self.inner = _Block(width, wide, 4 * width)
        self.attention = _Attention(wide, 4)
        self.middle = _Block(wide, wide, 4 * width)
        self.widen = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(wide, wide, 3, padding=1))
        self.up = _Block(wide + width, width, 4 * width)
        self.last = nn.Sequential(
            nn.GroupNorm(16, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1)
        )
        self.register_buffer("rates", torch.exp(-torch.arange(width // 2) / 10.0))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        """An image (batch, 3, height, width) and its step (batch, 1) to the noise in it."""
        angles = step * self.rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        kept = self.down(self.first(x), time)
        y = self.attention(self.inner(self.narrow(kept), time))
        y = self.widen(self.middle(y, time))
        noise: Tensor = self.last(self.up(torch.cat([y, kept], 1), time))
        return noise


def diffusion_unet() -> Definition:
    """Diffusion U-Net of width 96 with attention over 24x24 pixels and a time embedding."""
    return _Diffusion(96), (d.image(3, 48, 48), d.normal(1, 1))


def diffusion_unet_batch() -> Definition:
    """Diffusion U-Net of width 128, two images of 32 pixels."""
    return _Diffusion(128), (d.normal(2, 3, 32, 32), d.normal(2, 1))


def vae_decoder() -> Definition:
    """VAE decoder: group norm, nearest upsampling, widths of 256 to 64; 20 to 80 pixels."""
    return nn.Sequential(
        nn.Conv2d(4, 256, 3, padding=1), _Block(256, 256), _Attention(256, 1), _Block(256, 256),
        nn.Upsample(scale_factor=2), nn.Conv2d(256, 256, 3, padding=1), _Block(256, 128),
        nn.Upsample(scale_factor=2), nn.Conv2d(128, 128, 3, padding=1), _Block(128, 64),
        nn.GroupNorm(16, 64), nn.SiLU(), nn.Conv2d(64, 3, 3, padding=1),
    ), (d.image(4, 20, 20),)  # fmt: skip


def espcn() -> Definition:
    """ESPCN: 5x5 and 3x3 with tanh, pixels shuffled to three times the size; 100x132."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 40, 3, padding=1), nn.Tanh(),
        nn.Conv2d(40, 9, 3, padding=1), nn.PixelShuffle(3),
    ), (d.image(1, 100, 132),)  # fmt: skip


def edsr() -> Definition:
    """EDSR-like: residual 3x3 without norms, 56 wide, PReLU, pixels shuffled; 72 pixels."""
    block = [
        Residual(nn.Sequential(
            nn.Conv2d(56, 56, 3, padding=1), nn.PReLU(56), nn.Conv2d(56, 56, 3, padding=1)
        ))
        for _ in range(2)
    ]  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(3, 56, 9, padding=4), nn.PReLU(56), *block,
        nn.Conv2d(56, 224, 3, padding=1), nn.PixelShuffle(2), nn.PReLU(56),
        nn.Conv2d(56, 3, 9, padding=4),
    ), (d.image(3, 72, 72),)  # fmt: skip


def swin2sr() -> Definition:
    """Swin2SR lightweight: 60 wide, windows of 8, 64 pixels to 128."""
    return vision("Swin2SRForImageSuperResolution", "Swin2SRConfig", "reconstruction", 64,
                  embed_dim=60, depths=[2, 2], num_heads=[6, 6], window_size=8, image_size=64,
                  upscale=2, upsampler="pixelshuffledirect")  # fmt: skip


class _Style(nn.Module):
    """A layer of StyleGAN2 (Karras et al., 2020) with weights scaled by the style."""

    def __init__(self, inputs: int, outputs: int, style: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3))
        self.scale = nn.Linear(style, inputs)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """One image (1, inputs, height, width) and its style (1, style)."""
        weight = self.weight * self.scale(style)[0][None, :, None, None]
        norm = torch.rsqrt(weight.square().sum((1, 2, 3), keepdim=True) + 1e-8)
        y = nn.functional.conv2d(x, weight * norm, padding=1)
        return nn.functional.leaky_relu(y, 0.2)


class _StyleGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(4) for layer in (nn.Linear(320, 320), nn.LeakyReLU(0.2))]
        self.mapping = nn.Sequential(*layers)
        self.start = nn.Parameter(torch.randn(1, 160, 16, 16))
        self.layers = nn.ModuleList(
            [_Style(160, 160, 320), _Style(160, 80, 320), _Style(80, 40, 320)]
        )
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")
        self.last = nn.Conv2d(40, 3, 1)

    def forward(self, noise: Tensor) -> Tensor:
        """(1, 320) to an image (1, 3, 64, 64)."""
        style, y = self.mapping(noise), self.start
        for at, layer in enumerate(self.layers):
            y = layer(y if at == 0 else self.up(y), style)
        image: Tensor = self.last(y)
        return image


def style_generator() -> Definition:
    """StyleGAN2-like: a mapping of dense layers, weights scaled in each call, bilinear steps."""
    return _StyleGenerator(), (d.normal(1, 320),)


def style_transfer() -> Definition:
    """Fast style transfer: 9x9, instance norms, residual blocks, nearest upsampling; 128 pixels."""

    def step(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        made = nn.Conv2d(inputs, outputs, 3, stride, 1)
        return [made, nn.InstanceNorm2d(outputs, affine=True), nn.ReLU()]

    return nn.Sequential(
        nn.ReflectionPad2d(4), nn.Conv2d(3, 28, 9), nn.ReLU(),
        *step(28, 56, 2), *step(56, 104, 2), Residual(nn.Sequential(*step(104, 104, 1))),
        nn.Upsample(scale_factor=2), *step(104, 56, 1), nn.Upsample(scale_factor=2),
        *step(56, 28, 1), nn.Conv2d(28, 3, 9, padding=4),
    ), (d.image(3, 128, 128),)  # fmt: skip


NETWORKS = (
    dcgan_wide, discriminator, unet_24, unet_40, pix2pix, diffusion_unet, diffusion_unet_batch,
    vae_decoder, espcn, edsr, swin2sr, style_generator, style_transfer,
)  # fmt: skip
