"""Every store keeps the contract of ``foretune.testing.stores``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from foretune.records import Journal
from foretune.testing import stores


@pytest.mark.parametrize("check", stores.CHECKS)
def test_a_journal_is_a_store(check: Callable[[stores.StoreFactory], None], tmp_path: Path) -> None:
    check(lambda: Journal(tmp_path / "journal.jsonl"))
