"""All training networks, by family."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks._training import (
    audio,
    classifiers,
    convolutional,
    detection,
    generative,
    recurrent,
    text,
    video,
    vision_transformers,
)
from benchmarks._training.parts import Definition

NETWORKS: tuple[Callable[[], Definition], ...] = (
    *convolutional.NETWORKS,
    *classifiers.NETWORKS,
    *vision_transformers.NETWORKS,
    *text.NETWORKS,
    *recurrent.NETWORKS,
    *generative.NETWORKS,
    *detection.NETWORKS,
    *audio.NETWORKS,
    *video.NETWORKS,
)
