"""A language model as the proposer: what it is told, what of its answers counts, what may fail."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
from dataclasses import replace

import numpy as np
import pytest

from foretune.cli import main
from foretune.errors import BadInputError, IllegalCandidateError
from foretune.hardware import Hardware
from foretune.llm import (
    Answer,
    Endpoint,
    EndpointConfig,
    LanguageModel,
    LlmError,
    LocalModel,
    Session,
    SessionConfig,
    _session,
    open_session,
)
from foretune.search import proposers
from foretune.search._tree import Node
from foretune.search.portfolio import Portfolio
from foretune.search.proposers import Situation, Variant
from foretune.search.proposers._answers import read
from foretune.search.proposers._prompts import difference, loops, messages, shown
from foretune.space import PerfectTile, Space
from foretune.tuning import Task, tune
from tests.llm.server import KEY, Reply, Server, always, completion, refusal, wait_for
from tests.space.programs import gpu
from tests.space.programs import space as space_of
from tests.tuning.support import FormulaMeasurer, matmul, ok

CPU = Hardware(
    "test", '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}', 2, simd_bits=256,
    l1_bytes=32768, l2_bytes=1 << 20, l3_bytes=1 << 25,
)  # fmt: skip
GOOD = (
    '{"reasoning": "r", "proposals": [{"v0": [8, 4, 1, 2]}, {"v1": [2, 2, 1, 16], "v2": [8, 8]}]}'
)


@pytest.fixture(scope="module")
def space():
    return Space.generate(matmul(64), CPU)


@pytest.fixture(scope="module")
def program(space):
    sketch = next(s for s in space.sketches if len(s.variables) == 6)
    return sketch.candidate([(4, 4, 1, 4), (4, 1, 1, 16), (16, 4), 3, 3, 1])


def reading(text, program, space, alternatives=4, seed=0):
    return read(text, program, space, np.random.default_rng(seed), alternatives=alternatives)


class TestAnswers:
    def test_concrete_decisions(self, program, space):
        found = reading(GOOD, program, space)
        assert [edit.decisions[:3] for edit in found.edits] == [
            ((8, 4, 1, 2), (4, 1, 1, 16), (16, 4)),
            ((4, 4, 1, 4), (2, 2, 1, 16), (8, 8)),
        ]
        assert not found.corrections and not found.dropped

    def test_values_stand_for_choices(self, program, space):
        values = program.sketch.variables[5].values
        found = reading(json.dumps({"proposals": [{"v5": values[2]}]}), program, space)
        assert found.edits[0].decisions == (*program.decisions[:5], 2)

    def test_prose_fences_and_thoughts_around_the_object(self, program, space):
        text = f'<think>{{"proposals": [{{"v0": [0]}}]}}</think>Sure:\n```json\n{GOOD}\n``` Bye {{'
        assert len(reading(text, program, space).edits) == 2

    @pytest.mark.parametrize(
        "text, told",
        [
            ("", "no JSON object"),
            ("I would tile more.", "no JSON object"),
            ('{"proposals": [{"v0": [8, 4, 1, 2]},]}', "trailing commas"),
            (GOOD[:40], "no JSON object"),
            ('{"answer": 1}', "no JSON object"),
            ('{"proposals": []}', "no list"),
            ('{"proposals": {"v0": [8, 4, 1, 2]}}', "no list"),
            ('{"proposals": ["v0"]}', "is an object of identifiers"),
            ('{"proposals": [{}]}', "a proposal is empty"),
            ('{"proposals": [{"v0": [0, 4, 4, 4]}]}', "factors are at least 1"),
            ('{"proposals": [{"v0": [8, 8, 1, 2]}]}', "multiply to the extent 64"),
            ('{"proposals": [{"v0": [-8, -8, 1, 1]}]}', "factors are at least 1"),
            ('{"proposals": [{"v0": [64]}]}', "has 4 factors"),
            ('{"proposals": [{"v0": [8.0, 8, 1, 1]}]}', "factors are integers"),
            ('{"proposals": [{"v0": [true, 64, 1, 1]}]}', "factors are integers"),
            ('{"proposals": [{"v0": "8,8,1,1"}]}', "a list of factors"),
            ('{"proposals": [{"v0": null}]}', "a list of factors"),
            ('{"proposals": [{"v0": [1e999, 1, 1, 1]}]}', "factors are integers"),
            ('{"proposals": [{"v5": 17}]}', "is one of"),
            ('{"proposals": [{"v5": true}]}', "is one of"),
            ('{"proposals": [{"v9": 1}]}', "no identifier"),
            ('{"proposals": [{"decisions; rm -rf /": 1}]}', "no identifier"),
            ('{"proposals": [{"v0": [4, 4, 1, 4]}]}', "changes nothing"),
            ('{"proposals": [{"v0": [' + "9" * 5000 + ", 1, 1, 1]}]}", ""),
            (
                '{"proposals": [{"v0": [' + ", ".join(["9" * 4000] * 4) + "]}]}",
                "multiply to the extent 64",
            ),
            ("\n" * (1 << 16), "no JSON object"),
            ("-\n" * (1 << 15), "no JSON object"),
            ("-" * (1 << 16), "no JSON object"),
            ("{" * 5000, "no JSON object"),
            ('{"proposals": ' + "[" * 5000, "no JSON object"),
        ],
    )
    def test_what_cannot_be_used_is_dropped_and_told(self, program, space, text, told):
        found = reading(text, program, space)
        assert not found.edits and found.dropped
        assert any(told in line for line in found.corrections), found.corrections

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("unit", ["\n", "-\n", "-", "<think>", "{"])
    def test_garbage_is_read_in_linear_time(self, program, space, unit):
        text = unit * ((1 << 16) // len(unit))
        assert not reading(text, program, space).edits

    def test_a_thought_that_the_template_opened_is_no_answer(self, program, space):
        text = '{"proposals": [{"v0": [1, 64, 1, 1]}]} or rather </think>' + GOOD
        assert len(reading(text, program, space).edits) == 2

    @pytest.mark.parametrize("opened", ["<think>", ""])
    def test_a_thought_may_be_longer_than_an_answer(self, program, space, opened):
        text = opened + "Or rather... " * (1 << 13) + "</think>" + GOOD
        assert len(reading(text, program, space).edits) == 2

    def test_the_legal_part_of_a_proposal_is_used(self, program, space):
        text = '{"proposals": [{"v0": [0, 1, 1, 1], "v1": [2, 2, 1, 16], "v77": 1}]}'
        found = reading(text, program, space)
        assert [edit.decisions[1] for edit in found.edits] == [(2, 2, 1, 16)]
        assert found.edits[0].decisions[0] == program.decisions[0] and found.dropped == 2

    def test_unknown_names_leave_no_known_one_out(self, program, space):
        unknown = {f"x{i}": 1 for i in range(20)}
        text = json.dumps({"proposals": [{**unknown, "v1": [2, 2, 1, 16], "v2": [8, 8]}]})
        found = reading(text, program, space)
        assert [edit.decisions[1:3] for edit in found.edits] == [((2, 2, 1, 16), (8, 8))]
        assert found.dropped == 20

    def test_one_unknown_name_leaves_no_location_out(self):
        there, rng = space_of("conv2d_nhwc"), np.random.default_rng(0)
        program = next(c for c in there.sample(rng, 200) if c.sketch.location_order)
        known = {
            f"v{i}": shown(variable, program.decisions[i])
            for i, variable in enumerate(program.sketch.variables)
        }
        # One more than there are variables; the last location has a value that is none.
        last = f"v{program.sketch.location_order[-1]}"
        text = json.dumps({"proposals": [{"x": 1, **known, last: "nowhere"}]})
        found = reading(text, program, there)
        assert any(line.startswith(f"{last}: ") for line in found.corrections)

    def test_so_many_proposals_and_no_more(self, program, space):
        tiles = [[a, 64 // a, 1, 1] for a in (1, 2, 4, 8, 16, 32, 64)]
        text = json.dumps({"proposals": [{"v0": tile} for tile in tiles]})
        found = reading(text, program, space, alternatives=3)
        assert len(found.edits) == 3 and "give 3 at most" in found.corrections[0]

    def test_corrections_are_short_single_lines(self, program, space):
        text = json.dumps({"proposals": [{f"x\n\x1b{i}" + "y" * 999: 1} for i in range(50)]})
        found = reading(text, program, space, alternatives=50)
        assert len(found.corrections) <= 6
        assert all(len(line) <= 240 and line.isprintable() for line in found.corrections)


class TestPrompts:
    def situation(self, space, program):
        rng = np.random.default_rng(0)
        line = [program]
        for _ in range(4):
            line.append(space.mutate(line[-1], rng))
        *ancestors, child = line
        variants = [Variant(c, float(i), 1e-3 * i or None) for i, c in enumerate(ancestors)]
        return Situation(Variant(child, 2.5), 4, tuple(reversed(variants)), variants[1])

    def text(self, situation, **options):
        given = {"history": 2, "style": "diff", "alternatives": 4, **options}
        return "\n".join(m["content"] for m in messages(situation, **given))

    def test_the_diff_style_says_what_matters(self, space, program):
        situation = self.situation(space, program)
        text = self.text(situation, corrections=["v0: factors are at least 1"])
        assert "256 bit vectors" in text and "L1 cache 32 KiB" in text
        assert "Current: predicted 2.50" in text and "measured 3 ms" in text
        assert "v0: tile of C.i, extent 64, 4 factors" in text
        for line in loops(situation.program.candidate):
            assert line in text
        parent = situation.ancestors[0].candidate
        assert difference(parent, situation.program.candidate) in text
        assert "Best so far" in text and "- v0: factors are at least 1" in text
        assert len(text) < 5000

    @pytest.mark.parametrize("history", [0, 1, 2, 3])
    @pytest.mark.parametrize("style", ["diff", "full"])
    def test_so_many_ancestors_are_shown(self, space, program, history, style):
        text = self.text(self.situation(space, program), history=history, style=style)
        assert text.count("what came of it changed") == history
        if style == "full":
            assert text.count("T.prim_func") == 1 + history

    def test_the_same_situation_gives_the_same_prompt(self, space, program):
        assert self.text(self.situation(space, program)) == self.text(
            self.situation(space, program)
        )


class Scripted(LanguageModel):
    """Answers by the number of the question."""

    name = "scripted"

    def __init__(self, answer):
        self.answer = answer
        self.prompts = []
        self._lock = threading.Lock()

    def complete(self, messages, seconds):
        with self._lock:
            number = len(self.prompts)
            self.prompts.append(messages[-1]["content"])
        return Answer(self.answer(number))


def run(session, rounds=3, batch=4, seed=0, **options):
    """Keys in the order proposed."""
    task = Task(
        matmul(64), CPU, strategy="mcts", cost_model="gbdt:scratch", seed=seed,
        options={"llm": session, "proposer": "llm", "asked": 2, "expansions": 2, **options},
    )  # fmt: skip
    keys = []
    for _ in range(rounds):
        asked = task.ask(batch)
        keys += [c.key for c in asked]
        task.tell([(c, ok(c)) for c in asked])
    return keys


def test_the_same_seed_and_answers_give_the_same_candidates():
    def once():
        with Session(Scripted(lambda i: GOOD), SessionConfig(concurrency=1)) as session:
            return run(session)

    first = once()
    assert first == once()
    assert len(set(first)) == len(first) == 12


def test_answers_become_children_and_are_counted():
    with Session(Scripted(lambda i: GOOD)) as session:
        run(session, rounds=4)
        usage = session.usage
    assert usage.proposals > 0 and usage.judged > 0 and usage.invalid == 0
    assert 0 <= usage.hits <= usage.judged


def test_options_of_prompts_reach_the_model():
    asked = {}
    for style, history in (("diff", 2), ("full", 0)):
        model = Scripted(lambda i: GOOD)
        with Session(model) as session:
            run(session, rounds=4, style=style, history=history)
        asked[style] = "\n".join(model.prompts)
    assert "what came of it changed" in asked["diff"] and "T.prim_func" not in asked["diff"]
    assert "what came of it changed" not in asked["full"] and "T.prim_func" in asked["full"]


@pytest.mark.slow
def test_evolution_counts_hits_too():
    with Session(Scripted(lambda i: GOOD)) as session:
        task = Task(matmul(64), CPU, strategy="evolutionary:llm", options={"llm": session})
        for _ in range(3):
            task.tell([(c, ok(c)) for c in task.ask(6)])
    assert session.usage.proposals > 0 and session.usage.judged > 0


@pytest.mark.slow
def test_evolution_asks_about_a_program_once():
    model = Scripted(lambda i: GOOD)
    with Session(model) as session:
        task = Task(
            matmul(64), CPU, strategy="evolutionary:llm", options={"llm": session, "asked": 2}
        )
        for slower in range(6):
            # Nothing gets faster: the fastest programs stay the same.
            asked = task.ask(6)
            task.tell([(c, replace(ok(c), seconds=(1e-3 + 1e-3 * slower,) * 3)) for c in asked])
    assert len(model.prompts) == len(set(model.prompts)) >= 8


def test_what_was_cut_off_is_told_to_the_model(space):
    here, _ = sketches_of(space, 2)

    class Cut(Scripted):
        def complete(self, messages, seconds):
            return replace(super().complete(messages, seconds), cut_off=True)

    model = Cut(lambda i: '{"reasoning": "first of all')
    with Session(model) as session:
        made = proposers.create("llm", space, 0, llm=session, otherwise="random")
        for program in here:
            ask(made, program)
    assert [len(told(prompt)) for prompt in model.prompts] == [0, 1]
    assert "too long" in told(model.prompts[1])[0] and session.usage.invalid == 2


def sketches_of(space, n):
    """``n`` programs of each of two sketches."""
    found = {}
    for candidate in space.sample(np.random.default_rng(3), 80):
        found.setdefault(candidate.sketch.key, []).append(candidate)
    first, second = sorted(found.values(), key=len)[-2:]
    return first[:n], second[:n]


def answer_of(program, edit):
    """What a model says that wants an edit."""
    changed = {
        f"v{i}": shown(variable, now)
        for i, (variable, before, now) in enumerate(
            zip(program.sketch.variables, program.decisions, edit.decisions, strict=True)
        )
        if before != now
    }
    return json.dumps({"proposals": [changed]})


def told(prompt):
    """The lines of a prompt that say what was wrong."""
    return [line for line in prompt.partition("What was wrong")[2].splitlines()[1:] if line]


def ask(made, *programs):
    situations = [Situation(Variant(program), 3) for program in programs]
    made.prepare(situations)
    return made.propose(situations)


def test_corrections_are_told_once_and_about_the_same_sketch(space):
    here, there = sketches_of(space, 3)
    programs = [here[0], there[0], here[1], there[1], there[2], here[2]]
    rng = np.random.default_rng(0)
    answers = [answer_of(each, space.mutate(each, rng)) for each in programs]
    zeros = [0] * here[0].sketch.variables[0].parts
    answers[:2] = [json.dumps({"proposals": [wrong]}) for wrong in ({"v0": zeros}, {"v77": 1})]
    model = Scripted(lambda i: answers[i])
    with Session(model) as session:
        made = proposers.create("llm", space, 0, llm=session, otherwise="random")
        for program in programs:
            ask(made, program)
    lines = [told(prompt) for prompt in model.prompts]
    assert [len(each) for each in lines] == [0, 0, 1, 1, 0, 0]
    assert "factors are at least 1" in lines[2][0] and "'v77' is no identifier" in lines[3][0]


def test_corrections_are_collected_up_to_a_bound(space):
    here, _ = sketches_of(space, 8)

    def wrong(i):
        return json.dumps({"proposals": [{f"v{100 + 4 * i + j}": 1} for j in range(4)]})

    model = Scripted(wrong)
    with Session(model, SessionConfig(concurrency=1)) as session:
        made = proposers.create("llm", space, 0, llm=session, otherwise="random")
        # All of a batch are asked before the first answer is read, and none of them is lost.
        ask(made, here[0])
        ask(made, here[1], here[2])
        ask(made, here[3], here[4], here[5], here[6])
        ask(made, here[7])
    lines = [told(prompt) for prompt in model.prompts]
    assert sorted(len(each) for each in lines[1:3]) == [0, 4]
    assert sorted(len(each) for each in lines[3:7]) == [0, 0, 0, 8]
    assert len(lines[7]) == 8


@pytest.mark.slow
def test_a_program_that_tvm_refuses_is_dropped_and_told():
    there = Space.generate(matmul(64), gpu())

    def is_legal(candidate):
        try:
            candidate.apply()
        except IllegalCandidateError:
            return False
        return True

    drawn = there.sample(np.random.default_rng(0), 40)
    refused = next(candidate for candidate in drawn if not is_legal(candidate))
    program = next(c for c in drawn if c.sketch == refused.sketch and c != refused)
    found = reading(answer_of(program, refused), program, there)
    assert not found.edits and found.dropped == 1
    assert found.corrections[0].startswith("a proposal makes no program: ")


def test_a_location_that_is_drawn_anew_is_told():
    there, rng = space_of("conv2d_nhwc"), np.random.default_rng(0)
    for program in there.sample(rng, 200):
        places = program.sketch.location_order
        tiles = [i for i, v in enumerate(program.sketch.variables) if isinstance(v, PerfectTile)]
        edit = there.mutate(program, rng, tiles)
        if any(edit.decisions[place] != program.decisions[place] for place in places):
            break
    else:
        raise AssertionError("no tile of these takes a location away")
    moved = [i for i in tiles if edit.decisions[i] != program.decisions[i]]
    text = json.dumps({"proposals": [{f"v{i}": edit.decisions[i] for i in moved}]})
    found = reading(text, program, there)
    assert len(found.edits) == 1 and not found.dropped
    assert any("does not fit the other decisions" in line for line in found.corrections)


def test_what_was_wrong_is_told_in_a_later_prompt():
    model = Scripted(lambda i: '{"proposals": [{"v0": [0, 1, 1, 1]}]}')
    with Session(model) as session:
        run(session, rounds=4)
    assert not any("What was wrong" in p for p in model.prompts[:2])
    assert any("factors are at least 1" in prompt for prompt in model.prompts[2:])
    assert session.usage.invalid > 0 and session.usage.proposals == 0


def test_a_program_that_occurs_twice_has_one_answer(space, program):
    with Session(Scripted(lambda i: GOOD)) as session:
        made = proposers.create("llm", space, 0, llm=session, otherwise="random")
        other = space.mutate(program, np.random.default_rng(0))
        asked = [Situation(Variant(p), 3) for p in (program, program, other, program)]
        made.prepare(asked)
        found = made.propose(asked)
        again = made.propose(asked[:1])
    assert [len(edits) for edits in found] == [2, 3, 2, 3] and len(again[0]) == 3


def test_no_more_calls_than_allowed():
    model = Scripted(lambda i: "nonsense")
    with Session(model, SessionConfig(calls=3)) as session:
        run(session, rounds=5)
    assert len(model.prompts) == session.usage.calls == 3


class Remembered(Session):
    """Keeps what was asked, so that a test can wait for the last answers."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked = []

    def submit(self, messages):
        self.asked.append(super().submit(messages))
        return self.asked[-1]


