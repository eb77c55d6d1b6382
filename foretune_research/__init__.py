"""What studies of foretune need, and tuning does not: controls, replays, distillation.

A package of its own beside ``foretune``, which never imports it. ``make setup`` installs both. The
studies that use it are in ``benchmarks``; docs/results has what they found.

Modules: ``tables`` and ``replay`` search tables of measured programs (Kernel Tuner's way to compare
strategies); ``recall`` says how many of the fast programs a ranker keeps; ``transitions`` judges
predicted states; ``rollouts``, ``climbs`` and ``names`` are tree search, gradient search and what a
language model proposes with the switches of their papers; ``distillation`` makes a small language
model from a teacher's answers. ``neural``, ``trees``, ``behaviour``, ``world``, ``tgraph`` and
``hf`` have rankers as published and with a switch for each part, ``neural_training`` trainers of
networks; ``logs`` rebuilds programs that others logged. ``plugin`` lists the names that all these
add to foretune.
"""
