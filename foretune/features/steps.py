"""The steps of a sketch with slots where decisions go, for rooms that fill them on their own."""

from foretune.features._skeleton import Slot, Step, skeleton_of

__all__ = ["Slot", "Step", "skeleton_of"]
