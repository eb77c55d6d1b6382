"""What the benchmarks of the world model share: what is learned, per fold, and the page."""
