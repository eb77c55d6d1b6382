"""A fingerprint changes with what it stands for, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretune.evaluate import fingerprints
from tests.evaluate.support import group, several


def test_that_of_data_changes_with_what_a_model_sees() -> None:
    groups = several(3)
    first = groups[0]
    slower = replace(first, seconds=first.seconds * 2)
    changed = [
        groups[::-1],
        groups[:2],
        [replace(first, hardware="other"), *groups[1:]],
        [slower, *groups[1:]],
        [replace(first, seconds=np.where(first.seconds > 2, np.nan, first.seconds)), *groups[1:]],
        [first.subset(range(11, -1, -1)), *groups[1:]],
        [replace(first, programs=group("w", range(1, 13)).programs), *groups[1:]],
        [],
    ]
    found = [fingerprints.fingerprint(each) for each in (groups, *changed)]
    assert len(set(found)) == len(found)
    assert fingerprints.fingerprint(several(3)) == found[0]
