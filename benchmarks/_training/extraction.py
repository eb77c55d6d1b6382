"""From a training network to its workloads, kept in a file for each network and variant.

A network is built and extracted in a process of its own: whatever it dies of costs only itself.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretune._files import write_bytes
from foretune.hardware import Hardware
from foretune.workload import Workload

_SEED = 0


@dataclass(frozen=True)
class Variant:
    """How networks are extracted.

    Attributes:
        hardware: What for.
        without: Names of passes over the graph that do not run.
    """

    hardware: Hardware
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Extracted:
    """A workload with where it is from.

    Attributes:
        network: Name of the training network.
        variant: Name of how it was extracted.
        workload: The program, named as ``extract`` does.
    """

    network: str
    variant: str
    workload: Workload


def extracted(
    build: Callable[[], Any], variants: Mapping[str, Variant], folder: Path, seconds: float
) -> tuple[list[Extracted], str]:
    """The workloads of a network in some variants, from their files where these are there.

    Args:
        build: Makes the module and its inputs; its name is the network's.
        variants: By name.
        folder: Of the files.
        seconds: After which the process is stopped.

    Returns:
        The workloads, and why some are missing: empty if none are.
    """
    name = build.__name__
    files = {variant: folder / f"{name}.{variant}.json.gz" for variant in variants}
    missing = [variant for variant, file in files.items() if not file.exists()]
    reason = ""
    if missing:
        wanted = {variant: (variants[variant], files[variant]) for variant in missing}
        reason = _in_a_child(build, wanted, seconds)
    found = [
        Extracted(name, variant, workload)
        for variant, file in files.items()
        if file.exists()
        for workload in _read(file)
    ]
    return found, reason


def workloads_of(build: Callable[[], Any], variants: Iterable[Variant]) -> list[list[Workload]]:
    """Imports a network and extracts it in each variant, in this process."""
    import torch

    from foretune.graph import extract
    from foretune.workload.catalog import _definitions
    from foretune.workload.importers.torch import import_module

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(_SEED)
        module, inputs = build()
        _definitions.calibrate(module, inputs)
        model = import_module(module.eval().requires_grad_(False), inputs, build.__name__)
        return [extract(model, each.hardware, each.without).workloads for each in variants]


def _in_a_child(
    build: Callable[[], Any], wanted: Mapping[str, tuple[Variant, Path]], seconds: float
) -> str:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_make_files, args=(build, wanted, theirs))
    child.start()
    theirs.close()
    try:
        reason = str(ours.recv()) if ours.poll(seconds) else f"stopped after {seconds:.0f} s"
    except EOFError:
        child.join()
        reason = f"the process died with exit code {child.exitcode}"
    if reason:
        child.kill()
    child.join()
    return reason


def _make_files(
    build: Callable[[], Any], wanted: Mapping[str, tuple[Variant, Path]], answer: Any
) -> None:
    try:
        found = workloads_of(build, [variant for variant, _ in wanted.values()])
        for (_, file), workloads in zip(wanted.values(), found, strict=True):
            _write(file, workloads)
        answer.send("")
    except Exception as error:  # of PyTorch, transformers or TVM: one network less
        answer.send(f"{type(error).__name__}: {str(error).strip()[:300]}")


def _write(file: Path, workloads: Sequence[Workload]) -> None:
    rows = [
        {"name": w.name, "key": w.key, "module": w.module_json, "flops": w.flops,
         "weight": w.weight}
        for w in workloads
    ]  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, gzip.compress(json.dumps(rows).encode(), mtime=0))


def _read(file: Path) -> list[Workload]:
    rows = json.loads(gzip.decompress(file.read_bytes()))
    return [Workload(r["name"], r["key"], r["module"], r["flops"], r["weight"]) for r in rows]
