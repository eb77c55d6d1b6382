"""Artifacts: written whole or not at all, refused when damaged, run by TVM alone."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import (
    BadInputError,
    ForetuneError,
    MissingDependencyError,
    VersionMismatchError,
)
from foretune.graph import Artifact, compile_model, compile_workload, require_compiler
from foretune.workload import catalog, from_object
from tests import ROOT

torch = pytest.importorskip("torch")

FORMATS = ROOT / "docs" / "formats.md"
SUFFIXES = (".so", ".params", ".json")


class Product(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3 * 17 * 17, 5)

    def forward(self, x):
        return self.head(x.flatten(1))


def _network(seed=0):
    """A network of one product, with weights as the seed has them."""
    torch.manual_seed(seed)
    return from_object((Product().eval(), (torch.randn(1, 3, 17, 17),)), "block", "a test")


@pytest.fixture(scope="module")
def small():
    return _network()


@pytest.fixture(scope="module")
def compiled(small, hardware):
    return compile_model(small, hardware, {})


@pytest.fixture(scope="module")
def saved(compiled, tmp_path_factory):
    return compiled.save(tmp_path_factory.mktemp("artifact") / "block.so")


def _copy(saved, folder, **changes):
    for suffix in SUFFIXES:
        (folder / f"block{suffix}").write_bytes(saved.with_suffix(suffix).read_bytes())
    manifest = json.loads((folder / "block.json").read_text())
    (folder / "block.json").write_text(json.dumps(manifest | changes))
    return folder / "block.so"


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _refusal(path):
    """The one line in which loading is refused."""
    with pytest.raises(ForetuneError) as error:
        Artifact.load(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def _contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _same(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_saved_artifact_gives_the_same_outputs(saved, small, compiled):
    loaded = Artifact.load(saved)
    _same(loaded.run(small.examples), compiled.run(small.examples))
    assert len(loaded.time(small.examples, repeats=3)) == 3


def test_a_loaded_artifact_is_saved_again_without_a_compiler(
    saved, small, compiled, tmp_path, monkeypatch
):
    loaded = Artifact.load(saved)
    monkeypatch.setenv("CXX", "/no/such/compiler")
    again = Artifact.load(loaded.save(tmp_path / "again.so"))
    assert again.manifest["library"] == "again.so"
    _same(again.run(small.examples), compiled.run(small.examples))


def test_a_linked_artifact_is_saved_without_compiling_again(
    compiled, small, hardware, tmp_path, monkeypatch
):
    expected = compiled.run(small.examples)
    linked = compile_model(small, hardware, {})
    linked.link()
    monkeypatch.setenv("CXX", "/no/such/compiler")
    _same(linked.run(small.examples), expected)
    _same(Artifact.load(linked.save(tmp_path / "linked.so")).run(small.examples), expected)


def test_without_a_compiler_an_artifact_runs_unlinked(small, hardware, tmp_path, monkeypatch):
    artifact = compile_model(small, hardware, {})
    monkeypatch.setenv("CXX", "/no/such/compiler")
    artifact.link()
    assert len(artifact.run(small.examples)) == len(small.outputs)
    with pytest.raises(MissingDependencyError):
        artifact.save(tmp_path / "model.so")


@pytest.mark.parametrize("kind", ["model", "kernel without parameters"])
def test_the_documented_code_runs_where_there_is_only_tvm(
    small, compiled, hardware, rng, tmp_path, kind
):
    if kind == "model":
        artifact, inputs = compiled, small.examples
    else:
        artifact = compile_workload(catalog.get("matmul:16x16x16"), hardware)
        inputs = [rng.standard_normal(s.shape).astype(s.dtype) for s in artifact.inputs]
    artifact.save(tmp_path / "name.so")
    assert (tmp_path / "name.params").exists() == bool(artifact.manifest["parameters"])
    np.savez(tmp_path / "inputs.npz", *inputs)
    section = FORMATS.read_text(encoding="utf-8").partition("## The artifact")[2]
    documented = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    code = f"""
