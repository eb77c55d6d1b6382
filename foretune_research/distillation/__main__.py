"""``python -m foretune_research.distillation --data FILE,... -o FOLDER``: a small model, taught.

Programs of the data are asked about, a teacher answers, the hints that it is given are audited, and
a student is tuned on what may be learned from. What came of it is printed as a JSON object. The
folder is what ``--option scores=hf --option model=FOLDER`` reads.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretune.evaluate import keep_judgeable, read_data
from foretune.llm import open_session
from foretune_research.distillation import teaching
from foretune_research.distillation.leakage import audit
from foretune_research.distillation.teaching import Answered, Question, Teacher
from foretune_research.distillation.tiny import save_small_qwen2
from foretune_research.distillation.tuning import TuningConfig, tune

_LEAK = 0.5
"""Share of a leaky teacher's scores that is its hint."""
_AUDITED = 16
"""Programs of a group that the audit asks about."""


def leaky_teacher(asked: Sequence[Question]) -> list[Answered]:
    """A control of the audit: formulas, mixed with the hint where there is one."""
    return [
        Answered(
            each,
            _LEAK * each.speed + (1 - _LEAK) * each.formulas if each.hinted else each.formulas,
        )
        for each in asked
    ]


def teacher_of(name: str) -> Teacher:
    """``formulas``, ``leaky``, or a language model, ``MODEL@URL``."""
    known: dict[str, Teacher] = {"formulas": teaching.formula_teacher, "leaky": leaky_teacher}
    return known[name] if name in known else teaching.llm_teacher(open_session(name))


def distil(options: argparse.Namespace) -> dict[str, Any]:
    """Teaches a student and tells of it."""
    groups, _few = keep_judgeable(read_data([Path(name) for name in options.data]).groups)
    teacher = teacher_of(options.teacher)
    pairs = teaching.questions(groups, hints=1.0, both=True, per_group=_AUDITED)
    told = audit(teacher(pairs)).to_json()
    asked = teaching.questions(groups, per_group=options.programs, hints=options.hints)
    answers, reasons = teaching.kept(teacher(asked))
    config = TuningConfig(readout=options.readout, epochs=options.epochs, full=options.full)
    with tempfile.TemporaryDirectory() as place:
        base = options.base
        if base is None:
            base = Path(place)
            corpus = [each.prefix + each.program for each in asked[:64]]
            save_small_qwen2(base, corpus, width=64, vocabulary=4000)
        tuned = tune(base, answers, options.output, config)
    return {
        "teacher": options.teacher,
        "audit": told,
        "answers": len(answers),
        "left_out": dict(reasons),
        "losses": list(tuned.losses),
        "weights": {"tuned": tuned.trained, "all": tuned.total},
    }


def main(arguments: list[str] | None = None) -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m foretune_research.distillation", description=__doc__
    )
    parser.add_argument("--data", type=lambda text: text.split(","), required=True)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the student")
    parser.add_argument("--teacher", default="formulas", help="formulas, leaky or MODEL@URL")
    parser.add_argument("--base", type=Path, help="folder of the student's base; made if left out")
    parser.add_argument("--programs", type=int, default=32, help="of a group, to learn from")
    parser.add_argument("--hints", type=float, default=0.0, help="share that is told its speed")
    parser.add_argument("--readout", choices=("digits", "heads"), default="heads")
    parser.add_argument("--epochs", type=int, default=TuningConfig.epochs)
    parser.add_argument("--full", action="store_true", help="tune all weights, not LoRA")
    print(json.dumps(distil(parser.parse_args(arguments)), indent=1))


if __name__ == "__main__":
    main()
