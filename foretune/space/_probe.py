"""Learning the location model of a sketch by asking TVM."""

from __future__ import annotations

from foretune.space.location import LocationModel
from foretune.space.sketch import Sketch


def learn(sketch: Sketch) -> LocationModel:
    """The location model of a sketch."""
    return LocationModel()
