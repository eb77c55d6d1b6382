"""Tables of columns: what a feature is called, what it counts, what it means.

A table is the only place that knows a room's columns: names, numbers, order and documentation are
read from it, and values are put together by it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from foretune._arrays import FloatArray

Row = tuple[str, str, str]
"""Name, unit and meaning of a column."""


@dataclass(frozen=True)
class Column:
    """One feature.

    Attributes:
        name: Group and quantity, for example ``"access0.bytes"``.
        unit: What is counted, as ``"log2(1 + bytes)"``, or ``"flag"`` for 0 and 1.
        meaning: What it says, in a few words.
        section: The part of the table that it belongs to.
    """

    name: str
    unit: str
    meaning: str
    section: str


class Table:
    """Columns in order, in sections.

    Args:
        sections: Name of each section -> name, unit and meaning of its columns.

    Attributes:
        columns: All columns.
        names: Their names.
    """

    def __init__(self, sections: Mapping[str, Iterable[Row]]) -> None:
        self.columns = tuple(
            Column(*row, section) for section, rows in sections.items() for row in rows
        )
        self.names = tuple(column.name for column in self.columns)
        self._widths = Counter(column.section for column in self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def width(self, section: str) -> int:
        """Number of columns of a section."""
        return self._widths[section]

    def place(self, section: str) -> slice:
        """Where the columns of a section are."""
        before = itertools.takewhile(lambda other: other != section, self._widths)
        start = sum(map(self.width, before))
        return slice(start, start + self.width(section))

    def join(self, values: Mapping[str, FloatArray]) -> FloatArray:
        """Sections beside each other.

        Args:
            values: Of the first sections of the table, in any order, each of shape (n, width).

        Returns:
            Shape (n, width of all of them).

        Raises:
            ValueError: A section has another number of columns than the table says.
        """
        for section, columns in values.items():
            if columns.shape[1] != self.width(section):
                raise ValueError(
                    f"section {section!r} has {self.width(section)} columns, but "
                    f"{columns.shape[1]} were made: change the table and its version"
                )
        first = itertools.islice(self._widths, len(values))
        return np.concatenate([values[section] for section in first], axis=1)

    def markdown(self) -> str:
        """The table for people: columns of one unit and meaning are one line, numbers are N."""
        lines = ["| section | columns | number | unit | meaning |", "|---|---|---|---|---|"]
        groups: dict[tuple[str, str, str], list[str]] = {}
        for column in self.columns:
            key = column.section, column.unit.replace("|", "\\|"), column.meaning
            groups.setdefault(key, []).append(re.sub(r"\d+", "N", column.name))
        for (section, unit, meaning), names in groups.items():
            distinct = ", ".join(f"`{name}`" for name in dict.fromkeys(names))
            lines.append(f"| {section} | {distinct} | {len(names)} | {unit} | {meaning} |")
        return "\n".join(lines) + "\n"
