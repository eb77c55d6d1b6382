"""Whole networks: what ``benchmarks.networks`` runs, and what its page says.

``runs`` calls the command line and keeps what it wrote, ``passes`` tunes again with one pass off,
``kernels`` has the time of each kernel alone. ``figures`` makes ratios of readings, ``page`` puts
them into words.
"""
