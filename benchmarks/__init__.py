"""Benchmarks: each prints a table with the command that makes it, and can write it down."""
