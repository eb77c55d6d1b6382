"""Distillation at small size: what a teacher's hints leak, and what a student learns without them.

Programs of AutoTVM's logs of one processor; the student is a Qwen2 with random weights that is made
here, so that nothing is downloaded and everything is trained. Workloads are split in three: the
student is tuned on the first part, the regressor behind it on the second (scores of programs that
the student has not seen, as it will be asked later), and both are judged on the third, of which
each workload has at least 256 programs.

Teachers: formulas; ``leaky`` stands for a language model that lets its hint count for half of what
it says. With ``--teacher MODEL@URL`` a real one is asked.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import ROOT, conditions, publish, table
from foretune.cost import score_group
from foretune.cost.behaviour import reading
from foretune.cost.behaviour.scores import AnalyticScores, ScoreSource, scores_alone
from foretune.dataset import Group
from foretune.describe import METRICS, Behaviours, Nests
from foretune.evaluate.data import read_data
from foretune.hardware import Device
from foretune.llm import open_session
from foretune_research.behaviour.ranker import BehaviourVariants
from foretune_research.distillation import teaching
from foretune_research.distillation.leakage import audit
from foretune_research.distillation.teaching import Answered, Question, Teacher
from foretune_research.distillation.tiny import save_small_qwen2
from foretune_research.distillation.tuning import TuningConfig, tune
from foretune_research.hf.scores import HfScores
from foretune_research.recall import recalls

DATA = ROOT / ".." / "shared" / "data" / "devices"
_TITLE = "Distillation at small size"
_LEAK = 0.5
"""Share of a leaky teacher's scores that is its hint."""
_READS = 4096
_NOTE = """\
Agreement: the mean correlation of a student's scores with the formulas', within groups. The last
row is the bound of what a student could reach: the formulas' own sixteen scores, with nothing else
known. Recall@K: the share of workloads in which a program within 2 % of the fastest is among the
first K. The untuned student tells programs apart as random features do. None was trained on text,
so the page says whether every step works, not what a model of language would be worth."""
KEPT = (10, 16, 32, 64)
_TESTED = 6
"""Workloads at most."""


class TaughtAlone(ScoreSource):
    """Formulas, of which only scores are told: what a perfect student would say."""

    name = "hf"

    def __init__(self) -> None:
        self._formulas = AnalyticScores()
        self.counts = self._formulas.counts

    def behaviours(self, nests: Nests, device: Device) -> Behaviours:
        return scores_alone(device, self._formulas.behaviours(nests, device).scores)


def leaky_teacher(asked: Sequence[Question]) -> list[Answered]:
    """Formulas, mixed with the hint where there is one."""
    found = []
    for each in asked:
        told = _LEAK * each.speed + (1 - _LEAK) * each.formulas
        found.append(Answered(each, told if each.hinted else each.formulas))
    return found


def _teacher(name: str) -> Teacher:
    known: dict[str, Teacher] = {
        "formulas": teaching.formula_teacher,
        "leaky": leaky_teacher,
    }
    return known[name] if name in known else teaching.llm_teacher(open_session(name))


def _parts(device: str, workloads: int, programs: int, tested: int) -> list[list[Group]]:
    """Three parts of as many workloads each, thinned; the last has the largest ones."""
    groups = [g for g in read_data([DATA / f"{device}.jsonl.gz"]).groups if g.valid.sum() >= 64]
    rng = np.random.default_rng(0)
    groups = [groups[at] for at in rng.permutation(len(groups)).tolist()]
    large = [group for group in groups if group.valid.sum() >= tested]
    large = large[: min(workloads, _TESTED)]
    rest = [group for group in groups if group not in large]
    parts = [rest[:workloads], rest[workloads : 2 * workloads], large]
    if len(parts[1]) < workloads:
        raise SystemExit(f"{device} has {len(groups)} workloads: choose fewer than {workloads}")
    return [
        [_thinned(group, most, rng) for group in part]
        for part, most in zip(parts, (programs, programs, tested), strict=True)
    ]


def _thinned(group: Group, most: int, rng: np.random.Generator) -> Group:
    """Some of the programs that ran."""
    return group.subset(np.sort(rng.permutation(np.flatnonzero(group.valid))[:most]))


