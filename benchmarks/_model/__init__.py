"""What the benchmarks of learned models share: cells of a table, where they are kept, tables."""
