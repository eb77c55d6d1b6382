"""What a suite is, and what can become of a network.

Outcomes: *pass*; *refused*, an error raised on purpose that names what it is about; *another
result*; *broken*, any other exception; *crash*, the end of the process or no answer in time. What
PyTorch itself does not export is *not exportable*, and counts nowhere.
"""

from __future__ import annotations

import logging
import re
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from foretune.errors import ForetuneError, UnsupportedOperatorsError
from foretune.hardware import Hardware

OUTCOMES = PASS, REFUSED, DIFFERS, BROKEN, CRASH = (
    "pass", "refused", "another result", "broken", "crash",
)  # fmt: skip
NOT_EXPORTABLE = "not exportable"
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest difference that counts as equal, as ``foretune.graph.compare_outputs`` measures it."""
_LONGEST_MESSAGE = 300

Array = npt.NDArray[Any]
Result = dict[str, Any]
"""``outcome``, ``message`` (why it did not pass), and what else a suite tells of a network."""


class Suite(ABC):
    """Small networks that are tried one by one, in processes that live as long as they can.

    Attributes:
        title: What it is called in tables.
        patience_s: Within which a network has to be done.
        tasks_each: Networks after which a process is replaced: what they leave in memory adds up.
    """

    title: ClassVar[str]
    patience_s: ClassVar[float] = 180.0
    tasks_each: ClassVar[int] = 1_000_000

    @abstractmethod
    def names(self) -> tuple[list[str], Mapping[str, str]]:
        """Names of all networks, and what is left out: name to the reason."""

    @abstractmethod
    def attempt(self, name: str, hardware: Hardware) -> Result:
        """What becomes of one network."""

    def about(self, results: Sequence[Mapping[str, Any]]) -> str:
        """What is to be said of the results beside their number; Markdown."""
        return ""


def outcome_of(compute: Callable[[], str], name: str, known: Collection[str] = ()) -> Result:
    """``outcome`` and ``message`` of a network.

    Args:
        compute: Compiles and runs it; returns what differs, nothing if all is equal.
        name: Of the network, which errors hold too: it is not what they are about.
        known: Names of operators, with which a refusal may say what it is about.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            message = compute()
    except ForetuneError as error:
        text = str(error).replace(f"{name!r}", "").replace(name, "")
        named = isinstance(error, UnsupportedOperatorsError) or "'" in text
        named = named or not set(known).isdisjoint(re.findall(r"\w+", text))
        outcome = REFUSED if named else BROKEN
        return {"outcome": outcome, "message": str(error)[:_LONGEST_MESSAGE]}
    except Exception as error:  # what a benchmark of robustness counts
        last = traceback.extract_tb(error.__traceback__)[-1]
        lines = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
        message = f"{type(error).__name__} {Path(last.filename).name}: {lines[-_LONGEST_MESSAGE:]}"
        return {"outcome": BROKEN, "message": message}
    return {"outcome": DIFFERS if message else PASS, "message": message}


def export_error(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> str:
    """Why ``torch.export`` does not accept a module with these inputs; empty if it does."""
    import torch

    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.export.export(module, args, kwargs, strict=False)
    except Exception as error:  # torch.export raises anything a model's own code may raise
        return f"{type(error).__name__}: {error}"[:_LONGEST_MESSAGE]
    finally:
        logging.disable(logging.NOTSET)
    return ""


def difference(
    expected: Sequence[Array], actual: Sequence[Array], steps: Mapping[str, float] = TOLERANCES
) -> str:
    """The first output that differs in number, shape, element type or values; empty if none.

    Args:
        expected: What the original gives.
        actual: What is compared with it.
        steps: What a number may differ by in any case, by element type.
    """
    from foretune.graph import compare_outputs

    if len(expected) != len(actual):
        return f"{len(actual)} outputs in place of {len(expected)}"
    types = [str(array.dtype) for array in expected]
    found = compare_outputs(expected, actual, steps=[steps.get(each, 0.0) for each in types])
    for output, each in zip(found, types, strict=True):
        tolerance = TOLERANCES.get(each, 0.0)
        if not output.within(tolerance):
            return output.describe(tolerance)
    return ""


def array_of(tensor: Any) -> Array:
    """A tensor of PyTorch as an array, also in bfloat16."""
    import torch

    if tensor.dtype != torch.bfloat16:
        return np.ascontiguousarray(tensor.numpy()).reshape(tensor.shape)
    import ml_dtypes

    bits = np.ascontiguousarray(tensor.contiguous().view(torch.int16).numpy())
    return bits.view(ml_dtypes.bfloat16).reshape(tensor.shape)
