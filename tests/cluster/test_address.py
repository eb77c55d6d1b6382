"""What ``--cluster`` takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.cli import main
from foretune.cluster import ClusterAddress, parse_cluster
from foretune.errors import BadInputError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ray://head:10001", ClusterAddress("head", 10001)),
        ("ray://[fd00::1]:10001", ClusterAddress("fd00::1", 10001)),
        ("local", ClusterAddress()),
        ("local:3", ClusterAddress(workers=3)),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, address: ClusterAddress) -> None:
    assert parse_cluster(text) == address
    assert str(address) == text
    assert address.local == text.startswith("local")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a cluster reads"),
        ("head:10001", "a cluster reads"),
        ("http://head:10001", "a cluster reads"),
        ("ray://head", "the port is missing"),
        ("ray://head:port", "a cluster reads"),
        ("ray://head:70000", "a cluster reads"),
        ("ray://head:1/path", "a cluster reads"),
        ("local:", "1 <= N <= 1024"),
        ("local:0", "1 <= N <= 1024"),
        ("local:-1", "1 <= N <= 1024"),
        ("local:²", "1 <= N <= 1024"),
    ],
)
def test_what_is_no_address_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadInputError, match=told):
        parse_cluster(text)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(BadInputError) as caught:
        parse_cluster("ray://user:secret@head:10001")
    assert "secret" not in str(caught.value) and "RAY_AUTH_TOKEN_PATH" in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = parse_cluster(text)
    except BadInputError:
        return
    assert parse_cluster(str(address)) == address


@pytest.mark.parametrize(
    "command",
    [
        "tune matmul_512",
        "collect --work-dir DIR",
        "eval gbdt --data DIR",
        "bench --workloads matmul_512 --strategies random --trials 1 --json F.json",
    ],
)
def test_the_command_line_refuses_it_in_a_line(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--cluster", "ray://head"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "the port is missing" in told