import sys
sys.modules["torch"] = sys.modules["foretune"] = sys.modules["transformers"] = None
{documented[1]}
arrays = np.load("inputs.npz")
np.savez("outputs.npz", *run(*[arrays[name] for name in sorted(arrays.files)]))
threads = tvm.get_global_func("runtime.NumThreads")()
assert threads == manifest["threads"], threads
"""
    environment = {k: v for k, v in os.environ.items() if k != "TVM_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
    with np.load(tmp_path / "outputs.npz") as outputs:
        actual = [outputs[name] for name in sorted(outputs.files)]
    for a, b in zip(actual, artifact.run(inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_the_manifest_says_what_the_files_are(saved, hardware):
    manifest = json.loads(saved.with_suffix(".json").read_text())
    assert manifest["schema"] == "foretune.artifact/1"
    assert manifest["threads"] == hardware.threads
    assert manifest["inputs"] == [{"name": "x", "shape": [1, 3, 17, 17], "dtype": "float32"}]
    assert manifest["outputs"][0]["shape"] == [1, 5]
    assert manifest["versions"] == _tvm.versions()
    assert manifest["sha256"] == _digest(saved)
    assert manifest["parameters_sha256"] == _digest(saved.with_suffix(".params"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_file_is_named(saved, tmp_path, suffix):
    copy = _copy(saved, tmp_path)
    copy.with_suffix(suffix).unlink()
    assert f"block{suffix} is missing" in _refusal(copy)


@pytest.mark.parametrize("suffix", [".so", ".params"])
@pytest.mark.parametrize("length", [0, 1, 0.5, 0.99])
def test_a_truncated_file_is_refused(saved, tmp_path, suffix, length):
    file = _copy(saved, tmp_path).with_suffix(suffix)
    content = file.read_bytes()
    file.write_bytes(content[: length if length in (0, 1) else int(length * len(content))])
    text = _refusal(tmp_path / "block.so")
    assert f"block{suffix} is not the file its manifest describes (sha256 differs)" in text


def test_files_that_tvm_cannot_read_are_refused(saved, tmp_path):
    copy = _copy(saved, tmp_path)
    params = copy.with_suffix(".params")
    params.write_bytes(b"\x01\x02")
    _edit(copy, parameters_sha256=_digest(params))
    assert "block.params cannot be loaded" in _refusal(copy)
    _copy(saved, tmp_path).write_bytes(b"no library")
    _edit(copy, sha256=_digest(copy))
    assert "block.so cannot be loaded" in _refusal(copy)
    names = json.loads(saved.with_suffix(".json").read_text())["parameters"]
    assert "lacks parameter 'other'" in _refusal(
        _copy(saved, tmp_path, parameters=[*names, "other"])
    )


def _edit(library, **changes):
    file = library.with_suffix(".json")
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    "key",
    ["name", "target", "threads", "inputs", "outputs", "parameters", "versions", "sha256"],
)
def test_a_manifest_that_lacks_a_field_is_refused(saved, tmp_path, key):
    copy = _copy(saved, tmp_path)
    file = copy.with_suffix(".json")
    manifest = json.loads(file.read_text())
    del manifest[key]
    file.write_text(json.dumps(manifest))
    assert f"block.json lacks '{key}'" in _refusal(copy)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("threads", "two"),
        ("threads", 0),
        ("inputs", [{"name": "x"}]),
        ("outputs", [3]),
        ("inputs", [{"name": "x", "shape": ["a"], "dtype": "float32"}]),
        ("parameters", [1]),
        ("target", "abacus"),
        ("target", '"llvm"'),
        ("target", '{"kind": "abacus"}'),
        ("versions", None),
        ("sha256", 3),
    ],
)
def test_a_manifest_with_a_wrong_field_is_refused(saved, tmp_path, key, value):
    assert f"'{key}' cannot be " in _refusal(_copy(saved, tmp_path, **{key: value}))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"3", b"{}", b"[" * 9999])
def test_what_is_no_manifest_is_refused(saved, tmp_path, content):
    copy = _copy(saved, tmp_path)
    copy.with_suffix(".json").write_bytes(content)
    assert "block.json" in _refusal(copy)


@pytest.mark.parametrize("suffix", [".json", ".params", ".sample.npz"])
def test_a_file_of_somebody_else_beside_it_is_neither_replaced_nor_removed(
    compiled, tmp_path, suffix
):
    (tmp_path / f"model{suffix}").write_text('{"mine": 1}')
    before = _contents(tmp_path)
    with pytest.raises(BadInputError, match=rf"model\{suffix} is none of an artifact: move it"):
        compiled.save(tmp_path / "model.so")
    assert _contents(tmp_path) == before


def test_beside_an_artifact_a_file_that_its_manifest_does_not_name_is_somebody_elses(
    compiled, tmp_path
):
    path = compiled.save(tmp_path / "model.so")
    assert compiled.sample is None
    (tmp_path / "model.sample.npz").write_text("mine")
    before = _contents(tmp_path)
    with pytest.raises(BadInputError, match="move it, or choose another name"):
        compiled.save(path)
    compiled.withdraw(path)
    assert set(before) - set(_contents(tmp_path)) == {"model.so", "model.params", "model.json"}


def test_an_artifact_replaces_another_one_with_all_its_files(compiled, hardware, tmp_path):
    path = compiled.save(tmp_path / "model.so")
    kernel = compile_workload(catalog.get("matmul:16x16x16"), hardware)
    kernel.save(path)
    assert set(_contents(tmp_path)) == {"model.so", "model.json"}
    _edit(path, schema="foretune.artifact/0")
    compiled.save(path)
    assert set(_contents(tmp_path)) == {"model.so", "model.json", "model.params"}


def test_what_somebody_else_has_saved_since_is_not_withdrawn(compiled, hardware, tmp_path):
    path = compiled.save(tmp_path / "model.so")
    assert compiled.is_saved_at(path)
    compile_workload(catalog.get("matmul:16x16x16"), hardware).save(path)
    before = _contents(tmp_path)
    assert not compiled.is_saved_at(path)
    compiled.withdraw(path)
    assert _contents(tmp_path) == before


SAVING = """
import sys, time
from pathlib import Path
from foretune.graph import Artifact

