from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretune.space import Candidate

from .programs import space

GOLDEN = Path(__file__).parent / "golden"
CASES = ["matmul", "conv2d_nhwc", "softmax"]


def _listing(name: str) -> str:
    rng = np.random.default_rng(0)
    here = space(name)
    lines: list[str] = []
    for index, sketch in enumerate(here.sketches[:3]):
        candidate = next(c for c in here.sample(rng, 100) if c.sketch == sketch)
        lines.append(f"# sketch {index}")
        lines += [str(action) for action in candidate.actions()]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_actions_read_as_recorded(name: str) -> None:
    """After a deliberate change: ``python -m tests.space.test_actions`` writes the files anew."""
    assert _listing(name) == (GOLDEN / f"{name}.txt").read_text()


def test_actions_tell_candidates_apart() -> None:
    here = space("conv2d_nhwc")
    drawn = here.sample(np.random.default_rng(0), 300)
    assert len({c.actions() for c in drawn}) == len(drawn)


def test_actions_name_the_factors_of_the_decision() -> None:
    sketch = space("matmul").sketches[0]
    drawn: list[Candidate] = space("matmul").sample(np.random.default_rng(0), 50)
    candidate = next(c for c in drawn if c.sketch == sketch)
    split = next(a for a in candidate.actions() if a.kind == "split")
    assert split.args == ("C.i", *candidate.decisions[0])  # type: ignore[misc]


if __name__ == "__main__":
    for case in CASES:
        (GOLDEN / f"{case}.txt").write_text(_listing(case))