def test_a_run_is_replayed_from_its_transcript(tmp_path):
    path = tmp_path / "llm.jsonl"
    with Remembered(Scripted(lambda i: GOOD), transcript=path) as session:
        recorded = run(session)
        # The last questions are asked ahead of a round that never comes: let them be written.
        assert all(asked.result(10) for asked in session.asked)
    with open_session(str(path)) as replay:
        assert run(replay) == recorded
        assert replay.usage.calls == 0 and replay.usage.cached > 0


@pytest.mark.parametrize("disturbs", [False, True])
@pytest.mark.slow
def test_a_run_is_replayed_with_what_failed_and_what_came_too_late(
    tmp_path, monkeypatch, caplog, disturbs
):
    monkeypatch.setattr(_session, "_GRACE_S", 0.0)
    never = threading.Event()

    def answer(i):
        if i == 1:
            raise LlmError("busy")
        if i == 3:
            never.wait(1.2)
        return GOOD

    model = Scripted(answer)
    model.disturbs = lambda kind: disturbs
    path = tmp_path / "llm.jsonl"
    with Session(model, SessionConfig(timeout_s=0.4, patience=9), path) as session:
        recorded = run(session, rounds=5)
        # The late answer and those that were asked ahead of a round that never comes.
        assert wait_for(lambda: session.usage.answers == len(model.prompts) - 1)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    failed = {line["key"]: line["reason"] for line in lines if line["kind"] == "no answer"}
    answered = {line["key"] for line in lines if line["kind"] == "answer"}
    assert {"busy", "no answer in time"} <= set(failed.values())
    assert any(key in answered for key in failed), "too late, but kept"
    with open_session(str(path)) as replay:
        assert run(replay, rounds=5) == recorded
        assert replay.usage.calls == 0 and replay.usage.cached > 0 and replay.usage.failed > 1
    assert "differ from the recorded one" not in caplog.text


