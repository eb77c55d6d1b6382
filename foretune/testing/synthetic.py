"""A search space without a compiler, with a latency formula and a known optimum.

A synthetic sketch has perfect tiles and choices like a real one. Each decision has a distance
``d_i`` in [0, 1] to a hidden best decision, and a candidate takes

    seconds = fastest_s * (1 + sum_i w_i d_i + sum_{i<j} w_ij d_i d_j)

with positive weights: the optimum is the candidate whose every distance is 0, it is unique in its
sketch, and decisions interact, so that greedy choices of single decisions are misled by where the
others stand. One sketch is faster than the others by a fixed factor. A part of the space may be
illegal (``apply`` raises) and a part may fail when measured; both are fixed by the program. With
twins, decisions that differ may make one program, as limits do that ask for more than loops have.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretune._arrays import Float32Array
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.hardware import Hardware
from foretune.measure import Measurement, Measurer, Status
from foretune.records import Trial
from foretune.workload import Workload

Decision = tuple[int, ...] | int


@functools.lru_cache(maxsize=256)
def factorisations(extent: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """Every ordered way to write ``extent`` as a product of ``parts`` positive integers."""
    if parts == 1:
        return ((extent,),)
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return tuple(
        (head, *tail) for head in divisors for tail in factorisations(extent // head, parts - 1)
    )


@functools.lru_cache(maxsize=1 << 14)
def _fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts only, in every process."""
    text = "/".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64


@dataclass(frozen=True)
class SyntheticSketch:
    """Tiles ``(extent, parts)`` and choices (number of options), with a hidden optimum.

    Attributes:
        key: Name of the sketch; also the seed of its formula.
        tiles: One ``(extent, parts)`` per tile decision.
        choices: Number of options of each choice decision; they come after the tiles.
        fastest_s: Seconds of the best candidate.
        illegal: Share of the candidates whose ``apply`` raises.
        failing: Share of the candidates whose measurement fails.
        twins: Whether the last two options of each choice make the same program.
    """

    key: str
    tiles: tuple[tuple[int, int], ...]
    choices: tuple[int, ...]
    fastest_s: float
    illegal: float = 0.0
    failing: float = 0.0
    twins: bool = False

    @functools.cached_property
    def domains(self) -> tuple[tuple[Decision, ...], ...]:
        """Every value of every decision."""
        tiles = tuple(factorisations(extent, parts) for extent, parts in self.tiles)
        return (*tiles, *(tuple(range(n)) for n in self.choices))

    @property
    def variables(self) -> tuple[object, ...]:
        """The decision variables, opaque to strategies: tiles, then choices."""
        return (*self.tiles, *self.choices)

    @property
    def size(self) -> int:
        """Number of decision vectors, legal or not."""
        return math.prod(len(domain) for domain in self.domains)

    @functools.cached_property
    def best(self) -> tuple[Decision, ...]:
        """The hidden optimum."""
        return tuple(
            domain[int(_fraction(self.key, "best", i) * len(domain))]
            for i, domain in enumerate(self.domains)
        )

    def made(self, decisions: Sequence[Decision]) -> tuple[Decision, ...]:
        """The decisions that stand for all which make the same program."""
        if not self.twins:
            return tuple(decisions)
        first = len(self.tiles)
        most = [max(0, count - 2) for count in self.choices]
        # An option is an index; a tile stays as it is.
        options = (
            min(option, last) if isinstance(option, int) else option
            for option, last in zip(decisions[first:], most, strict=True)
        )
        return (*decisions[:first], *options)

    def distance(self, i: int, decision: Decision) -> float:
        """``d_i``: mean absolute log2 ratio of the parts, or whether the option differs."""
        best = self.made(self.best)[i]
        if isinstance(decision, tuple) and isinstance(best, tuple):
            scale = math.log2(max(self.tiles[i][0], 2)) * len(best)
            return sum(abs(math.log2(a / b)) for a, b in zip(decision, best, strict=True)) / scale
        return float(decision != best)

    def seconds(self, decisions: Sequence[Decision]) -> float:
        """The latency formula of the module's map."""
        d = [self.distance(i, decision) for i, decision in enumerate(self.made(decisions))]
        total = sum((1 + 5 * _fraction(self.key, "w", i)) * x for i, x in enumerate(d))
        total += sum(
            6 * _fraction(self.key, "w", i, j) * d[i] * d[j]
            for i, j in itertools.combinations(range(len(d)), 2)
        )
        return self.fastest_s * (1 + total)


