"""What outputs are compared with, where it travels by content."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import pytest

from foretune.hardware import Hardware, preset
from foretune.measure import LocalMeasurer, Status
from foretune.measure._reference import Reference, parts
from foretune.testing import check_measurer
from tests.measure.misbehaviour import BUILDER, Trick, TrickSketch
from tests.measure.policies import OpenPolicy
from tests.measure.programs import matmul


def _reference() -> Reference:
    return Reference(1, Trick(TrickSketch(matmul(16), preset("zen4")), "good"))


def test_content_in_pieces_is_content_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretune.measure._reference._PART_BYTES", 100)
    data = bytes(range(256)) * 3
    file = tmp_path / "content"
    file.write_bytes(data)
    reference = _reference()
    for part in parts(str(file)):
        reference.take({"part": part})
    reference.take({"error": "", "signature": {}, "seconds": 1.0, "as_written": False})
    assert reference.settled and not reference.error
    assert zlib.decompress(reference.packed()) == data
    assert Path(reference.path).read_bytes() == data
    reference.close()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("?", "cannot be kept"),
        (base64.b64encode(b"nothing packed").decode(), "cannot be kept"),
        (base64.b64encode(zlib.compress(bytes(4 << 20))).decode(), "more than the"),
    ],
)
def test_content_that_cannot_be_is_an_error_and_kept_nowhere(part: str, message: str) -> None:
    reference = _reference()
    reference.take({"part": part})
    reference.take({"part": base64.b64encode(zlib.compress(b"more")).decode()})
    reference.take({"error": "", "signature": {}})
    assert message in reference.error
    assert reference.signature is None and reference.file.tell() == 0
    reference.close()


@pytest.mark.machine
@pytest.mark.slow
def test_children_that_share_no_files_keep_the_contract(hardware: Hardware) -> None:
    policy = OpenPolicy(workers=2, budget_s=0.01, max_rereads=0, compare_extra_rounds=0)
    sketch = TrickSketch(matmul(32), hardware)
    tricks = [Trick(sketch, mode) for mode in ("good", "sluggish", "is_off_by_one")]
    check_measurer(lambda: LocalMeasurer(hardware, policy, BUILDER, shares_files=False), tricks)


@pytest.mark.machine
def test_children_that_share_no_files_compare_with_what_they_were_sent(hardware: Hardware) -> None:
    policy = OpenPolicy(workers=2, budget_s=0.01, max_rereads=0, window=2)
    first, second = (TrickSketch(matmul(size), hardware) for size in (32, 24))
    tricks = [
        Trick(sketch, mode, number)
        for sketch in (first, second)
        for mode in ("good", "is_off_by_one")
        for number in range(2)
    ]
    with LocalMeasurer(hardware, policy, BUILDER, shares_files=False) as measurer:
        results = dict(measurer.measure(tricks))
    for trick, result in results.items():
        wanted = Status.OK if trick.mode == "good" else Status.WRONG_OUTPUT
        assert result.status is wanted, (trick, result)
