"""An entry proposed by a language model: checked against the text, and never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.describe import data_sheet
from foretune.describe.data_sheet import CONVERTED, LITERAL, NOT_FOUND, Proposal, propose
from foretune.errors import BadInputError
from foretune.hardware import device, known_devices, read_devices
from foretune.llm import Endpoint, EndpointConfig, Session, SessionConfig
from tests.llm.server import Reply, Script, Server, always, completion, in_turn, refusal
from tests.test_cli import call

SHEET = """
ACME 9000 Processor                     Product brief

# of CPU Cores                          8
# of Threads                            16
Base Clock                              3.6 GHz
Max. Boost Clock                        Up to 4,400 MHz
L1 Cache                                32 KB data per core
L2 Cache                                512 KB per core
L3 Cache                                32 MB
Vector unit: AVX2, two FMA units of 8 lanes each
System memory: two channels, bandwidth 51.2 GB/s
Recommended for 9999 cores of happiness
"""
RIGHT = {
    "name": "ACME 9000",
    "kind": "cpu",
    "cores": 8,
    "threads": "16",
    "base_mhz": 3600,
    "boost_mhz": 4400,
    "simd_fp32_lanes": 8,
    "fp32_flop_per_cycle_per_core": 32,
    "l1d_kib_per_core": 32,
    "l2_kib": 4096,
    "l3_kib": 32768,
    "memory_gb_per_s": 51.2,
    "peak_fp32_gflops": None,
}
GPU_SHEET = """
NVIDIA TESLA K80
Streaming multiprocessors per GPU: 13, each with 192 CUDA cores
Warp size 32 threads, 1024 threads per block
Shared memory per multiprocessor: 112 KB
Memory bandwidth 240 GB/s per GPU
Single-precision performance: 4.368 Teraflops per GPU at boost
"""


def _asked(script: Script, text: str = SHEET, **config: Any) -> Proposal:
    with Server(script) as server:
        model = Endpoint(EndpointConfig("m", server.url))
        session = Session(model, SessionConfig(retries=0, **config))
        try:
            return propose(text, session, "sheet.txt")
        finally:
            session.close()


def _says(entry: Any) -> Script:
    return always(completion(json.dumps(entry)))


def test_figures_are_looked_for_in_the_text() -> None:
    proposal = _asked(_says(RIGHT))
    found = {figure.name: (figure.value, figure.found) for figure in proposal.figures}
    assert found == {
        "cores": (8, LITERAL),
        "threads": (16, LITERAL),
        "base_mhz": (3600, CONVERTED),
        "boost_mhz": (4400, LITERAL),
        "simd_fp32_lanes": (8, LITERAL),
        # Two units of eight lanes, two operations each: the sheet does not say so.
        "fp32_flop_per_cycle_per_core": (32, NOT_FOUND),
        "l1d_kib_per_core": (32, LITERAL),
        "l2_kib": (4096, CONVERTED),
        "l3_kib": (32768, CONVERTED),
        "memory_gb_per_s": (51.2, LITERAL),
    }
    quotes = {figure.name: figure.quote for figure in proposal.figures}
    assert quotes["cores"] == "# of CPU Cores 8"
    assert quotes["l2_kib"] == "L2 Cache 512 KB per core"
    assert quotes["fp32_flop_per_cycle_per_core"] == ""
    assert (proposal.key, proposal.missing, proposal.rejected) == ("acme-9000", (), ())
    assert proposal.known is None and not proposal.cut


def test_a_proposal_is_a_file_of_devices_once_it_is_complete(tmp_path: Path) -> None:
    proposal = _asked(_says(RIGHT))
    path = tmp_path / "proposal.json"
    path.write_text(json.dumps(proposal.to_json()))
    read = read_devices(path)["acme-9000"]
    assert read == proposal.device
    assert read.source == "proposed by m from sheet.txt, to be reviewed"
    assert read.note == "not in the text: fp32_flop_per_cycle_per_core"
    assert "acme-9000" not in known_devices()
    lacking = _asked(_says({**RIGHT, "cores": None}))
    assert (lacking.missing, lacking.device) == (("cores",), None)
    path.write_text(json.dumps(lacking.to_json()))
    with pytest.raises(BadInputError, match="lacks the factor 'cores'"):
        read_devices(path)


def test_a_gpu_is_compared_with_the_table() -> None:
    answer = {
        "name": "NVIDIA Tesla K80",
        "kind": "gpu",
        "units": 13,
        "fp32_lanes": 2496,
        "warp": 32,
        "max_threads_per_block": 1024,
        "shared_kib_per_unit": 112,
        "memory_gb_per_s": 240,
        "peak_fp32_gflops": 4368,
        "boost_mhz": 875,
    }
    proposal = _asked(_says(answer), GPU_SHEET)
    found = {figure.name: figure.found for figure in proposal.figures}
    assert found.pop("fp32_lanes") == found.pop("peak_fp32_gflops") == CONVERTED
    assert found.pop("boost_mhz") == NOT_FOUND, "from the model's memory"
    assert set(found.values()) == {LITERAL}
    assert proposal.known == device("k80")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"cores": 0}, "outside of 1 to 1024"),
        ({"cores": 1e300}, "outside of"),
        ({"cores": True}, "no number"),
        ({"cores": "eight"}, "no number"),
        ({"cores": [8]}, "no number"),
        ({"warp": 32}, "not in the schema"),
        ({"price": 329}, "not in the schema"),
    ],
)
def test_what_cannot_be_is_rejected_by_name(given: dict[str, Any], reason: str) -> None:
    proposal = _asked(_says({**RIGHT, **given}))
    ((name, told),) = proposal.rejected
    assert name == next(iter(given)) and reason in told
    assert ("cores" in proposal.missing) == ("cores" in given)


def test_an_answer_may_have_words_around_it_and_no_kind() -> None:
    entry = {name: value for name, value in RIGHT.items() if name != "kind"}
    text = f"Sure {{smile}}!\n```json\n{json.dumps(entry)}\n```\nAnything else? {{}}"
    assert _asked(always(completion(text))).kind == "cpu"


def test_nonsense_is_answered_by_one_more_question() -> None:
    nonsense = completion("I love processors.")
    requests: list[Any] = []

    def script(request: Any, number: int) -> Reply:
        requests.append(request)
        return in_turn(nonsense, completion(json.dumps(RIGHT)))(request, number)

    assert _asked(script).device is not None
    first, second = requests
    assert SHEET in first["messages"][1]["content"]
    assert "no JSON object" in second["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (completion("I love processors."), "no JSON object"),
        (completion('{"name": "x"}'), "does not say its kind"),
        (completion('{"kind": "tpu", "cores": 4, "warp": 2}'), "does not say its kind"),
        (completion('{"kind": "cpu", "colour": "red"}'), "holds no factor of a cpu"),
        (completion("[" * 5000), "no JSON object"),
        (completion('{"a": ' * 5000), "no JSON object"),
        (completion(""), "no JSON object|gave no answer"),
        (refusal(401, "wrong key"), "gave no answer"),
        (Reply(b"<html>"), "gave no answer"),
        (Reply(wait_s=30.0), "gave no answer"),
    ],
)
def test_a_model_that_is_of_no_use_is_a_clear_error(reply: Reply, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        _asked(always(reply), timeout_s=0.5)


def test_a_model_that_is_absent_is_a_clear_error() -> None:
    session = Session(
        Endpoint(EndpointConfig("m", "http://127.0.0.1:9/v1")),
        SessionConfig(retries=0, timeout_s=2.0),
    )
    with pytest.raises(BadInputError, match="language model m gave no answer"):
        propose(SHEET, session)
    session.close()


def test_a_text_that_is_empty_or_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInputError, match=r"sheet\.txt holds no text"):
        _asked(_says(RIGHT), "\n \n")
    monkeypatch.setattr(data_sheet, "_LONGEST_SHEET", len(SHEET))
    assert _asked(_says(RIGHT), SHEET + "more").cut


@settings(deadline=None, max_examples=200)
@given(
    answer=st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*RIGHT, "warp", "x"]), inner, max_size=6)
        ),
        max_leaves=12,
    ),
    around=st.text(max_size=10),
)
def test_no_answer_breaks_it(answer: Any, around: str) -> None:
    try:
        entry = data_sheet._read(around + json.dumps(answer) + around)
    except ValueError:
        return
    proposal = data_sheet._proposal(entry, SHEET, "a test")
    assert proposal.to_json()
    if proposal.device is not None:
        assert set(proposal.device.factors) == {figure.name for figure in proposal.figures}


def test_the_command_prints_a_proposal_and_writes_it_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet, output = tmp_path / "sheet.txt", tmp_path / "proposal.json"
    sheet.write_text(SHEET)
    with Server(_says({**RIGHT, "price": 5})) as server:
        code, out, err = call(
            capsys, "hardware", "--extract", str(sheet), "--llm", f"m@{server.url}",
            "-o", str(output),
        )  # fmt: skip
    assert code == 0, err
    assert "acme-9000: ACME 9000 (cpu)" in out
    (line,) = [line for line in out.splitlines() if "boost_mhz" in line]
    assert line.split()[:4] == ["boost_mhz", "4,400", "MHz", "literal"]
    assert "Up to 4,400 MHz" in line
    assert "rejected: 'price': not in the schema" in out
    assert read_devices(output)["acme-9000"].factors["cores"] == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--extract SHEET", "name one with --llm"),
        ("--llm m@http://127.0.0.1:9/v1", "for --extract"),
        ("-o OUT", "for --extract"),
        ("--extract SHEET --llm m@http://127.0.0.1:9/v1 --threads 2", "no use of --threads"),
        ("--extract SHEET --llm m@http://127.0.0.1:9/v1 --devices", "no use of --devices"),
        ("--extract SHEET --llm m@http://127.0.0.1:9/v1 -o SHEET", "would overwrite"),
        ("--extract OUT --llm m@http://127.0.0.1:9/v1", "cannot be read as text"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sheet.txt").write_text(SHEET)
    places = {"SHEET": tmp_path / "sheet.txt", "OUT": tmp_path / "out.json"}
    for name, place in places.items():
        words = words.replace(name, str(place))
    code, _out, err = call(capsys, "hardware", *words.split())
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
