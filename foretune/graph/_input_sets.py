"""The inputs an artifact is verified on: the examples, random ones, and borders of what is legal.

What is legal only the original knows. It runs first, and what it refuses is left out: an artifact
checks no index and would read outside of its tables. Left out as well is what tells nothing, where
nothing the original returns is finite, and inputs so large that the original overflows: whether
65519 becomes infinite in float16 is a matter of rounding. NaN is no input: runtimes differ in what
they make of it, for example where they sort.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretune._arrays import Array
from foretune.graph._exact import Exact, exact_outputs, with_spread
from foretune.graph._tolerance import arithmetic_of
from foretune.workload import Model, TorchSource
from foretune.workload.element_types import is_float
from foretune.workload.model import Run

_LARGE, _SMALL = 1e4, 1e-3
# A thousand products of two such numbers stay finite in float16.
_LARGE_HALF = 8.0
# A product of three of them is an integer of 32 bits.
_FURTHEST = 1000


@dataclass
class InputSet:
    """Inputs of a model, and what the original makes of them.

    Attributes:
        name: What they stand for.
        arrays: One per input of the model.
        model: Whose inputs they are.
        must: Whether what the original raises is an error of the caller's, not a reason to leave
            them out.
        finite: Whether they are left out where the original returns something not finite.
        original: Runs the original; by default it is loaded for these inputs alone.
        refusal: Why they are left out; empty as long as ``expected`` was not asked for.
    """

    name: str
    arrays: tuple[Array, ...] = field(repr=False)
    model: Model = field(repr=False)
    must: bool = False
    finite: bool = False
    refusal: str = ""
    original: Run | None = field(default=None, repr=False)
    _outputs: list[Array] | None = field(default=None, repr=False)
    _exact: list[Exact | None] = field(default_factory=list, repr=False)

    def expected(self) -> list[Array] | None:
        """The original's outputs, computed once; None if these inputs are left out."""
        if self._outputs is None and not self.refusal:
            self._outputs = self._run()
        return self._outputs

    def exact(self) -> Exact | None:
        """The original's outputs in float64, computed once; None where nobody can."""
        if not self._exact:
            self._exact.append(exact_outputs(self.model, self.arrays))
        return self._exact[0]

    def exact_with_spread(self) -> Exact | None:
        """The same with what rounding alone does to them, computed once."""
        known = self.exact()
        if known is not None and known.spread is None:
            self._exact[0] = with_spread(known, self.model, self.arrays)
        return self._exact[0]

    @property
    def was_judged(self) -> bool:
        """Whether ``exact`` was asked for."""
        return bool(self._exact)

    def _run(self) -> list[Array] | None:
        try:
            with np.errstate(all="ignore"):
                outputs = (self.original or self.model.reference)(self.arrays)
        except Exception as error:  # the original raises whatever its operators raise
            if self.must:
                raise
            lines = str(error).strip().splitlines()
            self.refusal = f"the original refuses them: {lines[0] if lines else type(error)}"
            return None
        floats = [a for a in outputs if is_float(a.dtype) and a.size]
        finite = [np.isfinite(a.astype("float64")) for a in floats]
        if self.must or not floats:
            return outputs
        if not any(part.any() for part in finite) and len(floats) == len(outputs):
            self.refusal = "nothing that the original returns is finite"
        elif self.finite and not all(part.all() for part in finite):
            self.refusal = "the original overflows"
        return None if self.refusal else outputs


