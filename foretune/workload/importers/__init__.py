"""Importers: from a file or a name to what is tuned.

``onnx`` and ``torch`` are rooms; ``_python`` calls a function of a file, ``_objects`` takes
objects, ``_cut`` cuts models.
"""

from __future__ import annotations

import contextlib
import difflib
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretune._arrays import Array
from foretune.errors import BadInputError
from foretune.workload._base import Workload
from foretune.workload.importers._objects import wrap
from foretune.workload.model import Model

__all__ = ["from_object", "load_input"]


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps Python from looking for garbage, which takes a fifth of an import and finds little.

    An exported program is millions of objects that all live on.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_uncollected()
def load_input(
    spec: str,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    until: Sequence[str] = (),
    constants: Mapping[str, Array] | None = None,
) -> Workload | Model:
    """Loads what the command line calls INPUT.

    Args:
        spec: ``file.onnx``, ``file.pt2``, ``file.py:function`` (or ``file.py:program``), or a name
            of the catalog.
        shapes: Fixed shapes by input name, for ONNX files with dynamic dimensions.
        seed: For example inputs that the file does not hold.
        until: Names of tensors of an ONNX file, or of nodes of an exported PyTorch graph, that
            become the outputs; what follows is cut off.
        constants: Values of inputs of an ONNX file that it is specialised for, by name.

    Raises:
        BadInputError: Nothing of that name, not what it should be, or shapes, cuts or constants
            for something that has none.
        UnsupportedModelError: A dynamic shape or an unsupported operator.
    """
    path = Path(spec)
    if path.suffix == ".onnx":
        from foretune.workload.importers.onnx import import_onnx

        return import_onnx(_existing(spec), shapes, seed, until, constants)
    _refuse_constants(spec, constants)
    path_text, _, function = spec.rpartition(":")
    if path_text.endswith(".py"):
        from foretune.workload.importers._python import import_function

        file = _existing(path_text)
        _refuse_shapes(spec, shapes, "let the function take inputs of the wanted shape")
        return import_function(file, function, until)
    if path.suffix == ".pt2":
        from foretune.workload.importers.torch import import_archive

        return import_archive(_existing(spec), shapes, until)
    _refuse_cut(spec, until)
    if path.suffix == ".py":
        raise BadInputError(f"{spec} names no function: say {spec}:FUNCTION")
    return _from_catalog(spec, shapes)


@_uncollected()
def from_object(
    obj: Any, name: str | None = None, where: str = "the object given"
) -> Workload | Model:
    """Makes a workload or a model of an object of Python.

    Args:
        obj: A PrimFunc, an ``IRModule`` (one PrimFunc, or Relax with a ``main``), a pair of a torch
            module and its example inputs, the path of an ONNX file or anything else that
            ``load_input`` takes. A ``Workload`` or ``Model`` is returned as it is.
        name: What people call it; by default the name of the file or function, else ``"model"``.
        where: What the object is, for the error message.

    Raises:
        BadInputError: It is something else.
        UnsupportedModelError: A dynamic shape or an unsupported operator.
    """
    if isinstance(obj, (str, os.PathLike)):
        loaded = load_input(os.fsdecode(obj))
        return loaded if name is None else replace(loaded, name=name)
    return wrap(obj, name, where)


def _existing(text: str) -> Path:
    path = Path(text)
    try:
        is_there, folder = path.is_file(), path.is_dir()
    except OSError as error:  # a folder on the way must not be entered
        raise BadInputError(
            f"input file {text} cannot be read ({error.strerror}): check its permissions"
        ) from error
    if not is_there:
        problem = "is a directory" if folder else "does not exist"
        raise BadInputError(f"input file {text} {problem}: give the path of a file")
    return path


def _refuse_shapes(spec: str, shapes: Mapping[str, Sequence[int]] | None, remedy: str) -> None:
    if shapes:
        raise BadInputError(
            f"{spec} has its own shapes, and --shape {next(iter(shapes))} is for .onnx files: "
            f"{remedy}"
        )


def _refuse_constants(spec: str, constants: Mapping[str, Array] | None) -> None:
    if constants:
        raise BadInputError(
            f"constants {next(iter(constants))} names an input of an ONNX file, but got {spec}: "
            "leave it out"
        )


def _refuse_cut(spec: str, until: Sequence[str]) -> None:
    if until:
        raise BadInputError(
            f"--until {until[0]} names a tensor of an ONNX file or a node of a PyTorch model, but "
            f"got {spec}: leave it out"
        )


def _from_catalog(name: str, shapes: Mapping[str, Sequence[int]] | None) -> Workload | Model:
    from foretune.workload import catalog

    sized = ", ".join(catalog.PATTERNS.values())
    if catalog.has(name):
        _refuse_shapes(name, shapes, f"sizes stand in the name ({sized})")
        loaded: Workload | Model = catalog.get(name)
        return loaded
    if Path(name).suffix or "/" in name:
        raise BadInputError(
            f"input {name!r} has no known extension: give file.onnx, file.pt2, file.py:function, "
            "or a name listed by 'foretune workloads'"
        )
    close = difflib.get_close_matches(name, list(catalog.names()), n=5, cutoff=0.4)
    hint = f"did you mean {', '.join(close)}?" if close else "see 'foretune workloads'."
    raise BadInputError(
        f"no workload of the catalog is called {name!r}: {hint} Sizes can be chosen in {sized}"
    )
