"""Networks of the catalog: seeded, alive to the last layer, and importable."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from foretune.workload import Model, catalog
from foretune.workload.catalog import _networks

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SHAPES = {
    "resnet50": ((1, 3, 224, 224), (1, 1000)),
    "bert_base": ((1, 128), (1, 128, 768)),
    "mobilenet_v2": ((1, 3, 224, 224), (1, 1000)),
    "gpt2": ((1, 128), (1, 128, 768)),
    "resnet18_3d": ((1, 3, 16, 112, 112), (1, 400)),
    "opt_1_3b_attention": ((1, 128, 2048), (1, 128, 2048)),
    "gpt_neo_2_7b_attention": ((1, 128, 768), (1, 128, 768)),
    "vit_b_32": ((1, 3, 224, 224), (1, 1000)),
    "dcgan": ((1, 100, 1, 1), (1, 3, 64, 64)),
    "llama_block": ((1, 100, 4096), (1, 100, 4096)),
    "efficientnet_b0": ((1, 3, 224, 224), (1, 1000)),
    "unet": ((1, 3, 256, 256), (1, 1, 256, 256)),
    "detr": ((1, 3, 480, 640), (1, 100, 96)),
    "wav2vec2": ((1, 16000), (1, 49, 768)),
}
FAST = ("dcgan", "gpt_neo_2_7b_attention")
ALL = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SHAPES]


def _output(name: str) -> np.ndarray:
    module, inputs = _networks.define(name)
    with torch.no_grad():
        return np.asarray(module(*inputs).numpy())


def test_every_network_is_listed_here():
    assert set(SHAPES) == set(catalog.names("network"))


@pytest.mark.parametrize("name", ALL)
def test_networks_take_and_give_the_shapes_they_promise(name):
    module, inputs = _networks.define(name)
    given, expected = SHAPES[name]
    assert not module.training
    assert [tuple(x.shape) for x in inputs] == [given]
    with torch.no_grad():
        output = module(*inputs).numpy()
    assert output.shape == expected
    # A signal that has faded to nothing would let every wrong kernel pass a comparison.
    assert np.isfinite(output).all() and 1e-2 < output.std() < 1e3


@pytest.mark.parametrize("name", ALL)
def test_networks_import_as_models(name):
    model = catalog.get(name)
    given, expected = SHAPES[name]
    assert isinstance(model, Model) and model.name == name
    assert [spec.shape for spec in model.inputs] == [given]
    assert [spec.shape for spec in model.outputs] == [expected]


def test_weights_and_inputs_are_the_same_each_time():
    state = torch.random.get_rng_state()
    np.testing.assert_array_equal(_output("dcgan"), _output("dcgan"))
    assert torch.equal(torch.random.get_rng_state(), state), "the caller's random state moved"


@pytest.mark.slow
def test_weights_are_the_same_in_another_process():
    code = (
        "from foretune.workload.catalog import _networks\n"
        "module, inputs = _networks.define('gpt_neo_2_7b_attention')\n"
        "print(repr(float(sum(p.double().sum() for p in module.parameters()))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )
    module, _inputs = _networks.define("gpt_neo_2_7b_attention")
    total = float(sum(p.double().sum() for p in module.parameters()))
    assert float(done.stdout.split()[-1]) == pytest.approx(total, rel=1e-12)


def test_a_causal_block_does_not_look_ahead():
    module, (x,) = _networks.define("gpt_neo_2_7b_attention")
    changed = x.clone()
    changed[:, 64:] += 1
    with torch.no_grad():
        difference = (module(x) - module(changed)).abs().amax(dim=(0, 2))
    assert difference[:64].max() == 0 and difference[64:].min() > 0
