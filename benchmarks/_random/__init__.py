"""Random PyTorch networks, drawn from a seed, and what becomes of them."""

from benchmarks._random.network import Network, draw

__all__ = ["Network", "draw"]
