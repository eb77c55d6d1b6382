"""Strategies: which candidate next?"""

from foretune.search._base import Strategy

__all__ = ["Strategy"]