source, path, slow, seconds = sys.argv[1:]
replace = Path.replace


def slowly(self, target):
    if self.suffix == slow:
        time.sleep(float(seconds))
    return replace(self, target)


artifact = Artifact.load(source)
Path.replace = slowly
print("ready", flush=True)
sys.stdin.readline()
artifact.save(path)
"""


def test_files_of_two_that_save_at_once_are_not_mixed(compiled, small, hardware, tmp_path):
    """One moves its library while the other one has yet to move its manifest."""
    other = compile_model(_network(seed=1), hardware, {})
    sources = [a.save(tmp_path / f"{i}.so") for i, a in enumerate((compiled, other))]
    path = tmp_path / "shared" / "model.so"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SAVING, str(source), str(path), slow, seconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for source, slow, seconds in zip(sources, (".so", ".json"), ("0.3", "0.6"), strict=True)
    ]
    for child in children:
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        child.stdin.write(b"\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    assert Artifact.load(path).run(small.examples)
    assert set(_contents(path.parent)) == {"model.so", "model.params", "model.json"}


def _as_if_tuned(artifact, path, **changes):
    """Saves it, tuned as its manifest has it."""
    artifact.save(path)
    _edit(path, **({"tuned": ["fused_matmul"]} | changes))
    return _contents(path.parent)


def test_a_tuned_artifact_of_the_same_network_is_not_replaced_by_a_default(
    compiled, small, hardware, tmp_path
):
    path = tmp_path / "model.so"
    before = _as_if_tuned(compile_model(small, hardware, {}), path)
    kept = compile_model(_network(), hardware, {}).save_unless_tuned(path)
    assert kept["tuned"] == ["fused_matmul"] and kept["key"] == small.key
    assert _contents(tmp_path) == before
    assert compiled.save(path) == path and Artifact.load(path).manifest["tuned"] == []


@pytest.mark.parametrize(
    "changes",
    [{"tuned": []}, {"key": "another"}, {"threads": 64}, {"passes_off": ["fusion"]},
     {"versions": {"tvm": "0.1"}}, {"sha256": "damaged"}],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_what_does_not_stand_for_the_same_network_is_replaced(compiled, tmp_path, changes):
    path = tmp_path / "model.so"
    _as_if_tuned(compiled, path, **changes)
    assert compiled.save_unless_tuned(path) is None
    assert Artifact.load(path).manifest["tuned"] == []


def test_other_weights_are_another_network(small):
    assert _network().key == small.key != _network(seed=1).key


def test_another_version_is_refused(saved, tmp_path):
    with pytest.raises(VersionMismatchError, match=r"0\.1"):
        Artifact.load(_copy(saved, tmp_path, versions={"tvm": "0.1"}))
    with pytest.raises(VersionMismatchError, match="schema"):
        Artifact.load(_copy(saved, tmp_path, schema="foretune.artifact/9"))


def test_another_processor_is_refused(saved, tmp_path):
    copy = _copy(saved, tmp_path, target=json.dumps({"kind": "llvm", "mcpu": "sapphirerapids"}))
    with pytest.raises(BadInputError, match=r"this processor lacks .*amx"):
        Artifact.load(copy)


def test_inputs_that_do_not_fit_are_refused(saved):
    artifact = Artifact.load(saved)
    with pytest.raises(BadInputError, match="takes 1 inputs, but got 0"):
        artifact.run([])
    with pytest.raises(BadInputError, match=r"input 'x' must be float32 of shape"):
        artifact.run([np.zeros((1, 3, 17, 17), "float64")])


def test_a_wrong_name_or_folder_is_refused(compiled, tmp_path):
    with pytest.raises(BadInputError, match=r"name it \*\.so"):
        compiled.save(tmp_path / "model.dll")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot write"):
        compiled.save(tmp_path / "file" / "model.so")


def test_without_a_compiler_the_remedy_is_named(compiled, tmp_path, monkeypatch):
    require_compiler()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for action in (require_compiler, lambda: compiled.save(tmp_path / "model.so")):
        with pytest.raises(MissingDependencyError, match=r"there is none: apt install g\+\+"):
            action()
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(MissingDependencyError, match="'/no/such/compiler' cannot be run"):
        require_compiler()
    assert not _contents(tmp_path)


def test_a_failed_link_is_no_missing_compiler_and_changes_nothing(
    saved, compiled, tmp_path, monkeypatch
):
    linker = tmp_path / "linker"
    linker.write_text("#!/bin/sh\necho 'ld: final link failed: No space left on device'\nexit 1\n")
    linker.chmod(0o755)
    folder = tmp_path / "folder"
    folder.mkdir()
    copy = _copy(saved, folder)
    before = _contents(folder)
    monkeypatch.setenv("CXX", str(linker))
    with pytest.raises(BadInputError, match=r"linking block\.so failed .*No space left") as error:
        compiled.save(copy)
    assert not isinstance(error.value, MissingDependencyError)
    assert "\n" not in str(error.value)
    assert _contents(folder) == before


def test_a_disk_that_fills_up_leaves_no_half_artifact(saved, compiled, tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    copy = _copy(saved, tmp_path)
    before = _contents(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(BadInputError, match=r"cannot write .*No space left on device"):
            compiled.save(copy)
    assert _contents(tmp_path) == before


def test_stale_parameters_of_an_earlier_artifact_are_removed(hardware, saved, tmp_path):
    copy = _copy(saved, tmp_path)
    compile_workload(catalog.get("matmul:16x16x16"), hardware).save(copy)
    assert sorted(_contents(tmp_path)) == ["block.json", "block.so"]
    assert Artifact.load(copy).manifest["parameters"] == []
