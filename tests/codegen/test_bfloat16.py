"""Reductions of bfloat16 with several results, computed in float32 from what is stored."""

from __future__ import annotations

import pytest
import torch

from foretune.graph import compile_model, verify
from foretune.hardware import probe
from foretune.workload import from_object


class Extremes(torch.nn.Module):
    def forward(self, x):
        leaky = torch.nn.functional.leaky_relu(x, 0.1).max(-1)
        return *x.max(-1), *x.min(1), *leaky, x.argmax(-1)


@pytest.mark.parametrize("shape", [(2, 3, 10, 1), (4, 5, 16)])
def test_extremes_with_their_places_are_eager_pytorchs(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = from_object((Extremes(), (torch.randn(shape).bfloat16(),)), "extremes", "a test")
    result = verify(compile_model(model, probe(threads=1), {}), model)
    assert result.ok, result.message
