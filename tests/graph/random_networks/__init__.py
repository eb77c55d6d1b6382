"""Random PyTorch networks, drawn from a seed: the same network everywhere."""

from tests.graph.random_networks.network import Network, draw

__all__ = ["Network", "draw"]
