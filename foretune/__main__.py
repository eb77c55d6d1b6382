"""``python -m foretune``: the same as the program ``foretune``."""

from foretune.cli import entry

if __name__ == "__main__":
    entry()
