"""Every store keeps the contract of ``foretune.testing.stores``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from foretune.records import BoundedStore, Journal, Store
from foretune.testing import stores


@pytest.mark.parametrize("check", stores.CHECKS)
@pytest.mark.parametrize("kind", [Journal, BoundedStore])
def test_a_file_is_a_store(
    kind: Callable[[Path], Store],
    check: Callable[[stores.StoreFactory], None],
    tmp_path: Path,
) -> None:
    check(lambda: kind(tmp_path / "journal.jsonl"))