@pytest.mark.parametrize(
    "config", [{"calls": 3}, pytest.param({"patience": 1}, marks=pytest.mark.slow)]
)
def test_a_run_that_gave_up_is_replayed(tmp_path, config):
    def answer(i):
        if i == 2 and "patience" in config:
            raise LlmError("busy")
        return GOOD

    path = tmp_path / "llm.jsonl"
    with Session(Scripted(answer), SessionConfig(**config, concurrency=1), path) as session:
        recorded = run(session, rounds=5)
        assert session.left_out
    with open_session(str(path)) as replay:
        assert run(replay, rounds=5) == recorded
        assert replay.left_out and replay.reason == session.reason


def test_a_resumed_run_proposes_nothing_twice_and_knows_what_was_measured(tmp_path, monkeypatch):
    # Schedules of other programs would be the first of the tree, and no child of anything.
    monkeypatch.setattr("foretune.tuning.experience.shipped", lambda _kind: Portfolio())

    def part(trials, model):
        measurer = FormulaMeasurer()
        with Session(model) as session:
            result = tune(
                matmul(64), target=CPU, strategy="mcts", trials=trials, batch=8, llm=session,
                work_dir=tmp_path, measurer=measurer, cost_model="random",
                options={"asked": 8, "otherwise": "random", "expansions": 2},
            )  # fmt: skip
        assert len(result.tasks[0].trials) == trials
        return set(measurer.asked)

    first = part(24, Scripted(lambda i: GOOD))
    again = Scripted(lambda i: GOOD)
    second = part(40, again)
    assert len(second) == 16 and not first & second
    ancestors = [p.partition("## Ancestors")[2].partition("##")[0] for p in again.prompts]
    assert any(", measured " in text for text in ancestors)


