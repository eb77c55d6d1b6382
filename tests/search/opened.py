"""Strategies whose constants are options, so that tests can have small ones, or none of a part."""

from __future__ import annotations

from dataclasses import make_dataclass

from foretune._options import constants


def opened(strategy):
    """A strategy like another one, with the class variables of its configuration as options."""
    config = strategy.config_type
    fields = [(name, type(value), value) for name, value in constants(config).items()]
    made = make_dataclass(f"Opened{config.__name__}", fields, bases=(config,), frozen=True)
    return type(f"Opened{strategy.__name__}", (strategy,), {"config_type": made})
