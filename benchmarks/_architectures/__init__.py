"""Architectures with random weights: model types of transformers and networks of pytorchcv."""

from benchmarks._architectures.networks import Network, known, make

__all__ = ["Network", "known", "make"]