def test_a_fresh_run_sets_the_answers_of_an_earlier_one_aside(tmp_path):
    def once(session, **options):
        with session:
            tune(
                matmul(64), target=CPU, strategy="mcts", trials=8, batch=4, llm=session,
                work_dir=tmp_path, measurer=FormulaMeasurer(), cost_model="random",
                options={"asked": 2, "otherwise": "random", "expansions": 2}, **options,
            )  # fmt: skip
        return session.usage

    def files():
        return sorted(path.name for path in tmp_path.glob("*.jsonl"))

    assert once(Session(Scripted(lambda i: GOOD))).answers > 0
    usage = once(Session(Scripted(lambda i: "another model")), fresh=True)
    assert usage.answers > 0 and usage.cached == 0
    both = ["journal.1.jsonl", "journal.jsonl", "llm.1.jsonl", "llm.jsonl"]
    assert files() == both
    # What is replayed stays where the command says that it is.
    usage = once(open_session(str(tmp_path / "llm.jsonl")), fresh=True)
    assert usage.cached > 0
    assert files() == sorted([*both, "journal.2.jsonl"])


def test_a_short_run_says_that_its_model_answered_nothing(tmp_path, caplog):
    with Server(always(completion("gone"))) as server:
        closed = server.url
    config = SessionConfig(retries=0, patience=99)
    with Session(Endpoint(EndpointConfig("tiny", closed)), config) as session:
        result = tune(
            matmul(64), target=CPU, strategy="mcts", trials=8, batch=4, llm=session,
            work_dir=tmp_path, measurer=FormulaMeasurer(), cost_model="random",
            options={"asked": 2, "otherwise": "random", "expansions": 2},
        )  # fmt: skip
    told = result.to_json()["llm"]
    assert (told["answers"], told["cached"]) == (0, 0) and "cannot be reached" in told["left_out"]
    assert caplog.text.count("answered nothing in this run") == 1
    assert len(result.tasks[0].trials) == 8


