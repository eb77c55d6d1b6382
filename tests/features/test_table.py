"""The tables of columns: what is read from them, what they refuse, and the page made of them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from foretune.features import ACTION_FEATURE_VERSION, FEATURE_VERSION, action_columns, columns
from foretune.features.actions._columns import TABLE as ACTIONS
from foretune.features.stores._columns import TABLE as STORES
from foretune.features.table import Column, Table
from tests import ROOT

PAGE = ROOT / "docs" / "features.md"
TABLES = {"Stores": STORES, "Actions": ACTIONS}

small = Table(
    {
        "tile": [(f"tile.{axis}", "log2(iterations)", "of axis N") for axis in range(3)],
        "machine": [("machine.threads", "count", "of a kernel")],
    }
)


def page() -> str:
    """The text of the page, with today's tables."""
    text = PAGE.read_text(encoding="utf-8")
    for title, table in TABLES.items():
        head, _, rest = text.partition(f"\n## {title}\n")
        prose, _, rest = rest.partition("\n| ")
        after = rest.partition("\n\n")[2]
        text = f"{head}\n## {title}\n{prose}\n{table.markdown()}" + (f"\n{after}" if after else "")
    return text


def test_the_order_of_columns_is_that_of_the_sections() -> None:
    assert small.names == ("tile.0", "tile.1", "tile.2", "machine.threads")
    assert small.columns[-1] == Column("machine.threads", "count", "of a kernel", "machine")
    assert len(small) == 4 and small.width("tile") == 3
    assert small.names[small.place("machine")] == ("machine.threads",)


def test_sections_are_put_together_in_the_order_of_the_table() -> None:
    tile, machine = np.arange(6.0).reshape(2, 3), np.full((2, 1), 8.0)
    joined = small.join({"machine": machine, "tile": tile})
    np.testing.assert_array_equal(joined, [[0, 1, 2, 8], [3, 4, 5, 8]])
    assert small.join({"tile": tile}).shape == (2, 3)


def test_a_section_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'tile' has 3 columns, but 2 were made"):
        small.join({"tile": np.zeros((5, 2))})


def test_columns_that_differ_by_numbers_are_one_line_for_people() -> None:
    assert small.markdown().splitlines()[2:] == [
        "| tile | `tile.N` | 3 | log2(iterations) | of axis N |",
        "| machine | `machine.threads` | 1 | count | of a kernel |",
    ]


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_every_column_has_a_name_of_its_own_a_unit_and_a_meaning(table: Table) -> None:
    assert len(set(table.names)) == len(table)
    assert all(column.unit and column.meaning for column in table.columns)


@pytest.mark.parametrize(
    ("table", "version", "expected"),
    [
        (STORES, FEATURE_VERSION, (1, "4b56e2f62d89ac04")),
        (ACTIONS, ACTION_FEATURE_VERSION, ("3+2+2", "f61d73a4890f2a7a")),
    ],
    ids=list(TABLES),
)
def test_a_layout_changes_with_its_version(
    table: Table, version: int | str, expected: tuple[int | str, str]
) -> None:
    """Weights are read by version: other columns under the same one would be mistaken."""
    digest = hashlib.blake2b("\n".join(table.names).encode(), digest_size=8).hexdigest()
    assert (version, digest) == expected, "raise the version, then note both here"


def test_rooms_give_the_columns_of_their_tables() -> None:
    assert columns() == STORES.columns
    assert action_columns() == ACTIONS.columns


def test_the_page_has_the_tables_of_today() -> None:
    current = PAGE.read_text(encoding="utf-8") == page()
    assert current, "write it: python -m tests.features.test_table"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
