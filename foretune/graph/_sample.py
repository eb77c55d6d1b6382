"""The sample: inputs, and what the original returned for them, kept beside an artifact.

Whoever gets the artifact can run it on them and see that it computes the same on their machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretune.errors import BadInputError
from foretune.workload import TensorSpec
from foretune.workload.model import Array, element_type

SAMPLE_BYTES = 64 << 20
"""Size from which a sample is left out: it would outweigh what it is there to check."""


@dataclass(frozen=True)
class Sample:
    """Inputs and the outputs of the original.

    Attributes:
        inputs: One array per input of the artifact, states included.
        outputs: One array per output, states included.
        tolerance: Largest difference that rounding explains, relative to the largest magnitude of
            the output: one number for all outputs, or one for each.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    tolerance: float | tuple[float, ...]

    @property
    def tolerances(self) -> tuple[float, ...]:
        """One per output."""
        if isinstance(self.tolerance, tuple):
            return self.tolerance
        return (self.tolerance,) * len(self.outputs)

    @property
    def nbytes(self) -> int:
        """Size of all arrays."""
        return sum(array.nbytes for array in (*self.inputs, *self.outputs))


def sample_file(library: Path) -> Path:
    """Where the sample of an artifact lies."""
    return library.with_suffix(".sample.npz")


def write_sample(file: Path, sample: Sample) -> None:
    """Writes the arrays; element types that NumPy's format lacks go as integers of their bits."""
    named: dict[str, Any] = {f"input{n}": storable(a) for n, a in enumerate(sample.inputs)}
    named.update({f"output{n}": storable(a) for n, a in enumerate(sample.outputs)})
    with file.open("wb") as stream:
        np.savez(stream, **named)


def read_sample(
    file: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    tolerance: Sequence[float],
) -> Sample:
    """Reads what ``write_sample`` wrote.

    Raises:
        BadInputError: It holds other arrays than the artifact takes and returns.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            read = [restored(arrays[f"input{n}"], spec) for n, spec in enumerate(inputs)]
            results = [restored(arrays[f"output{n}"], spec) for n, spec in enumerate(outputs)]
    # zipfile and NumPy raise whatever a damaged archive leads them to.
    except Exception as error:
        raise BadInputError(
            f"{file} cannot be read ({error}): compile the artifact again"
        ) from error
    return Sample(tuple(read), tuple(results), tuple(float(t) for t in tolerance))


def storable(array: Array) -> Array:
    """An array as NumPy's files hold it: bfloat16 by its bits, as uint16."""
    return array.view(f"uint{8 * array.itemsize}") if array.dtype.kind == "V" else array


def restored(array: Array, spec: TensorSpec) -> Array:
    """The other way: bits of an element type that NumPy's files lack become that type again.

    ``np.save`` writes bfloat16 itself as two bytes without a meaning; they are read likewise.
    """
    wanted = element_type(spec.dtype)
    bits = wanted.kind == "V" and array.dtype.kind in "uV" and array.itemsize == wanted.itemsize
    return np.asarray(array, order="C").view(wanted) if bits else array