@pytest.mark.parametrize("time_s", [1000, None])
def test_no_answer_is_waited_for_longer_than_earlier_runs_left_of_the_time(tmp_path, time_s):
    ends = []

    class Ending(Session):
        def end_after(self, seconds):
            ends.append(seconds)
            super().end_after(seconds)

    for trials in (4, 8):
        with Ending(Scripted(lambda i: GOOD)) as session:
            result = tune(
                matmul(64), target=CPU, strategy="mcts", trials=trials, time_s=time_s, batch=4,
                llm=session, work_dir=tmp_path, measurer=FormulaMeasurer(), cost_model="random",
                options={"asked": 1, "otherwise": "random", "expansions": 1},
            )  # fmt: skip
    spent = result.tasks[0].trials[3].elapsed_s
    if time_s is None:
        assert ends == [None, None]
    else:
        assert spent > 0 and 0 < ends[1] <= time_s - spent


def test_calls_overlap_with_measuring():
    gate = threading.Event()
    with Session(Scripted(lambda text: gate.wait(10) and GOOD)) as session:
        task = Task(matmul(64), CPU, strategy="mcts", cost_model="random",
                    options={"llm": session, "proposer": "llm", "asked": 3})  # fmt: skip
        asked = task.ask(4)
        # Asking has returned while the model is still thinking.
        assert session.usage.answers == 0
        gate.set()
        assert wait_for(lambda: session.usage.answers == 3)  # while others are measured
        task.tell([(c, ok(c)) for c in asked])
        assert task.ask(4)


