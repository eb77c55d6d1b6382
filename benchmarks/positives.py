"""What the state encoder learns from positives of one kind or another.

The paper's positive is the same text under another dropout (``dropout``); the alternative is
another writing of the same program (``variant``), or either by chance (``both``). Encoders that
differ in nothing else learn from the same states, and are asked about workloads that they have not
seen. Is a program, written in another way, nearer to itself than to every other program of its
workload? How much of the differences of log seconds within workloads do the encodings explain?
``by time``: states of a workload are pushed apart only as far as their seconds differ. An encoder
that was not trained is the floor.

Seeds have folds of their own. What was judged is kept in the work directory, so that seeds can be
computed side by side: ``--seed-list 0,1`` beside ``--seed-list 2``, then a call without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks._world.folds import Learning, learning_of, learning_options, told
from benchmarks.residuals import LEARNERS, centred, predicted, some_programs
from benchmarks.results import conditions, figure, publish, say, table
from benchmarks.sources import code_of
from foretune.dataset import Group
from foretune.evaluate import Bootstrap, keep_judgeable, read_data
from foretune.evaluate.metrics import labels
from foretune_research.world import variant
from foretune_research.world.config import WorldStudyConfig
from foretune_research.world.programs import Observed, final_texts, observe
from foretune_research.world.reader import TextReader

Floats = npt.NDArray[Any]

UNTRAINED = "untrained"
KINDS: Mapping[str, Mapping[str, Any]] = {
    UNTRAINED: {"contrastive_options": {"epochs": 0}},
    "dropout": {"positives": "dropout"},
    "variant": {"positives": "variant"},
    "both": {"positives": "both"},
    "both, by time": {"positives": "both", "contrastive_options": {"by_time": True}},
}
"""Options of the world that make each encoder."""
_TITLE = "Positives of the state encoder"
_SCHEMA = "foretune.positives/1"


class Encoder(Protocol):
    """What is judged."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """Vectors of length 1, shape (n, d)."""


@dataclass(frozen=True)
class Sample:
    """Programs of a workload on one machine.

    Attributes:
        workload: Its key.
        texts: Of the programs, all different.
        seconds: How long each takes.
    """

    workload: str
    texts: Sequence[str]
    seconds: Floats

    @classmethod
    def of(cls, group: Group, learning: Learning) -> Sample:
        """The programs of a group that can be made, each text once."""
        candidates = [p.candidate for p in group.programs if p.candidate is not None]
        first: dict[str, int] = {}
        for at, text in enumerate(final_texts(candidates, learning.cache)):
            if text is not None:
                first.setdefault(text, at)
        return cls(group.workload, list(first), group.seconds[list(first.values())])


def judged(
    encoder: Encoder, samples: Sequence[Sample], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Figures of every sample.

    Returns:
        ``workload``, ``programs``, ``found`` (share of the programs that are nearest to their own
        other writing), ``near`` and ``apart`` (mean cosine to one's own other writing, and to
        those of others), ``all`` (squared differences of log2 seconds from their mean), and what
        each learner leaves of it.
    """
    rows, columns = [], []
    for sample in samples:
        own = np.asarray(encoder.encode(sample.texts), dtype=np.float64)
        written = encoder.encode([variant(text, rng) for text in sample.texts])
        cosines = np.asarray(written, dtype=np.float64) @ own.T
        count = len(own)
        rows.append(
            {
                "workload": sample.workload,
                "programs": count,
                "found": float((cosines.argmax(axis=1) == np.arange(count)).mean()),
                "near": float(cosines.diagonal().mean()),
                "apart": float((cosines.sum() - cosines.trace()) / (count * (count - 1))),
            }
        )
        columns.append(centred(own))
    truth = [centred(np.log2(labels(sample.seconds))) for sample in samples]
    for row, real in zip(rows, truth, strict=True):
        row["all"] = float((real**2).sum())
    for learner in LEARNERS:
        guesses = predicted(columns, truth, [sample.workload for sample in samples], learner)
        for row, real, guess in zip(rows, truth, guesses, strict=True):
            row[learner] = float(((real - guess) ** 2).sum())
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures over all samples, with intervals."""
    bootstrap = Bootstrap([row["workload"] for row in rows])
    whole = np.array([row["all"] for row in rows])

    def explained(learner: str) -> dict[str, float]:
        rest = np.array([row[learner] for row in rows])
        return bootstrap.interval(lambda draws: 1.0 - (draws @ rest) / (draws @ whole))

    return {
        "samples": len(rows),
        "chance": float(np.mean([1 / row["programs"] for row in rows])),
        **{
            name: bootstrap.mean([row[name] for row in rows]) for name in ("found", "near", "apart")
        },
        **{learner: explained(learner) for learner in LEARNERS},
    }


def of_seed(
    learning: Learning, groups: Sequence[Group], kinds: Sequence[str], hardware: str, most: int
) -> dict[str, list[dict[str, Any]]]:
    """Rows of every kind of encoder on the first fold of a seed."""
    fold = learning.fold(learning.parts(groups)[0], 0)
    cells = learning.cells(groups)
    # The hash that cells have anyway does not reach this module.
    code = code_of("benchmarks.positives", "benchmarks.residuals", within=())

    @cache
    def seen() -> Observed:
        trajectories = learning.config.trajectories
        return observe(fold.train, trajectories, learning.seed, learning.cache)

    @cache
    def samples() -> list[Sample]:
        tested = some_programs(fold.part.test, hardware, most, learning.seed)
        found = [Sample.of(group, learning) for group in tested]
        return [sample for sample in found if len(sample.texts) > 1]

    def made(kind: str) -> list[dict[str, Any]]:
        config: WorldStudyConfig = replace(learning.config, **KINDS[kind])
        reader = TextReader.learned(seen(), config, learning.seed, threads=learning.threads)
        return judged(reader.encoder, samples(), np.random.default_rng(learning.seed))

    return {
        kind: cells.get(
            f"{kind} {hardware} {most} {code}",
            partial(made, kind),
            f"seed {learning.seed}: {kind}",
        )
        for kind in kinds
    }


def body_of(result: Mapping[str, Any]) -> str:
    """The page."""
    rows = result["rows"]
    lines = [
        [row["kind"], figure(row["found"]), figure(row["near"]), figure(row["apart"]),
         *(figure(row[learner]) for learner in LEARNERS)]
        for row in rows
    ]  # fmt: skip
    return "\n\n".join(
        [
            f"Encoders of {result['config']['encoder_states']:,} states from "
            f"{result['config']['trajectories']:,} programs, on {rows[0]['samples']} groups of "
            f"workloads held out, {len(result['seeds'])} seeds with a fold each, programs drawn "
            "uniformly. Found: share of the programs that, written in another way, are nearer to "
            "themselves than to every other program of the workload; chance finds "
            f"{rows[0]['chance']:.3f}. Near: mean cosine to one's own other writing; apart: to "
            "those of others. Explained: share of the variance of log seconds within workloads, "
            "predicted from the encodings by a model of other workloads; negative: what was "
            "learned misleads. Intervals: bootstrap over workloads, 95 %.",
            table(
                ["positives", "found", "near", "apart",
                 *(f"explained, {learner}" for learner in LEARNERS)],
                lines,
            ),
        ]
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = learning_options(__doc__)
    parser.set_defaults(target="text", trajectories=2000, encoder_states=3000)
    parser.add_argument("--kinds", default=";".join(KINDS), help="separated by semicolons")
    parser.add_argument(
        "--seed-list", type=lambda text: [int(part) for part in text.split(",")],
        help="these seeds only, and nothing is published; 0, 1 and 2 if left out",
    )  # fmt: skip
    parser.add_argument("--tested", type=int, default=24, help="programs of a group, at most")
    options = parser.parse_args(arguments)
    kinds = [name for name in options.kinds.split(";") if name]
    if not kinds or not set(kinds) <= set(KINDS):
        parser.error(f"kinds are {'; '.join(KINDS)}")
    seeds = options.seed_list or [0, 1, 2]
    where = conditions("positives", seeds)
    groups, _few = keep_judgeable(read_data([options.data]).groups)
    keys = sorted(group.hardware for group in groups)
    hardware = max(sorted(set(keys)), key=keys.count)
    found: dict[str, list[dict[str, Any]]] = {}
    with told():
        for seed in seeds:
            options.seed = seed
            rows = of_seed(learning_of(options), groups, kinds, hardware, options.tested)
            for kind, own in rows.items():
                found.setdefault(kind, []).extend(own)
            say(f"seed {seed}: {len(next(iter(rows.values())))} groups")
    if options.seed_list:
        return
    result = {
        "schema": _SCHEMA,
        "hardware": hardware,
        "seeds": seeds,
        "config": asdict(learning_of(options).config),
        "rows": [{"kind": kind, **summary(own)} for kind, own in found.items()],
        "groups": found,
    }
    publish("positives", _TITLE, body_of(result), result, where.end(), options.write)


if __name__ == "__main__":
    main()
