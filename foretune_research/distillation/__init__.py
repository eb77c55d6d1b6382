"""From a teacher's answers to a tuned local model: see ``teaching``."""
