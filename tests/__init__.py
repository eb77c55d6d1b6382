"""Tests of foretune; a room of tests for each room of the package."""

from pathlib import Path

#: the checkout, wherever a test stands in it
ROOT = Path(__file__).resolve().parents[1]
