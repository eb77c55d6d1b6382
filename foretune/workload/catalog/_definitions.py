"""PyTorch modules of the catalog that are not in transformers, and wrappers for those that are.

Imports PyTorch, so it is itself imported only when a network is built.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def normal(*shape: int) -> Tensor:
    """Standard normal values from a generator of their own."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def image(*shape: int) -> Tensor:
    """A batch of one image or video: (1, channels, ..., height, width)."""
    return normal(1, *shape)


def tokens(length: int, vocabulary: int) -> Tensor:
    """A batch of one sentence: int64 indices of shape (1, length)."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(vocabulary, (1, length), generator=generator)


def calibrate(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Gives a network with batch norms weights under which its activations keep their scale.

    Fresh random weights make the signal fade from layer to layer until the output is all but zero,
    and then every wrong kernel passes a comparison of outputs. Convolutions are drawn anew by the
    rule of He et al. (2015); each batch norm takes the statistics of the example input, and its
    own scale is 1, where EfficientNet's configuration would draw one about 0.
    """
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Conv3d)):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(layer, nn.ConvTranspose2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    module.eval()
    for norm in norms:
        norm.reset_parameters()
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        module(*inputs)
    module.eval()


def positions(length: int) -> Tensor:
    """Token positions of shape (1, length)."""
    return torch.arange(length)[None]


class Pick(nn.Module):
    """Calls a transformers model and gives one field of its output, a plain tensor.

    Args:
        model: Takes one tensor.
        field: Of its output.
        constants: Further arguments that do not depend on the input; given here, the model does
            not compute them anew in every call.
    """

    def __init__(self, model: nn.Module, field: str, **constants: Tensor) -> None:
        super().__init__()
        self.model = model
        self.field = field
        self.names = tuple(constants)
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        """Any input the model takes, to the field."""
        constants = {name: getattr(self, name) for name in self.names}
        return getattr(self.model(x, **constants), self.field)


class First(nn.Module):
    """Calls a module that gives a tuple and gives its first element."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """(batch, tokens, width) to the same shape."""
        return self.module(x)[0]


def causal_mask(tokens: int) -> Tensor:
    """Added to the scores: 0 where a token may look, the lowest number elsewhere."""
    lowest = torch.finfo(torch.float32).min
    return torch.full((1, 1, tokens, tokens), lowest).triu(1)


class CausalAttention(nn.Module):
    """An attention block with the causal mask of a fixed number of tokens."""

    def __init__(self, block: nn.Module, tokens: int) -> None:
        super().__init__()
        self.block = block
        self.mask = nn.Buffer(causal_mask(tokens))

    def forward(self, x: Tensor) -> Any:
        """(1, tokens, width) to the same shape."""
        return self.block(x, attention_mask=self.mask)[0]


class DecoderBlock(nn.Module):
    """A LLaMA decoder layer with rotary embedding and mask for a fixed number of tokens."""

    def __init__(self, layer: nn.Module, rotary: nn.Module, tokens: int) -> None:
        super().__init__()
        self.layer = layer
        width = torch.zeros(1, tokens, 1)
        cosine, sine = rotary(width, torch.arange(tokens)[None])
        self.cosine = nn.Buffer(cosine.detach())
        self.sine = nn.Buffer(sine.detach())
        self.mask = nn.Buffer(causal_mask(tokens))

    def forward(self, x: Tensor) -> Any:
        """(1, tokens, width) to the same shape."""
        position = (self.cosine, self.sine)
        output = self.layer(x, attention_mask=self.mask, position_embeddings=position)
        return output[0] if isinstance(output, tuple) else output


class _BasicBlock(nn.Module):
    """Two 3x3x3 convolutions with batch norm and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm3d(outputs)
        self.conv2 = nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm3d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return torch.relu(y + self.shortcut(x))


class ResNet18Video(nn.Module):
    """R3D-18 (Tran et al., 2018): ResNet-18 with every convolution over time as well."""

    def __init__(self, classes: int = 400) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False),
            nn.BatchNorm3d(64),
            nn.ReLU(),
        )
        widths = (64, 64, 128, 256, 512)
        blocks: list[nn.Module] = []
        for index in range(4):
            inputs, outputs = widths[index], widths[index + 1]
            blocks.append(_BasicBlock(inputs, outputs, 1 if index == 0 else 2))
            blocks.append(_BasicBlock(outputs, outputs, 1))
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 3, frames, height, width) to (1, classes)."""
        y = self.blocks(self.stem(x))
        scores: Tensor = self.classifier(y.mean(dim=(2, 3, 4)))
        return scores


class Generator(nn.Module):
    """The generator of DCGAN (Radford et al., 2016): five transposed convolutions."""

    def __init__(self, noise: int = 100, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = (noise, width * 8, width * 4, width * 2, width)
        for index in range(4):
            stride, padding = (1, 0) if index == 0 else (2, 1)
            layers += [
                nn.ConvTranspose2d(
                    channels[index], channels[index + 1], 4, stride, padding, bias=False
                ),
                nn.BatchNorm2d(channels[index + 1]),
                nn.ReLU(),
            ]
        layers += [nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(1, noise, 1, 1) to an image (1, 3, 64, 64) with values in -1 to 1."""
        y: Tensor = self.layers(x)
        return y


class _Level(nn.Sequential):
    """Two 3x3 convolutions with batch norm and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            convolution = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015), padded and with batch norm, as it is mostly used.

    Args:
        classes: Scores of each pixel.
        width: Channels of the first of five levels; each further one has twice as many.
    """

    def __init__(self, classes: int = 1, width: int = 32) -> None:
        super().__init__()
        widths = [width << level for level in range(5)]
        self.down = nn.ModuleList(
            _Level(inputs, outputs)
            for inputs, outputs in zip((3, *widths[:-1]), widths, strict=True)
        )
        above = widths[-2::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * each, each, 2, 2) for each in above)
        self.join = nn.ModuleList(_Level(2 * each, each) for each in above)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(1, 3, height, width), both multiples of 16, to scores (1, classes, height, width)."""
        skips: list[Tensor] = []
        for number, level in enumerate(self.down):
            x = level(x if number == 0 else self.pool(x))
            skips.append(x)
        skips.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), skips.pop()], 1))
        scores: Tensor = self.head(x)
        return scores


class Detections(nn.Module):
    """Calls a detector of transformers and gives scores of classes and boxes in one tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        """An image (1, 3, height, width) to (1, queries, classes + 1 + 4)."""
        answer = self.model(pixels)
        return torch.cat([answer.logits, answer.pred_boxes], -1)


def detector(picture: Tensor) -> nn.Module:
    """DETR (Carion et al., 2020) with a ResNet-50, and statistics of one picture.

    Its batch norms are frozen, so that ``calibrate`` does not see them: the backbone is calibrated
    before it is put in.
    """
    from transformers.models.detr import DetrConfig, DetrForObjectDetection
    from transformers.models.resnet import ResNetBackbone, ResNetConfig

    body = ResNetConfig(out_features=["stage4"])
    config = DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=body,
        num_labels=91,
        attn_implementation="eager",
    )
    model = DetrForObjectDetection(config)
    backbone = ResNetBackbone(body)
    calibrate(backbone, (picture,))
    frozen = model.model.backbone
    known = frozen.state_dict()
    given = {f"model.{name}": value for name, value in backbone.state_dict().items()}
    frozen.load_state_dict({name: value for name, value in given.items() if name in known})
    return Detections(model)
