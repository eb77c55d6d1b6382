"""What the suites of small networks share: results through the command line, tables, choices."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import _suites

pytestmark = pytest.mark.slow


def _result(outcome: str, message: str = "") -> dict[str, str]:
    return {"outcome": outcome, "message": message}


@pytest.mark.slow
def test_the_program_must_end_as_the_worker_did(tmp_path: Path) -> None:
    """A file that works, one that is refused, and one that is refused though it is said to pass."""
    results = {
        "works": _result("pass"),
        "refused": _result("refused"),
        "worked before": _result("pass"),
    }

    def write(name: str, folder: Path) -> str:
        path = folder / "net.onnx"
        path.write_bytes(b"" if name != "works" else _relu())
        return str(path)

    wrong = _suites.through_command_line(results, results, write)
    assert [line.split(":")[0] for line in wrong] == ["worked before"]
    assert "exit 2 instead of 0" in wrong[0]


def _relu() -> bytes:
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def test_what_is_tried_is_spread_over_what_passed_or_was_refused() -> None:
    results = {str(n): _result("pass" if n % 2 else "refused") for n in range(40)}
    results["41"] = _result("broken")
    tried = _suites.spread(results, 4)
    assert tried == ["0", "10", "20", "30"]
    assert _suites.spread(results, 0) == []


def test_outcomes_are_counted_by_group_and_failures_told_in_a_line() -> None:
    rows = [
        {"name": "add_1", **_result("pass")},
        {"name": "add_2", **_result("refused", "no\n  such thing")},
        {"name": "mul_1", **_result("crash", "exit -11")},
    ]
    shown = _suites.outcome_table("operator", rows, lambda r: r["name"][:3])
    lines = [line.replace(" ", "") for line in shown.splitlines()]
    assert "|add|1|1||||" in lines and "|mul|||||1|" in lines
    assert _suites.told(rows, ["pass"])[0] == "- `add_2`: refused: no such thing"
    assert len(_suites.told(rows, ["pass", "refused"])) == 1
