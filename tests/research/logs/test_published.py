"""Every template of the shared logs is known, and its programs are those of its operator."""

from __future__ import annotations

import gzip
import json
from math import prod

import numpy as np
import pytest

from foretune.dataset.readers import read
from foretune.describe.logged import nests_of_group
from foretune_research.logs import describes

from .running import executed

LOGS = ["cpu-cortex-a7", "cpu-i5-1035g1", "cpu-i7-3770", "cpu-ryzen-3700x", "gpu-gtx1650"]
LINES = 1200


def macs_and_outputs(workload: str) -> tuple[float, float]:
    """Multiply-adds and outputs of an operator by its shapes."""
    template, args = json.loads(workload)
    (_, x, _), (_, w, _), *rest = args
    if "conv2d" in template:
        (sh, sw), (top, left, bottom, right), (dh, dw) = rest[:3]
        oh = (x[2] + top + bottom - (w[2] - 1) * dh - 1) // sh + 1
        ow = (x[3] + left + right - (w[3] - 1) * dw - 1) // sw + 1
        outputs = x[0] * w[0] * oh * ow
        return outputs * w[1] * w[2] * w[3], outputs
    if "batch" in template:
        n = w[1] if rest[3] else w[2]
        return prod(x) * n, x[0] * x[1] * n
    return prod(x) * w[0], x[0] * w[0]


@pytest.mark.parametrize("log", LOGS)
def test_programs_of_published_logs_do_the_work_of_their_operators(shared_data, tmp_path, log):
    with gzip.open(shared_data / "devices" / f"{log}.jsonl.gz") as file:
        lines = file.readlines()
    drawn = np.random.default_rng(0).permutation(len(lines))[:LINES]
    sample = tmp_path / "sample.jsonl"
    sample.write_bytes(b"".join(lines[at] for at in drawn))
    groups = read(sample).groups
    assert sum(map(len, groups)) > LINES // 2
    for group in groups:
        assert describes(group.programs, group.workload)
        batches = nests_of_group(group)
        rows = sorted(row for batch, _ in batches for row in batch.tolist())
        assert rows == list(range(len(group)))
        macs, outputs = macs_and_outputs(group.workload)
        for _, nests in batches:
            products = [s for s in nests.statements if (s.operations == 2).all()]
            if "winograd" not in group.workload:
                (product,) = products
                np.testing.assert_allclose(executed(nests, product), macs)
            last = nests.statements[-1]
            if not last.reduces:
                np.testing.assert_allclose(executed(nests, last), outputs)
