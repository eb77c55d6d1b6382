"""From a teacher's answers to a tuned local model: see ``teaching``.

``teaching`` has answers written, ``tuning`` tunes on them, ``tiny`` makes a model for tests,
``leakage`` measures what hints give away, ``__main__`` is the command.
"""