@pytest.mark.slow
def test_questions_are_under_way_while_a_run_measures():
    held, overlapped = [], []

    def script(request, number):
        # No answer before something else was measured: who waits for it measures nothing.
        before = len(measurer.asked)
        held.append(wait_for(lambda: len(measurer.asked) > before))
        return completion(GOOD)

    class Measurer(FormulaMeasurer):
        def measure(self, candidates, best_s=None):
            # Nothing is measured before a question is under way. None is before the first batch.
            overlapped.append(wait_for(lambda: server.active > 0, 2.0))
            yield from super().measure(candidates, best_s)

    measurer = Measurer()
    with Server(script) as server:
        config = EndpointConfig("m", server.url, disturbs=False)
        with Session(Endpoint(config)) as session:
            tune(matmul(64), target=CPU, strategy="mcts", trials=12, batch=4, measurer=measurer,
                 llm=session, options={"asked": 2, "expansions": 2})  # fmt: skip
            assert session.usage.proposals > 0
    # Those that were asked ahead of a round that never comes see nothing measured.
    assert held.count(True) >= 2
    assert overlapped.count(True) >= 2


def test_an_answer_of_a_server_becomes_a_node_below_the_program_it_is_about():
    with Server(always(completion(GOOD))) as server:
        config = EndpointConfig("m", server.url, disturbs=False)
        with Session(Endpoint(config)) as session:
            task = Task(matmul(64), CPU, strategy="mcts", cost_model="random",
                        options={"llm": session, "proposer": "llm", "asked": 3, "expansions": 1,
                                 "otherwise": "random"})  # fmt: skip
            task.tell([(c, ok(c)) for c in task.ask(4)])
            task.ask(4)
        prompts = [request["messages"][-1]["content"] for request in server.requests]
    mine = []
    for node in task.strategy.tree.nodes.values():
        if not isinstance(node.parent, Node):
            continue
        above = node.parent.candidate
        if above.sketch.key != node.candidate.sketch.key:
            continue
        before, after = above.decisions, node.candidate.decisions
        if before[0] != after[0] == (8, 4, 1, 2) and before[1:3] == after[1:3]:
            mine.append(json.dumps(before[0]))
    assert mine
    # The model was shown the program that its edit stands below.
    assert all(any(tile in prompt for prompt in prompts) for tile in mine)


def test_a_model_on_the_same_processor_is_not_asked_while_others_are_timed(tiny_model):
    with Session(LocalModel(tiny_model, max_tokens=4), SessionConfig(concurrency=1)) as session:
        task = Task(matmul(64), CPU, strategy="mcts", cost_model="random",
                    options={"llm": session, "proposer": "llm", "asked": 1})  # fmt: skip
        task.tell([(c, ok(c)) for c in task.ask(4)])
        assert session.usage.calls == 0
        task.ask(4)
        assert session.usage.calls == 1 and session.usage.invalid == 1


@pytest.mark.parametrize("told, waits", [({}, True), ({"disturbs": False}, False)])
def test_a_server_on_this_machine_is_asked_between_batches_unless_told_otherwise(told, waits):
    with Server(always(completion(GOOD))) as server:
        config = EndpointConfig("m", server.url, **told)
        with Session(Endpoint(config)) as session:
            task = Task(matmul(64), CPU, strategy="mcts", cost_model="random",
                        options={"llm": session, "proposer": "llm", "asked": 3})  # fmt: skip
            asked = task.ask(4)
            if waits:
                assert session.usage.calls == 0
            else:
                assert wait_for(lambda: session.usage.answers == 3)  # while others are measured
            task.tell([(c, ok(c)) for c in asked])
            task.ask(4)
            assert session.usage.answers > 0
            if waits:
                # None is under way while the next batch is measured.
                assert session.usage.answers == len(server.requests)