@dataclass(frozen=True)
class SyntheticCandidate:
    """A frozen (sketch, decisions) pair with the attributes of a real candidate."""

    sketch: SyntheticSketch
    decisions: tuple[Decision, ...]
    workload: Workload = field(compare=False)
    hardware: Hardware = field(compare=False)

    @functools.cached_property
    def key(self) -> str:
        """Text that is equal exactly when the candidates are."""
        return f"{self.sketch.key}:{self.decisions}"

    @functools.cached_property
    def program(self) -> str:
        """Text that is equal exactly when the programs are; the key in a space without twins."""
        return f"{self.sketch.key}:{self.sketch.made(self.decisions)}"

    @property
    def _is_best(self) -> bool:
        return self.sketch.made(self.decisions) == self.sketch.made(self.sketch.best)

    @functools.cached_property
    def seconds(self) -> float:
        """What measuring it will give."""
        return self.sketch.seconds(self.decisions)

    @property
    def legal(self) -> bool:
        """Whether ``apply`` works. The optimum of a sketch always is."""
        return self._is_best or _fraction(self.program, "legal") >= self.sketch.illegal

    @property
    def fails(self) -> bool:
        """Whether its measurement fails. The optimum of a sketch never does."""
        return not self._is_best and _fraction(self.program, "fails") < self.sketch.failing

    def apply(self) -> str:
        """The program's name; raises IllegalCandidateError where post-processors would refuse."""
        if not self.legal:
            raise IllegalCandidateError(f"synthetic candidate {self.key} is illegal")
        return self.program

    def to_json(self) -> dict[str, Any]:
        """Like a real candidate's."""
        decisions = [list(d) if isinstance(d, tuple) else d for d in self.decisions]
        return {"sketch": self.sketch.key, "decisions": decisions}


class SyntheticSpace:
    """A ``foretune.space.SearchSpace`` in which everything is known.

    Args:
        tiles: One ``(extent, parts)`` per tile decision, the same in every sketch.
        choices: Number of options of each choice.
        sketches: How many sketches; the first is the fastest, each further one 1.5 times slower.
        seed: Where the optimum lies and how decisions interact.
        illegal: Share of illegal candidates.
        failing: Share of candidates whose measurement fails.
        twins: Whether the last two options of each choice make the same program.
    """

    def __init__(
        self,
        tiles: Sequence[tuple[int, int]] = ((64, 4), (96, 4), (128, 2)),
        choices: Sequence[int] = (4, 3),
        *,
        sketches: int = 2,
        seed: int = 0,
        illegal: float = 0.0,
        failing: float = 0.0,
        twins: bool = False,
    ) -> None:
        self.sketches = tuple(
            SyntheticSketch(
                f"synthetic-{seed}-{i}",
                tuple(tiles),
                tuple(choices),
                1e-3 * 1.5**i,
                illegal,
                failing,
                twins,
            )
            for i in range(sketches)
        )
        self.workload = Workload(f"synthetic-{seed}", f"{seed:016x}", "", flops=1e6)
        self.hardware = Hardware("synthetic", '{"kind": "llvm"}', threads=2, simd_bits=256)
        self._by_key = {sketch.key: sketch for sketch in self.sketches}
        self.starts: tuple[()] = ()

    @property
    def size(self) -> int:
        """Number of candidates, legal or not."""
        return sum(sketch.size for sketch in self.sketches)

    @property
    def optimum(self) -> SyntheticCandidate:
        """The fastest candidate of all."""
        return self._make(self.sketches[0], self.sketches[0].best)

    @property
    def untuned(self) -> SyntheticCandidate:
        """The slowest corner of an empty sketch, outside every other sketch."""
        return self._make(SyntheticSketch("untuned", (), (), 2e-2), ())

    @property
    def default(self) -> None:
        """There is no default schedule, as on a GPU."""
        return None

    def everything(self) -> Iterator[SyntheticCandidate]:
        """Every candidate, for small spaces."""
        for sketch in self.sketches:
            for decisions in itertools.product(*sketch.domains):
                yield self._make(sketch, decisions)

    def sample(self, rng: np.random.Generator, n: int) -> list[SyntheticCandidate]:
        """``n`` independent uniform draws."""
        return [self._draw(rng) for _ in range(n)]

    def mutate(
        self,
        candidate: SyntheticCandidate,
        rng: np.random.Generator,
        among: Sequence[int] | None = None,
    ) -> SyntheticCandidate:
        """Redraws one decision, of those that may be changed."""
        domains = candidate.sketch.domains
        open_to = range(len(domains)) if among is None else among
        if not open_to:
            return candidate if domains else self._draw(rng)
        i = open_to[int(rng.integers(len(open_to)))]
        drawn = domains[i][int(rng.integers(len(domains[i])))]
        return self.edit(candidate, {i: drawn}, rng)

    def edit(
        self, candidate: SyntheticCandidate, changes: Mapping[int, Any], rng: np.random.Generator
    ) -> SyntheticCandidate:
        """Replaces decisions.

        Raises:
            IllegalCandidateError: A decision is outside its domain.
        """
        del rng
        decisions = list(candidate.decisions)
        for i, decision in changes.items():
            decisions[i] = decision
        return self._checked(candidate.sketch, tuple(decisions))

    def crossover(
        self, a: SyntheticCandidate, b: SyntheticCandidate, rng: np.random.Generator
    ) -> SyntheticCandidate:
        """Takes each decision from either parent; ``a`` unchanged if the sketches differ."""
        if a.sketch.key != b.sketch.key:
            return a
        pick = rng.random(len(a.decisions)) < 0.5
        chosen = (x if p else y for x, y, p in zip(a.decisions, b.decisions, pick, strict=True))
        return self._make(a.sketch, tuple(chosen))

    def candidate(self, data: Mapping[str, Any]) -> SyntheticCandidate:
        """Reads what ``SyntheticCandidate.to_json`` wrote.

        Raises:
            BadInputError: Unknown sketch.
            IllegalCandidateError: A decision outside its domain.
        """
        if data["sketch"] not in self._by_key:
            raise BadInputError(f"unknown sketch {data['sketch']!r}")
        sketch = self._by_key[data["sketch"]]
        decisions = tuple(tuple(d) if isinstance(d, list) else int(d) for d in data["decisions"])
        return self._checked(sketch, decisions)

    def _draw(self, rng: np.random.Generator) -> SyntheticCandidate:
        sketch = self.sketches[int(rng.integers(len(self.sketches)))]
        return self._make(
            sketch, tuple(domain[int(rng.integers(len(domain)))] for domain in sketch.domains)
        )

    def _checked(
        self, sketch: SyntheticSketch, decisions: tuple[Decision, ...]
    ) -> SyntheticCandidate:
        for decision, domain in zip(decisions, sketch.domains, strict=True):
            if decision not in domain:
                raise IllegalCandidateError(f"decision {decision} is not in its domain")
        return self._make(sketch, decisions)

    def _make(self, sketch: SyntheticSketch, decisions: tuple[Decision, ...]) -> SyntheticCandidate:
        return SyntheticCandidate(sketch, decisions, self.workload, self.hardware)


