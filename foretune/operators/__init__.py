"""Operators that TVM's importers lack or compute wrongly, lowered here for all importers.

One file per family. A function takes a Relax block builder and Relax expressions of static shapes,
and returns a Relax expression; each has its test against the runtime whose operator it is.
"""
