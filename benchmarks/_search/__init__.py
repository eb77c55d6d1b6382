"""What the benchmarks of searches share: runs, figures made of them, goals."""
