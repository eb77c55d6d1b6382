"""PyTorch's operator samples: which ones, and one through import, compilation and a run."""
