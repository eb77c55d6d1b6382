"""Calls a kernel so many times: what ``foretune.explain._counters`` counts, in a child process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from foretune.graph import Artifact


def main(library: str, calls: str) -> None:
    """Loads an artifact and calls it, on numbers that are of no importance."""
    artifact = Artifact.load(Path(library))
    rng = np.random.default_rng(0)
    inputs = {
        spec.name: rng.random(spec.shape).astype(spec.dtype)
        if spec.dtype.startswith("float")
        else np.zeros(spec.shape, spec.dtype)
        for spec in artifact.inputs
    }
    artifact.time(inputs, int(calls))


if __name__ == "__main__":
    main(*sys.argv[1:])
