"""The layout of a data set directory: files, columns, units, and how decisions become integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from foretune.errors import IllegalCandidateError, MissingDependencyError
from foretune.space import PerfectTile

if TYPE_CHECKING:
    import pyarrow as pa

    from foretune.space import Sketch

SCHEMA = "foretune.dataset/1"
INDEX = "dataset.json"
WORKLOADS = "workloads.parquet"
SKETCHES = "sketches.parquet"
RECORDS = "records-{:03d}.parquet"
VERSION = b"foretune.schema"
"""Entry of a Parquet file's own meta data that holds ``SCHEMA``; early files have none."""
UNITS = {
    "seconds": "seconds per call, one entry per reading",
    "quiet": "whether the canary beside the reading was at its floor",
    "build_s": "seconds",
    "run_s": "seconds",
    "max_error": "largest absolute difference to the untuned program's output",
    "time": "seconds since the epoch",
    "flops": "floating-point operations per call",
}


def load_pyarrow() -> Any:
    """The package pyarrow, or an error that says how to install it."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "data sets are Parquet files, and the package 'pyarrow' is not installed: install it "
            "with `pip install pyarrow`"
        ) from error
    return pyarrow


def workload_schema() -> pa.Schema:
    """Columns of the workloads; ``module`` is the program as TVM serialises it."""
    pa = load_pyarrow()
    return pa.schema(
        [
            ("key", pa.string()),
            ("name", pa.string()),
            ("kind", pa.string()),
            ("flops", pa.float64()),
            ("weight", pa.int64()),
            ("module", pa.string()),
        ]
    )


def sketch_schema() -> pa.Schema:
    """Columns of the sketches; ``sketch`` is ``Sketch.to_json`` without workload and hardware."""
    pa = load_pyarrow()
    return pa.schema([(name, pa.string()) for name in ("key", "workload", "hardware", "sketch")])


def record_schema() -> pa.Schema:
    """Columns of the records; units are ``UNITS``, a float32 may be null where unknown."""
    pa = load_pyarrow()
    word = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("workload", word),
            ("hardware", word),
            ("sketch", word),
            ("decisions", pa.list_(pa.int32())),
            ("status", word),
            ("seconds", pa.list_(pa.float64())),
            ("quiet", pa.list_(pa.bool_())),
            ("build_s", pa.float32()),
            ("run_s", pa.float32()),
            ("max_error", pa.float32()),
            ("message", word),
            ("origin", word),
            ("time", pa.float64()),
            ("environment", pa.int16()),
        ]
    )


def contents(kind: pa.DataType) -> str:
    """What a column of some type holds, whatever its width and encoding: ``"lists of numbers"``."""
    types = load_pyarrow().types
    if types.is_dictionary(kind):
        return contents(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return f"lists of {contents(kind.value_type)}"
    names = {
        "text": types.is_string(kind) or types.is_large_string(kind),
        "integers": types.is_integer(kind),
        "numbers": types.is_floating(kind),
        "booleans": types.is_boolean(kind),
    }
    return next((name for name, holds in names.items() if holds), str(kind))


def flatten(decisions: Iterable[Any]) -> list[int]:
    """Decisions as one list of integers: ``((4, 32), 1, -1)`` → ``[4, 32, 1, -1]``."""
    flat: list[int] = []
    for decision in decisions:
        flat.extend(decision if isinstance(decision, (list, tuple)) else (decision,))
    return flat


def unflatten(sketch: Sketch, flat: Sequence[int]) -> tuple[Any, ...]:
    """What ``flatten`` was given, by the variables of the sketch.

    Raises:
        IllegalCandidateError: There are more or fewer integers than the sketch has places.
    """
    decisions: list[Any] = []
    at = 0
    for variable in sketch.variables:
        if isinstance(variable, PerfectTile):
            decisions.append(tuple(flat[at : at + variable.parts]))
            at += variable.parts
        else:
            decisions.extend(flat[at : at + 1])
            at += 1
    if at != len(flat):
        raise IllegalCandidateError(
            f"decisions of sketch {sketch.key} are {at} integers, but got {len(flat)}"
        )
    return tuple(decisions)
