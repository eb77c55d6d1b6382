"""The sample: inputs, and what the original returned for them, kept beside an artifact.

Whoever gets the artifact can run it on them and see that it computes the same on their machine.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretune._arrays import Array
from foretune.errors import BadInputError
from foretune.graph._exact import Exact
from foretune.workload import TensorSpec
from foretune.workload.element_types import element_type, is_float

SAMPLE_BYTES = 64 << 20
"""Size from which a sample is left out: it would outweigh what it is there to check."""


@dataclass(frozen=True)
class Sample:
    """Inputs and the outputs of the original.

    Attributes:
        inputs: One array per input of the artifact, states included.
        outputs: One array per output, states included.
        tolerance: Largest difference that rounding explains, as ``OutputDifference.relative``
            counts: one number for all outputs, or one for each.
        steps: Per output, what a quantised network may differ by in its own units; none by default.
        exact: What judges greater differences; None where nothing does.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    tolerance: float | tuple[float, ...]
    steps: tuple[float, ...] = ()
    exact: Exact | None = None

    @property
    def tolerances(self) -> tuple[float, ...]:
        """One per output."""
        if isinstance(self.tolerance, tuple):
            return self.tolerance
        return (self.tolerance,) * len(self.outputs)

    @property
    def nbytes(self) -> int:
        """Size of all arrays."""
        exact = self.exact
        known = () if exact is None else (*exact.outputs, *(exact.own or ()), *(exact.spread or ()))
        return sum(array.nbytes for array in (*self.inputs, *self.outputs, *known))


def sample_file(library: Path) -> Path:
    """Where the sample of an artifact lies."""
    return library.with_suffix(".sample.npz")


def pack_sample(sample: Sample) -> bytes:
    """The content of the file: the arrays by their places."""
    named = {f"input{n}": array for n, array in enumerate(sample.inputs)}
    named |= {f"output{n}": array for n, array in enumerate(sample.outputs)}
    if sample.exact is not None:
        named |= {f"exact{n}": _widened(array) for n, array in enumerate(sample.exact.outputs)}
        named |= {f"own{n}": _widened(array) for n, array in enumerate(sample.exact.own or ())}
        named |= {f"spread{n}": array for n, array in enumerate(sample.exact.spread or ())}
    return pack_arrays(named)


def sample_entry(sample: Sample) -> dict[str, Any]:
    """What the manifest says of a sample: the rule it is judged by."""
    entry: dict[str, Any] = {"tolerance": list(sample.tolerances)}
    if any(sample.steps):
        entry["steps"] = list(sample.steps)
    if sample.exact is not None:
        entry["judged_by"] = sample.exact.by
    return entry


def read_sample(
    file: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    entry: Mapping[str, Any],
) -> Sample:
    """Reads what ``pack_sample`` made.

    Args:
        file: Where it lies.
        inputs: Of the artifact.
        outputs: Of the artifact.
        entry: What ``sample_entry`` made.

    Raises:
        BadInputError: It holds other arrays than the artifact takes and returns.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            read = [restored(arrays[f"input{n}"], spec) for n, spec in enumerate(inputs)]
            results = [restored(arrays[f"output{n}"], spec) for n, spec in enumerate(outputs)]
            exact = _exact(arrays, len(outputs), entry.get("judged_by"))
    # zipfile and NumPy raise whatever a damaged archive leads them to.
    except Exception as error:
        raise BadInputError(
            f"{file} cannot be read ({error}): compile the artifact again"
        ) from error
    tolerance, steps = (tuple(map(float, entry.get(key, ()))) for key in ("tolerance", "steps"))
    return Sample(tuple(read), tuple(results), tolerance, steps, exact)


def _exact(arrays: Mapping[str, Array], outputs: int, by: str | None) -> Exact | None:
    if by is None:
        return None
    own, spread = (
        [arrays[f"{name}{n}"] for n in range(outputs)] if f"{name}0" in arrays else None
        for name in ("own", "spread")
    )
    return Exact([arrays[f"exact{n}"] for n in range(outputs)], own, by, spread)


def _widened(array: Array) -> Array:
    return array.astype("float64") if is_float(array.dtype) else array


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    """The content of an ``.npz`` of arrays by name.

    Element types that NumPy's format lacks go as unsigned integers of their bits; the manifest of
    the artifact says what they are.
    """
    buffer = io.BytesIO()
    # An archive that is put together here: `savez` takes names as keywords, `file` among them.
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, storable(array), allow_pickle=False)
    return buffer.getvalue()


def read_inputs(file: Path, specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Arrays by name from an ``.npz`` of whoever uses an artifact.

    Raises:
        BadInputError: It is missing or no ``.npz``.
    """
    known = {spec.name: spec for spec in specs}
    remedy = "save arrays by name with numpy.savez"
    try:
        loaded = np.load(file, allow_pickle=False)
        with contextlib.nullcontext({}) if isinstance(loaded, np.ndarray) else loaded as arrays:
            read = dict(arrays.items())
    except FileNotFoundError:
        raise BadInputError(f"{file} is missing: {remedy}") from None
    # zipfile and NumPy raise whatever a damaged archive leads them to.
    except Exception as error:
        raise BadInputError(f"{file} cannot be read ({error}): {remedy}") from error
    if isinstance(loaded, np.ndarray):
        raise BadInputError(f"{file} is a single array and no .npz: {remedy}")
    return {
        name: restored(array, known[name]) if name in known else array
        for name, array in read.items()
    }


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
