"""Small networks of every kind that the graph room treats specially, with random weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from foretune.workload import Model, from_object


def seeded(module: nn.Module) -> nn.Module:
    """Weights and statistics that keep activations near one, so that a wrong layer shows."""
    torch.manual_seed(0)
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.2)
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
    for parameter in module.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_normal_(parameter.data)
    return module.eval()


class Block(nn.Module):
    """Padding, depthwise convolution, batch norm, ReLU6 as minimum of maximum, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, bias=False)
        self.stem_norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, groups=16, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(16)
        self.project = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.pad(x, (0, 1, 0, 1))
        x = self.stem_norm(self.stem(x))
        x = torch.minimum(torch.maximum(x, torch.tensor(0.0)), torch.tensor(6.0))
        y = self.depthwise_norm(self.depthwise(nn.functional.pad(x, (1, 1, 1, 1))))
        y = self.project(nn.functional.hardswish(y)) + x
        return self.head(y.mean((2, 3)))


def block() -> Model:
    return from_object((seeded(Block()), (torch.randn(1, 3, 17, 17),)), "block", "a test")


def mobilenet() -> Model:
    from transformers import MobileNetV2Config, MobileNetV2Model

    config = MobileNetV2Config(depth_multiplier=0.25, num_hidden_layers=4)
    return from_object(
        (seeded(MobileNetV2Model(config)), (torch.randn(1, 3, 32, 32),)), "mobilenet", "a test"
    )


def resnet() -> Model:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="bottleneck"
    )
    return from_object(
        (seeded(ResNetModel(config)), (torch.randn(1, 3, 32, 32),)), "resnet", "a test"
    )


def bert() -> Model:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        vocab_size=100,
        max_position_embeddings=32,
    )
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 100, (1, 16)))
    return from_object((BertModel(config).eval(), (tokens,)), "bert", "a test")


NETWORKS = {"block": block, "mobilenet": mobilenet, "resnet": resnet, "bert": bert}
