"""Importers: from a file or a name to what is tuned."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

from foretune.errors import BadInputError
from foretune.workload._base import Workload
from foretune.workload.importers._python import from_object
from foretune.workload.model import Model

__all__ = ["from_object", "load_input"]


def load_input(
    spec: str, *, shapes: Mapping[str, Sequence[int]] | None = None, seed: int = 0
) -> Workload | Model:
    """Loads what the command line calls INPUT.

    Args:
        spec: ``file.onnx``, ``file.pt2``, ``file.py:function``, or a name of the catalog.
        shapes: Fixed shapes by input name, for ONNX files with dynamic dimensions.
        seed: For example inputs that the file does not hold.

    Raises:
        BadInputError: Nothing of that name, or not what it should be.
        UnsupportedModelError: A dynamic shape or an unsupported operator.
    """
    path_text, _, function = spec.rpartition(":")
    if path_text.endswith(".py"):
        from foretune.workload.importers._python import import_function

        return import_function(_existing(path_text), function)
    path = Path(spec)
    if path.suffix == ".onnx":
        from foretune.workload.importers._onnx import import_onnx

        return import_onnx(_existing(spec), shapes, seed)
    if path.suffix == ".pt2":
        from foretune.workload.importers._torch import import_archive

        return import_archive(_existing(spec), shapes)
    if path.suffix == ".py":
        raise BadInputError(f"{spec} names no function: say {spec}:FUNCTION")
    return _from_catalog(spec)


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "does not exist"
        raise BadInputError(f"input file {text} {problem}: give the path of a file")
    return path


def _from_catalog(name: str) -> Workload | Model:
    from foretune.workload import catalog

    known = list(catalog.names())
    if catalog.has(name):
        loaded: Workload | Model = catalog.get(name)
        return loaded
    if Path(name).suffix or "/" in name:
        raise BadInputError(
            f"input {name!r} has no known extension: give file.onnx, file.pt2, file.py:function, "
            "or a name listed by 'foretune workloads'"
        )
    close = difflib.get_close_matches(name, known, n=5, cutoff=0.4)
    hint = f"did you mean {', '.join(close)}?" if close else "see 'foretune workloads'"
    raise BadInputError(f"no workload of the catalog is called {name!r}: {hint}")