def _judged(ranker: BehaviourVariants, groups: Sequence[Group]) -> dict[str, float]:
    """``top1``..., the fastest over the best of the first, and ``recall10``..., within 2 %."""
    found: dict[str, list[float]] = {}
    for group in groups:
        rng = np.random.default_rng(0)
        for one in recalls(score_group(ranker, group), group.seconds, (1, 5, *KEPT), rng):
            found.setdefault(f"top{one.kept}", []).append(one.ratio)
            found.setdefault(f"recall{one.kept}", []).append(one.near)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _agreement(source: ScoreSource, groups: Sequence[Group]) -> float:
    """Mean correlation of a student's scores with the formulas', over metrics, within groups."""
    formulas, found = AnalyticScores(), []
    for group in groups:
        device = reading.device_of(group)
        assert device is not None
        for _, nests in reading.batches_of(group):
            if len(nests) < 8:
                continue
            one = source.behaviours(nests, device).scores
            other = formulas.behaviours(nests, device).scores
            for metric in range(len(METRICS)):
                a, b = one[:, metric], other[:, metric]
                if not np.isnan(a + b).any() and np.ptp(a) > 0 and np.ptp(b) > 1e-6:
                    found.append(np.corrcoef(a, b)[0, 1])
    return float(np.mean(found)) if found else float("nan")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu-i7-3770")
    parser.add_argument("--teacher", default="formulas", help="formulas, leaky or MODEL@URL")
    parser.add_argument("--workloads", type=int, default=12, help="of each of the three parts")
    parser.add_argument("--programs", type=int, default=32, help="of a workload")
    parser.add_argument("--tested", type=int, default=256, help="programs of a tested workload")
    parser.add_argument("--answers", type=int, default=32, help="of a workload, to learn from")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("distillation", [0])
    taught, regressed, test = _parts(
        options.device, options.workloads, options.programs, options.tested
    )
    data: dict[str, Any] = {"device": options.device, "audits": {}, "students": []}

    asked = teaching.questions(taught, hints=1.0, both=True, per_group=16)
    for name in dict.fromkeys(("formulas", "leaky", options.teacher)):
        data["audits"][name] = audit(_teacher(name)(asked)).to_json()

    teacher = _teacher(options.teacher)
    corpus = [each.prefix + each.program for each in asked[:64]]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        base = Path(place) / "base"
        save_small_qwen2(
            base, corpus, width=options.width, layers=options.layers, vocabulary=4000,
            longest=_READS,
        )  # fmt: skip
        students = [("heads", True), ("heads, LoRA on random weights", False)]
        for label, full in students:
            questions = teaching.questions(taught, per_group=options.answers)
            answers, reasons = teaching.kept(teacher(questions))
            config = TuningConfig(
                readout="heads", epochs=options.epochs, batch=4, full=full, threads=1,
                learning_rate=1e-3 if full else 5e-3,
            )  # fmt: skip
            folder = Path(place) / label.replace(" ", "-").replace(",", "")
            began = time.perf_counter()
            done = tune(base, answers, folder, config)
            took = time.perf_counter() - began
            source = HfScores(folder, threads=1, device="cpu")
            row = _student(label, source, regressed, test)
            row |= {
                "answers": len(answers),
                "left_out": dict(reasons),
                "losses": list(done.losses),
                "trained": done.trained,
                "weights": done.total,
                "tuned_s": took,
                "agreement": _agreement(source, test),
            }
            data["students"].append(row)
            rows.append(row)
            print(json.dumps(row), flush=True)
        untuned = HfScores(base, readout="heads", threads=1, device="cpu")
        data["students"].append(_student("untuned", untuned, regressed, test))
        data["students"].append(_student("the formulas' scores", TaughtAlone(), regressed, test))
    publish("distillation", _TITLE, _text(data), data, where.end(), options.write)


def _student(
    label: str, source: ScoreSource, regressed: Sequence[Group], test: Sequence[Group]
) -> dict[str, Any]:
    """Top-1 and top-5 with a regressor of the student's scores, and one of the formulas'."""
    found: dict[str, Any] = {"student": label}
    for trained_on, its in (("own", source), ("formulas", TaughtAlone())):
        ranker = BehaviourVariants(source=its, stage="2", threads=1, line=False)
        ranker.fit(regressed)
        began = time.perf_counter()
        found[f"regressor on {trained_on}"] = _judged(ranker.staged("2", source), test)
        programs = sum(map(len, test))
        found.setdefault("ms_per_program", 1e3 * (time.perf_counter() - began) / programs)
    return found


def _text(data: dict[str, Any]) -> str:
    audits = [
        [
            name, str(each["programs"]), f"{each['unhinted']:.2f}", f"{each['hinted']:.2f}",
            f"{each['leak']:+.2f}",
        ]
        for name, each in data["audits"].items()
    ]  # fmt: skip
    students = []
    for each in data["students"]:
        own, formulas = (each[f"regressor on {on}"] for on in ("own", "formulas"))
        students.append(
            [
                each["student"],
                str(each.get("answers", "")),
                f"{each['agreement']:.2f}" if "agreement" in each else "",
                f"{own['top1']:.3f}",
                f"{own['top5']:.3f}",
                *(f"{own[f'recall{k}']:.2f}" for k in KEPT),
                f"{formulas['top1']:.3f}",
                f"{each['ms_per_program']:.1f}",
            ]
        )
    first = table(["teacher", "programs", "agreement without hint", "with hint", "leak"], audits)
    second = table(
        ["student", "answers", "agreement with formulas", "top-1, regressor on its own scores",
         "top-5", *(f"recall@{k}" for k in KEPT), "top-1, regressor on the formulas'",
         "ms a program"],
        students,
    )  # fmt: skip
    return f"{first}\n\n{second}\n\n{_NOTE}"


if __name__ == "__main__":
    main()