class _Original:
    """The original of a model, loaded when it is first run and then kept."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._run: Run | None = None

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        if self._run is None:
            self._run = self._model.prepare_reference()
        return self._run(inputs)


def verification_inputs(model: Model, seeds: Sequence[int] = (0, 1, 2)) -> list[InputSet]:
    """Sets of inputs for ``verify``, in the order of what they tell: the examples come first.

    Args:
        model: The network.
        seeds: One set of random inputs is drawn for each; the borders are drawn from the first.
    """
    original = _Original(model)
    sets = [InputSet("examples", model.examples, model, must=True, original=original)]
    if not model.inputs:
        return sets
    for seed in seeds:
        sets.append(InputSet(f"random {seed}", model.draw_inputs(seed), model, original=original))
    rng = np.random.default_rng([*seeds[:1], len(seeds)])
    base = model.draw_inputs(seeds[0]) if seeds else model.examples
    for name, change, overflows in _borders(model):
        arrays = tuple(change(at, array, rng) for at, array in enumerate(base))
        if any(not _same(new, old) for new, old in zip(arrays, base, strict=True)):
            sets.append(InputSet(name, arrays, model, finite=overflows, original=original))
    return sets


_Change = Callable[[int, Array, np.random.Generator], Array]


def _borders(model: Model) -> list[tuple[str, _Change, bool]]:
    """Names of border cases, how each input changes for it, and whether it may overflow."""
    large = _LARGE_HALF if arithmetic_of(model).has_float16 else _LARGE
    cases: list[tuple[str, _Change, bool]] = [
        ("zeros", _for_floats(lambda a, _rng: np.zeros_like(a)), False),
        ("negative", _for_floats(lambda a, _rng: -np.abs(a)), False),
        ("positive", _for_floats(lambda a, rng: rng.random(a.shape) + 0.5), False),
        ("small", _for_floats(lambda a, _rng: a * np.array(_SMALL, a.dtype)), False),
        ("large", _for_floats(lambda a, _rng: a * np.array(large, a.dtype)), True),
        ("empty mask", _for_masks(model, lambda a, _rng: np.zeros_like(a)), False),
        ("full mask", _for_masks(model, lambda a, _rng: np.ones_like(a)), False),
        (
            "half a mask",
            _for_masks(model, lambda a, rng: rng.integers(0, 2, a.shape).astype(a.dtype)),
            False,
        ),
        ("any byte", _for_bytes(model), False),
        ("any integer", _for_numbers(model, low=-_FURTHEST), False),
        ("positive integer", _for_numbers(model, low=1), False),
        ("negative integer", _for_numbers(model, high=-1), False),
    ]
    if _on_host(model):
        cases += [
            ("any index", _for_indices(model, lambda n, s, rng: rng.integers(0, n, s)), False),
            ("first index", _for_indices(model, lambda _n, s, _rng: np.zeros(s, "int64")), False),
            ("last index", _for_indices(model, lambda n, s, _rng: np.full(s, n - 1)), False),
            ("negative index", _for_indices(model, _negative), False),
        ]
    return cases


def _on_host(model: Model) -> bool:
    """Whether an index that is out of range raises; on an accelerator it ends all work there."""
    if not isinstance(model.source, TorchSource):
        return True
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((model.source.args, model.source.kwargs))
    return all(leaf.device.type == "cpu" for leaf in leaves if hasattr(leaf, "device"))


def _for_floats(change: Callable[[Array, np.random.Generator], Any]) -> _Change:
    # Arithmetic on an array without axes gives a number, which ONNX Runtime does not take.
    return lambda _at, a, rng: np.asarray(change(a, rng), a.dtype) if is_float(a.dtype) else a


def _is_mask(model: Model, at: int) -> bool:
    """Booleans, and integers that index nothing and are 0 or 1 in the examples."""
    example = model.examples[at]
    if example.dtype.kind == "b":
        return True
    known = example.dtype.kind in "iu" and at not in model.index_limits
    return known and bool(np.isin(example, (0, 1)).all())


def _for_masks(model: Model, change: Callable[[Array, np.random.Generator], Array]) -> _Change:
    return lambda at, a, rng: change(a, rng) if _is_mask(model, at) else a


def _for_indices(
    model: Model, change: Callable[[int, tuple[int, ...], np.random.Generator], Array]
) -> _Change:
    def indices(at: int, array: Array, rng: np.random.Generator) -> Array:
        below = model.index_limits.get(at)
        if below is None:
            return array
        below = max(1, min(below, int(np.iinfo(array.dtype).max) + 1))
        drawn = change(below, array.shape, rng)
        return array if array.dtype.kind == "u" and (drawn < 0).any() else drawn.astype(array.dtype)

    return indices


def _negative(below: int, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """From -1 back to the first element, with that border in it."""
    drawn = rng.integers(-below, 0, shape)
    if drawn.size:
        drawn.flat[-1] = -below
    return drawn


def _for_bytes(model: Model) -> _Change:
    def spread(at: int, array: Array, rng: np.random.Generator) -> Array:
        if array.dtype.kind not in "iu" or array.itemsize > 1 or at in model.index_limits:
            return array
        info = np.iinfo(array.dtype)
        return rng.integers(info.min, int(info.max) + 1, array.shape).astype(array.dtype)

    return spread


def _for_numbers(model: Model, low: int = -_FURTHEST, high: int = _FURTHEST) -> _Change:
    """Integers but 0, by which nothing can be divided; the first of them is the lowest."""

    def numbers(at: int, array: Array, rng: np.random.Generator) -> Array:
        if at not in model.number_inputs:
            return array
        info = np.iinfo(array.dtype)
        least, most = max(low, int(info.min)), min(high, int(info.max))
        if least > most:
            return array
        drawn = rng.integers(least, most + 1, array.shape)
        if drawn.size:
            drawn.flat[0] = least
        return np.asarray(np.where(drawn == 0, most, drawn)).astype(array.dtype)

    return numbers


def _same(one: Array, other: Array) -> bool:
    return one is other or bool(np.array_equal(one, other))
