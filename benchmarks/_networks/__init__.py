"""Whole networks: what ``benchmarks.networks`` runs, and what its page says.

``runs`` calls the command line and keeps what it wrote, ``budget`` looks how long a call takes
before anything is tuned, ``passes`` tunes again with one pass off, ``kernels`` compares each kernel
with the machine's peak. ``figures`` makes ratios of readings, ``page`` puts them into words.
"""
