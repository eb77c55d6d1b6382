"""TGraph as it was published, its ablations, and its attention over schedules of one program.

``config`` has the switches, ``losses`` and ``training`` the training; ``ranker`` with ``sets``
ranks schedules.
"""
