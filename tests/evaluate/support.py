"""Made-up groups, and rankers whose quality is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from foretune.cost import Ranker
from foretune.dataset import Group, Program
from foretune.space import Action
from foretune.workload import Workload
from foretune.workload.catalog import _operators as operators


def group(
    workload: str = "w",
    seconds: Sequence[float] = (1.0, 2.0, 4.0),
    *,
    kind: str = "conv2d",
    hardware: str = "h",
    weight: float = 1.0,
    networks: tuple[str, ...] = (),
) -> Group:
    """A group whose programs carry their own speed, for ``Hinted`` to read."""
    array = np.array(seconds, dtype=np.float64)
    return Group(
        workload=workload,
        name=f"{kind} {workload}",
        kind=kind,
        hardware=hardware,
        programs=[Program(actions=(Action("hint", (i, float(-s))),)) for i, s in enumerate(array)],
        seconds=array,
        weight=weight,
        networks=networks,
    )


def several(
    workloads: int, kinds: Sequence[str] = ("conv2d", "dense"), hardware: Sequence[str] = ("h",)
) -> list[Group]:
    """Groups of different workloads, all of them on each hardware."""
    rng = np.random.default_rng(workloads)
    return [
        group(
            f"w{i}",
            rng.uniform(1, 8, 12).tolist(),
            kind=kinds[i % len(kinds)],
            hardware=device,
        )
        for i in range(workloads)
        for device in hardware
    ]


class Hinted(Ranker):
    """Scores by the hint inside each program: right for sign 1, wrong for -1, ties for 0.

    Remembers what it was trained on in ``trained`` and ``validated``.
    """

    def __init__(self, sign: float = 1.0) -> None:
        self.sign = sign
        self.trained: list[Group] = []
        self.validated: list[Group] = []
        self.scored: list[str] = []

    def fit(self, groups: Sequence[Group], validation: Sequence[Group] = ()) -> None:
        self.trained, self.validated = list(groups), list(validation)

    def score(
        self, programs: Sequence[Program], machine: Any, hardware: str = ""
    ) -> np.ndarray[Any, Any]:
        del machine
        self.scored.append(hardware)
        return np.array([self.sign * float(p.actions[0].args[1]) for p in programs])

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, sign=self.sign)

    @classmethod
    def load(cls, path: Path) -> Hinted:
        with np.load(path) as file:
            return cls(float(file["sign"]))


def ansor_line(
    task: int, step: int, seconds: float, *, error: int = 0, operator: str = "dense"
) -> str:
    """A record of an Ansor log; ``Hinted`` believes that a higher ``step`` is slower."""
    key = json.dumps([operator, task, 64])
    steps = [["SP", 0, -step, 64, [step + 1], 1], ["AN", 0, 0, 3]]
    record = {"i": [[key, "llvm", [4]], [[], steps]], "r": [[seconds], error, 1.0, 0], "v": "v0.6"}
    return json.dumps(record) + "\n"


def write_log(path: Path, tasks: Sequence[int], steps: int = 8) -> Path:
    """An Ansor log in which every higher step is slower; tasks are dense and conv2d in turn."""
    lines = [
        ansor_line(task, step, 1e-3 * (1 + step), operator=("dense", "conv2d")[task % 2])
        for task in tasks
        for step in range(steps)
    ]
    path.write_text("".join(lines))
    return path


def convolutions(sizes: Sequence[int]) -> list[tuple[int, Workload]]:
    """Small convolutions with three epilogues for each image size, and the size."""
    made = []
    for size in sizes:
        for epilogue in (operators.relu, operators.relu6, operators.gelu):
            image = operators.tensor("image", 1, size, size, 4)
            weight = operators.tensor("weight", 3, 3, 4, 8)
            out = epilogue(operators.conv2d(image, weight, 1, 1))
            function = operators.program(image, weight, out)
            name = f"conv2d_{size}_{epilogue.__name__}"
            made.append((size, Workload.from_module(function, name)))
    return made


def of_program(workload: Workload, *, kind: str = "conv2d", hardware: str = "h") -> Group:
    """A group whose programs know the workload that they are schedules of."""
    made = group(workload.key, kind=kind, hardware=hardware)
    candidates: list[Any] = [
        SimpleNamespace(workload=workload, key=program.key) for program in made.programs
    ]
    programs = [Program(c, p.actions) for c, p in zip(candidates, made.programs, strict=True)]
    return replace(made, name=workload.name, programs=programs)
