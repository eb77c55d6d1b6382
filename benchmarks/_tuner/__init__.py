"""Parts of the benchmark ``tuners``: runs of whole networks, their comparison, tables."""
