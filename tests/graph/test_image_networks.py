"""Networks on images: each compiles, computes what PyTorch does, and keeps one layout inside."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from foretune.graph import compile_model, extract, verify
from foretune.workload import from_object
from tests.graph.image_networks import IMAGE_NETWORKS
from tests.graph.networks import seeded


@pytest.mark.parametrize("name", sorted(IMAGE_NETWORKS))
@pytest.mark.slow
def test_networks_on_images_compile_and_compute_what_pytorch_does(hardware, name):
    example = torch.randn(2, 3, 16, 24)
    model = from_object((seeded(IMAGE_NETWORKS[name]()), (example,)), name, "a test")
    artifact = compile_model(model, hardware, {})
    assert verify(artifact, model).ok


def test_between_convolutions_no_transpose_is_left(hardware):
    """Pooling, concatenation, splitting, PReLU and resizing are no reason to go back to NCHW."""
    example = torch.randn(1, 3, 16, 24)
    model = from_object((seeded(IMAGE_NETWORKS["Shuffle"]()), (example,)), "shuffle", "a test")
    names = [w.name for w in extract(model, hardware).workloads]
    # The input, the shuffle itself (on five axes), and the output.
    assert len([n for n in names if "transpose" in n]) <= 4, names
