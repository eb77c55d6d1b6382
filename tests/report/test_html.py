"""The page: complete, self-contained, and safe with whatever a model's names hold."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from foretune.errors import BadInputError, MissingDependencyError, RecordError
from foretune.hardware import Hardware, device
from foretune.report import html, write_report
from foretune.tuning import Budget, TuneResult, tune
from foretune.tuning.network import Network
from foretune.workload import Workload
from tests.report.support import llm, network, result, scores, task, trial

HOSTILE = (
    '</style><script>alert("x")</script><img src=x onerror=alert(1)> & $\\frac{a}{b}$ {{ 7*7 }}'
)
_VOID = {"meta", "link", "img", "br", "input", "hr", "base", "source"}


class Page(HTMLParser):
    """Reads a page: its tags, its texts, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All text, spaces collapsed."""
        return " ".join(" ".join(self.texts).split())

    def count(self, tag: str) -> int:
        """How many elements of a kind there are."""
        return sum(name == tag for name, _ in self.tags)


def _page(tmp_path: Path, data: dict[str, Any]) -> Page:
    path = tmp_path / "report.html"
    write_report(data, path)
    return Page(path.read_text(encoding="utf-8"))


def test_the_page_tells_the_run(tmp_path: Path) -> None:
    page = _page(tmp_path, result(task("conv"), task("dense", trials=3)))
    for part in (
        "net.onnx",
        "8.00× faster",
        "16.0 ms",
        "15 trials in 1 min 40 s",
        "evolutionary search, gbdt cost model",
        "Some CPU, 2 threads",
        "building candidates 50.0 s, 50.0 %",
        "other, and earlier runs 15.0 s, 15.0 %",
        "Left untuned: resize2d",
        "foretune tune net.onnx --trials 64",
        "policy repeats",
        "2 timeout",
    ):
        assert part in page.text


def test_the_page_tells_the_network_beside_the_original(tmp_path: Path) -> None:
    page = _page(tmp_path, {**result(task("conv")), "network": network(), "proof_s": 12.0})
    for part in (
        "32.0 ms a call",
        "original (ONNX Runtime) 40.0 ms, 1.25× its speed",
        "default schedules 640 ms",
        "equal to the original within 3e-06 on 8 inputs",
        "proving the network 12.0 s",
    ):
        assert part in page.text
    assert "4.00× faster" not in page.text
    slow = _page(tmp_path, {**result(task("conv")), "network": network(tuned_s=50e-3)})
    assert "50.0 ms slower than the original" in slow.text


def test_every_task_has_its_row_its_charts_and_its_choice(tmp_path: Path) -> None:
    names = [f"task {index}" for index in range(3)]
    page = _page(tmp_path, result(*map(task, names)))
    assert page.count("svg") == 9
    assert page.count("option") == 3
    rows = [
        attrs["data-value"] for tag, attrs in page.tags if tag == "th" and "data-value" in attrs
    ]
    assert rows == names


def test_nothing_is_fetched(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(result(task()), path)
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"https?:|//[a-z]|url\((?!#)|@import|javascript:", text)
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    references = [
        value
        for _, attrs in page.tags
        for name, value in attrs.items()
        if name in ("src", "href", "xlink:href", "action")
    ]
    assert all(value is not None and value.startswith("#") for value in references)


def test_marks_that_charts_refer_to_exist_once(tmp_path: Path) -> None:
    page = _page(tmp_path, result(task("a"), task("b")))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = {attrs["xlink:href"] for _, attrs in page.tags if "xlink:href" in attrs}
    assert used
    assert {str(reference)[1:] for reference in used} <= set(ids)


def test_hostile_names_are_only_text(tmp_path: Path) -> None:
    data = result(
        task(HOSTILE),
        input=HOSTILE,
        command=HOSTILE,
        untuned_operators=[HOSTILE],
        environment={HOSTILE: HOSTILE},
        strategy=HOSTILE,
    )
    page = _page(tmp_path, data)
    assert page.count("script") == 1
    assert page.count("style") == 1
    assert page.count("img") == 0
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert page.text.count("$\\frac{a}{b}$ {{ 7*7 }}") >= 6


def test_the_page_tells_what_was_reused(tmp_path: Path) -> None:
    tasks = [{"enough": True, "best": True}, {"enough": False, "best": False}]
    known = {"store": "<b>s.jsonl", "tasks": tasks}
    text = _page(tmp_path, result(task(trials=0), reused=known)).text
    assert "reused from <b>s.jsonl: 1 of 2 tasks needed no trial" in text


def test_an_unfinished_run_has_a_page(tmp_path: Path) -> None:
    begun = task("begun", trials=0)
    failing = task("failing", trials=0)
    failing.update(
        untuned_s=None, default_s=None, trials=[trial(i, "crash", None) for i in range(4)]
    )
    once = task("once", trials=1, untuned_s=None, default_s=None, peak_share=None)
    data = result(begun, failing, once, tuned_s=None, interrupted=True, command="")
    page = _page(tmp_path, data)
    assert "no end-to-end speed-up" in page.text
    assert "faster" not in page.text
    assert "interrupted" in page.text
    assert "No trial yet." in page.text
    assert "4 crash" in page.text


def test_a_run_that_python_started_shows_how_python_does_it_again(tmp_path: Path) -> None:
    text = _page(tmp_path, result(task(trials=9), task("other", trials=3), command="")).text
    assert "started from Python" in text
    written = re.search(r"foretune\.tune\(.*?,\s*\)", text)
    assert written is not None
    call = ast.parse(written[0], mode="eval").body
    assert isinstance(call, ast.Call)
    assert {word.arg: ast.literal_eval(word.value) for word in call.keywords} == {
        "target": '{"kind": "llvm"}',
        "threads": 2,
        "strategy": "evolutionary",
        "cost_model": "gbdt",
        "trials": 12,
        "seed": 7,
    }


def test_the_call_that_is_shown_has_every_argument_that_matters(tmp_path: Path) -> None:
    """What was passed to ``foretune.tune`` comes back from the page, word by word."""
    given: dict[str, Any] = {
        "strategy": "mcts",
        "cost_model": "random",
        "time_s": 7.5,
        "patience": 9,
        "batch": 3,
        "seed": 4,
        "options": {"branching": 3, "proposer": "random", "depth": 2},
        "without": ("layouts", "vector-math"),
        "plan": {"algorithms": {"conv2d 1x8x8x4, 3x3x4x4": "winograd2"}},
        "learn_from": ("earlier/run",),
    }
    sheet = device("ryzen-3700x")
    hardware = Hardware("test", '{"kind": "llvm", "mcpu": "x86-64-v3"}', threads=2, device=sheet)
    budget = Budget(seconds=given["time_s"], patience=given["patience"])
    told = TuneResult(
        source=Workload("mm", "0" * 16, "{}", 1e6),
        hardware=hardware,
        tasks=(),
        elapsed_s=1.0,
        spent_s={},
        budget=budget,
        llm={"model": "m", "left_out": None},
        network=Network(plan=given["plan"]),
        **{
            name: value
            for name, value in given.items()
            if name not in ("time_s", "patience", "plan")
        },
    ).to_json()
    call = ast.parse(html._call(json.loads(json.dumps(told)), told["hardware"]), mode="eval").body
    assert isinstance(call, ast.Call)
    shown = {word.arg: ast.unparse(word.value) for word in call.keywords}
    assert (shown.pop("llm"), shown.pop("devices")) == ("llm", "devices")
    values = {name: ast.literal_eval(text) for name, text in shown.items()}
    assert values == {**given, "target": hardware.target, "threads": 2}
    # Where results are kept, who is told and who measures changes nothing of what is found.
    apart = {"what", "work_dir", "fresh", "measurer", "policy", "progress", "command", "trials"}
    # What is shown starts from nothing, with the plan that was found.
    apart |= {"output", "store", "plan_trials", "plan_model", "remote", "cluster"}
    known = set(inspect.signature(tune).parameters)
    assert known - apart == {*values, "llm", "devices"}


def test_the_page_tells_what_the_language_model_cost(tmp_path: Path) -> None:
    page = _page(tmp_path, result(task(), llm=llm(model=HOSTILE, left_out=HOSTILE)))
    for part in ("Language model", "12, 9 answers", "9000 read, 700 written", "41.5 s", "$0.0123",
                 "25 % better than their parent", "left out"):  # fmt: skip
        assert part in page.text
    assert page.count("script") == 1 and page.count("img") == 0
    assert "Language model" not in _page(tmp_path, result(task())).text


def test_the_page_tells_what_became_of_scores(tmp_path: Path) -> None:
    asked = llm(proposals=0, invalid=0, hit_rate=None, scores=scores(clipped=5))
    page = _page(tmp_path, result(task(), llm=asked))
    assert "36 of 128 programs scored by formulas instead" in page.text
    assert "5 clipped" in page.text and "better than their parent" not in page.text


def test_a_run_without_tasks_or_time_has_a_page(tmp_path: Path) -> None:
    data = result(elapsed_s=0.0, build_s=0.0, search_s=0.0, measure_s=0.0, untuned_s=None)
    assert "The model has no task." in _page(tmp_path, data).text


def test_fields_that_may_be_missing_may_be_missing(tmp_path: Path) -> None:
    plain = task()
    for name in ("best_gflops", "peak_share", "default_s"):
        del plain[name]
    data = result(plain)
    for name in ("untuned_operators", "interrupted", "environment", "command"):
        del data[name]
    assert "matmul" in _page(tmp_path, data).text


def test_very_many_trials_stay_a_page_of_moderate_size(tmp_path: Path) -> None:
    write_report(result(task(trials=5000)), tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


@pytest.mark.parametrize(
    "data", [{}, [], {"schema": "foretune.bench/1"}, {"schema": "foretune.tune/1", "tasks": []}]
)
def test_other_objects_are_bad_input(tmp_path: Path, data: Any) -> None:
    with pytest.raises(BadInputError, match="run `foretune tune` again"):
        write_report(data, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="choose another place"):
        write_report(result(), tmp_path / "missing" / "report.html")


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_a_missing_package_is_an_install_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == package:
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=f"pip install {package}"):
        write_report(result(task()), tmp_path / "report.html")