class SyntheticMeasurer(Measurer):
    """Evaluates the formula; candidates that are to fail give a run error.

    Args:
        noise: Standard deviation of the log of a reading; 0 gives the formula exactly.
        seed: Seed of the noise.
    """

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self._noise = noise
        self._rng = np.random.default_rng(seed)

    def measure(
        self, candidates: Sequence[Any], best_s: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Any, Measurement]]:
        """Yields the candidates in the order given."""
        for candidate in candidates:
            yield candidate, self._read(candidate)

    def compare(self, candidates: Sequence[Any]) -> list[Measurement]:
        """The formula again."""
        return [self._read(candidate) for candidate in candidates]

    def close(self) -> None:
        """Nothing to end."""

    def _read(self, candidate: SyntheticCandidate) -> Measurement:
        if not candidate.legal:
            return Measurement(Status.COMPILE_ERROR, message="illegal synthetic candidate")
        if candidate.fails:
            return Measurement(Status.RUN_ERROR, message="synthetic failure")
        factor = math.exp(self._noise * abs(float(self._rng.standard_normal())))
        return Measurement(Status.OK, (candidate.seconds * factor,), (True,), 0.0, 0.0)


def synthetic_trial(
    candidate: SyntheticCandidate, measurement: Measurement
) -> Trial[SyntheticCandidate]:
    """What a tuner would tell of it."""
    return Trial.of(candidate, measurement, "synthetic", {}, ended=0.0)


def synthetic_features(
    candidates: Sequence[Any],
) -> list[Float32Array | None]:
    """Stands in for ``foretune.features.extract_per_store``: one row per candidate.

    Columns: log2 of every part of every tile, the options, and the sketch's place. ``None`` for an
    illegal candidate.
    """
    rows: list[Float32Array | None] = []
    for candidate in candidates:
        if not candidate.legal:
            rows.append(None)
            continue
        row: list[float] = [float(candidate.sketch.key.rpartition("-")[2] or 0)]
        for decision in candidate.decisions:
            parts = decision if isinstance(decision, tuple) else (1 + decision,)
            row.extend(math.log2(part) for part in parts)
        rows.append(np.asarray([row], dtype=np.float32))
    return rows