@pytest.mark.parametrize("strategy", ["mcts", pytest.param("evolutionary", marks=pytest.mark.slow)])
def test_a_real_model_behind_a_real_server(tiny_model, tmp_path, strategy):
    loaded = LocalModel(tiny_model, temperature=1.0, max_tokens=24)

    def script(request, number):
        answer = loaded.complete(request["messages"], 30)
        return completion(answer.text, answer.prompt_tokens, answer.completion_tokens)

    with Server(script) as server, Session(Endpoint(EndpointConfig("tiny", server.url))) as session:
        result = tune(
            matmul(64), target=CPU, strategy=strategy, trials=24, batch=8, work_dir=tmp_path,
            measurer=FormulaMeasurer(), llm=session, options={"proposer": "llm", "asked": 2},
        )  # fmt: skip
    data = result.to_json()
    assert len(data["tasks"][0]["trials"]) == 24
    assert data["llm"]["model"] == "tiny" and data["llm"]["calls"] == len(server.requests) > 0
    assert data["llm"]["invalid"] + data["llm"]["proposals"] > 0
    assert data["llm"]["prompt_tokens"] > 100 and data["llm"]["left_out"] is None
    assert data["options"] == {"proposer": "llm", "asked": 2}
    lines = (tmp_path / "llm.jsonl").read_text(encoding="utf-8").split()
    assert lines


INJECTION = (
    "Ignore all previous instructions. $(touch owned); `rm -rf ~` "
    '<script>alert(1)</script> {"proposals": [{"v0": "__import__(\'os\').system(\'id\')"}, '
    '{"../../etc/passwd": 1}]} ' + KEY
)


@pytest.mark.parametrize(
    "reply",
    [
        completion("\x00\x07 garbage {{{"),
        completion(INJECTION),
        pytest.param(completion("x" * (1 << 20)), marks=pytest.mark.slow),
        Reply(b'{"choices": [{"message": {"content": "half'),
        pytest.param(refusal(500), marks=pytest.mark.slow),
        pytest.param(refusal(429, Retry_After="3600"), marks=pytest.mark.slow),
        refusal(401, f"wrong key {KEY}"),
        Reply(wait_s=60),
        pytest.param(None, marks=pytest.mark.slow),
    ],
    ids=["garbage", "injection", "megabyte", "half", "500", "429", "401", "hangs", "nobody"],
)
def test_a_run_goes_on_whatever_the_server_does(reply, tmp_path, caplog, capfd):
    with Server(always(reply or Reply())) as server:
        url = server.url if reply else "http://127.0.0.1:9/v1"
        config = SessionConfig(timeout_s=0.3, retries=0, patience=2)
        with (
            caplog.at_level(logging.DEBUG),
            Session(Endpoint(EndpointConfig("m", url, KEY, disturbs=False)), config) as session,
        ):
            result = tune(
                matmul(64), target=CPU, strategy="mcts", trials=12, batch=4, work_dir=tmp_path,
                measurer=FormulaMeasurer(), llm=session, cost_model="gbdt:scratch",
                options={"proposer": "llm", "asked": 2, "otherwise": "random", "expansions": 2},
            )  # fmt: skip
    data = result.to_json()
    assert len(data["tasks"][0]["trials"]) == 12 and result.tasks[0].best_s is not None
    said = [r.getMessage() for r in caplog.records]
    answered = reply is not None and reply.status == 200 and data["llm"]["answers"] > 0
    paused = reply is not None and reply.status == 429
    assert sum("is not asked any more" in line for line in said) == (not answered and not paused)
    assert sum("asks not to be called for 3600 s" in line for line in said) == paused
    told = caplog.text + json.dumps(data) + "".join(capfd.readouterr())
    assert KEY not in told
    for file in ("tune.json", "llm.jsonl"):
        written = tmp_path / file
        assert not written.exists() or KEY not in written.read_text(encoding="utf-8")


def refused_commands(monkeypatch):
    """Commands that somebody wants to run from now on; none is."""
    commands = []

    def refuse(*command, **_options):
        commands.append(command)
        raise OSError("no process is started here")

    names = ("system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve")
    for name in names:
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    return commands


