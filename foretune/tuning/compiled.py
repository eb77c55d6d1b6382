"""Runs a network, compiled and as it was given, and says of what is raised where it comes from."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretune.errors import ForetuneError, UnsupportedModelError, last_line
from foretune.hardware import Hardware

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune.graph import Artifact, Extraction
    from foretune.workload import Model


class Compiled:
    """An artifact to compare: what it raises is said to be TVM's."""

    def __init__(self, artifact: Artifact, model: Model) -> None:
        self._artifact, self._model = artifact, model

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """What the artifact computes."""
        with running_compiled(self._model):
            return self._artifact.run(inputs)


@contextlib.contextmanager
def running_compiled(model: Model) -> Iterator[None]:
    """Says of what a compiled network raises that it comes from there."""
    try:
        yield
    except ForetuneError:
        raise
    except Exception as error:  # TVM's virtual machine and kernels raise what they like
        raise UnsupportedModelError(
            f"{model.name} was compiled, but cannot be run: TVM refuses "
            f"it ({last_line(error)}); please report this"
        ) from error


@contextlib.contextmanager
def running_original(model: Model) -> Iterator[None]:
    """Says of what the original raises that it comes from there."""
    try:
        yield
    except ForetuneError:
        raise
    except Exception as error:  # PyTorch, ONNX Runtime and a model's own code raise what they like
        raise UnsupportedModelError(
            f"the original of {model.name} cannot be run on the model's own examples "
            f"({last_line(error)}), and nothing can be compared otherwise: make it run there"
        ) from error


def compile_default(model: Model, hardware: Hardware, extraction: Extraction) -> Artifact:
    """Compiles a network with default schedules.

    Raises:
        UnsupportedModelError: TVM cannot; the message names the kernels.
    """
    from foretune.graph import compile_model, failing_kernels

    try:
        return compile_model(model, hardware, {}, extraction)
    except ForetuneError:
        raise
    except Exception as error:  # TVM raises its own, ValueError, TypeError, and what C++ throws
        failing = failing_kernels(extraction.program, hardware)
        named = "; ".join(f"kernel {name} ({why})" for name, why in failing.items())
        raise UnsupportedModelError(
            f"{model.name} cannot be compiled for this target: TVM refuses "
            f"{named or f'it ({last_line(error)})'}; leave that part out of the model"
        ) from error


def alternating(
    artifacts: Mapping[str, Artifact], model: Model, rounds: int
) -> dict[str, float | None]:
    """Median seconds of artifacts that take turns in this process."""
    calls = {name: artifact.prepare(model.examples) for name, artifact in artifacts.items()}
    readings: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            began = time.perf_counter()
            call()
            readings[name].append(time.perf_counter() - began)
    return {name: float(np.median(seconds)) for name, seconds in readings.items()}
