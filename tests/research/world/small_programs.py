"""Small made-up programs as ``foretune_research.world.text`` writes them, and who reads them.

A workload is two extents; a state splits each of them into three loops.
"""

from __future__ import annotations

import numpy as np

from foretune_research.world.contrastive import TextFile
from foretune_research.world.encoder import StateEncoder, encoder_config

EXTENTS = (16, 24, 32, 48, 64, 96, 128, 256)
TINY = {"dimension": 16, "width": 32, "layers": 1, "heads": 2, "vocabulary": 400}
ON_CPU = {"threads": 1, "device": "cpu"}
"""One thread, so that results are the same on every machine with such a processor."""


def program(extents, tiles):
    """The text of a state: per axis its tile, three numbers."""
    lines = [f"arg b0:{extents[0]}x{extents[1]} b1:{extents[0]}x{extents[1]}"]
    for axis, tile in enumerate(tiles):
        loops = " ".join(f"i{axis * 3 + level}={factor}" for level, factor in enumerate(tile))
        lines.append("for " + loops)
    lines.append("  k0 s0=i0*4+i1+i2 s1=i3*4+i4+i5")
    lines.append("   b1[s0,s1]=max(b0[s0,s1],0)")
    return "\n".join(lines)


def files(count, states=10, seed=0):
    """Workloads of distinct states."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        extents = rng.choice(EXTENTS, 2).tolist()
        texts: dict[str, None] = {}
        while len(texts) < states:
            texts[program(extents, 2 ** rng.integers(0, 8, (2, 3)))] = None
        found.append(TextFile(list(texts)))
    return found


def texts(count, seed=0):
    return [text for file in files(count, 1, seed) for text in file.texts]


def encoder(**options):
    """One that has learned nothing."""
    config = encoder_config(**{**TINY, **options})
    return StateEncoder.fresh(texts(40), config, seed=3, **ON_CPU)