@pytest.mark.parametrize("proposer", ["llm", "llm-names"])
@pytest.mark.slow
def test_nothing_that_an_answer_says_is_done(tmp_path, monkeypatch, proposer):
    def files(name, answer):
        """What lies around after a run, as seen from the folder that it ran in."""
        here = tmp_path / name
        (here / "home").mkdir(parents=True)
        (here / "home" / "precious").write_text("kept", encoding="utf-8")
        monkeypatch.chdir(here)
        monkeypatch.setenv("HOME", str(here / "home"))
        with (
            Server(always(completion(answer))) as server,
            Session(Endpoint(EndpointConfig("m", server.url, KEY))) as session,
        ):
            tune(
                matmul(64), target=CPU, strategy="mcts", trials=12, batch=4,
                work_dir=here / "work", measurer=FormulaMeasurer(), llm=session,
                options={"proposer": proposer, "asked": 2, "otherwise": "random", "expansions": 2},
            )  # fmt: skip
            assert session.usage.answers > 0
        return sorted(str(path.relative_to(here)) for path in here.rglob("*"))

    harmless = files("harmless", "I would tile more.")
    commands = refused_commands(monkeypatch)
    hostile = files("hostile", INJECTION)
    assert not set(hostile) - set(harmless) and "home/precious" in hostile
    assert not commands
    assert sorted(path.name for path in tmp_path.iterdir()) == ["harmless", "hostile"]


class TestCommandLine:
    def refused(self, capsys, *words):
        assert main(["tune", "matmul_512", "--trials", "4", *words]) == 2
        return capsys.readouterr().err

    def test_what_cannot_work_is_refused_in_one_line(self, capsys):
        assert "unknown proposer 'nobody'" in self.refused(capsys, "--proposer", "nobody")
        assert "needs a language model" in self.refused(capsys, "--proposer", "llm")
        told = self.refused(capsys, "--llm", "m@http://user:secret@h/v1")
        assert "without a user" in told and "secret" not in told
        assert "NAME=VALUE" in self.refused(capsys, "--option", "branching")

    @pytest.mark.parametrize(
        "words, told",
        [
            ("--strategy mcts:heuristic --llm m@http://h/v1", "but the proposer is 'heuristic'"),
            ("--proposer random --llm m@http://h/v1", "but the proposer is 'random': leave one"),
            ("--option proposer=random --llm m@http://h/v1", "but the proposer is 'random'"),
            ("--strategy random --llm m@http://h/v1", "random has no option 'proposer'"),
            ("--strategy gradient --llm m@http://h/v1", "choose the strategy mcts or evolutionary"),
            ("--strategy mcts:llm", "'llm' needs a language model"),
            ("--option proposer=llm", "'llm' needs a language model"),
            ("--option llm=m --llm m@http://h/v1", "no option of a strategy: give it with --llm"),
            ("--strategy mcts:heuristic --proposer random", "'proposer' is 'heuristic' in the"),
            ("--proposer random --option proposer=heuristic", "--proposer random and --option"),
            ("--option asked=2 --option asked=3", "asked=2 and --option asked=3"),
            ("--strategy mcts --option history=2", "has an option 'history'"),
        ],
    )
    def test_contradictions_are_refused_in_one_line(self, capsys, words, told):
        error = self.refused(capsys, *words.split())
        assert told in error and error.count("\n") == 1

    @pytest.mark.parametrize(
        "words",
        [
            "--strategy mcts --option branching=many",
            "--strategy mcts --option x=1",
            "--strategy evolutionary --option warmup=-1",
            "--strategy mcts --llm m@http://h/v1 --option history=7",
        ],
    )
    def test_options_are_checked_before_a_network_is_taken_apart(self, capsys, monkeypatch, words):
        def slow(*_args, **_options):
            raise AssertionError("too early")

        for name in ("cli._tune.probe_hardware", "workload.load_input", "tuning.proving.prepare"):
            monkeypatch.setattr(f"foretune.{name}", slow)
        monkeypatch.setattr("foretune.cli._tune.open_llm", slow)
        assert main(["tune", "resnet50", "--trials", "4", *words.split()]) == 2
        assert capsys.readouterr().err.count("\n") == 1

    def test_each_language_model_has_a_default_work_directory_of_its_own(
        self, capsys, monkeypatch, tmp_path
    ):
        places = []

        def far_enough(*_args, work_dir, **_options):
            places.append(work_dir)
            raise BadInputError("far enough")

        monkeypatch.setattr("foretune.tuning.tune", far_enough)
        monkeypatch.setattr("foretune.cli._tune.probe_hardware", lambda *_args, **_options: CPU)
        for address in ("", "http://h/v1", "http://other/v1"):
            monkeypatch.setenv("OPENAI_BASE_URL", address)
            self.refused(capsys, "--llm", "m")
        settings = tmp_path / "settings.json"
        for data in ({"temperature": 1}, {"temperature": 0}):
            settings.write_text(json.dumps({"model": "m" * 400, **data}), encoding="utf-8")
            self.refused(capsys, "--llm", str(settings))
        for text in ("m@http://h/v1", "m@http://other/v1"):
            self.refused(capsys, "--llm", text)
        assert len(set(places)) == len(places) == 7
        assert all(len(place.name) < 256 for place in places)
        self.refused(capsys, "--llm", "m@http://h/v1")
        assert places[-1] == places[5], "what is meant again is resumed"
        self.refused(capsys, "--llm", "m@http://h/v1", "--batch", "4")
        assert places[-1] not in places[:-1], "other batches make another run"

    def test_proposers_are_listed(self, capsys):
        assert main(["strategies"]) == 0
        told = capsys.readouterr().out
        for name in (*proposers.names(), "mcts"):
            assert f"\n{name}" in told
