"""A language model that proposes names: what it is asked, what of its answers counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foretune import search
from foretune.errors import BadInputError
from foretune.llm import Session, SessionConfig
from foretune.search import proposers
from foretune.search.proposers import Situation, Variant
from foretune.space import Space
from foretune.tuning import Task, strategy_options
from foretune_research.names import NamesConfig, asked, reading
from tests.search.test_llm_proposer import CPU, Scripted
from tests.tuning.support import matmul, ok


@pytest.fixture(scope="module")
def space():
    return Space.generate(matmul(64), CPU)


@pytest.fixture(scope="module")
def program(space):
    sketch = next(s for s in space.sketches if len(s.variables) == 6)
    return sketch.candidate([(4, 4, 1, 4), (4, 1, 1, 16), (16, 4), 3, 3, 1])


def read_names(text, program, space):
    return reading(text, program, space, np.random.default_rng(0), alternatives=4, longest=8)


@pytest.mark.parametrize(
    "text",
    [
        '{"proposals": [["TileSize"], ["Unroll", "Parallel"]]}',
        '{"proposals": ["TileSize", "Unroll"]}',
        "Reasoning: because.\nMutators: meta_schedule.MutateTileSize(x), MutateUnroll",
        "**Transformations**: TileSize, tile_size",
    ],
)
def test_names_in_all_their_forms(program, space, text):
    found = read_names(text, program, space)
    assert found.edits and not found.dropped


def test_unknown_names_are_filtered(program, space):
    found = read_names('{"proposals": [["Fuse", "Unroll", 7]]}', program, space)
    assert found.edits[0].decisions[:5] == program.decisions[:5]
    assert found.dropped == 2 and "use TileSize" in found.corrections[0]
    none = read_names('{"proposals": [["Fuse"], ["Vectorise me"]]}', program, space)
    assert not none.edits


def test_a_sequence_of_no_names_is_dropped_and_told(program, space):
    found = read_names('{"proposals": [[]]}', program, space)
    assert not found.edits and found.dropped == 1
    assert "a proposal is empty" in found.corrections[0]


def test_fifty_names_are_cut(program, space):
    text = json.dumps({"proposals": [["TileSize"] * 50]})
    found = read_names(text, program, space)
    assert "had 50 transformations: give 8 at most" in found.corrections[0]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["\n", "-\n", "-", "mutators", "mutators\n", "<think>", "{"])
def test_garbage_is_read_in_linear_time(program, space, unit):
    text = unit * ((1 << 16) // len(unit))
    assert not read_names(text, program, space).edits


def test_names_are_listed_where_names_are_asked_for(program):
    prompt = asked(
        Situation(Variant(program), 4), longest=5, history=2, style="diff", alternatives=4
    )
    text = "\n".join(message["content"] for message in prompt)
    assert "TileSize, Parallel, Vectorize, Unroll" in text
    assert "with 1 to 4 different proposals" in text and "at most 5 of the" in text
    assert '{"reasoning"' in text, "an example of an answer"


def test_a_search_takes_its_names(space):
    answer = '{"proposals": [["TileSize", "Unroll"], ["Parallel"], ["Fuse", "TileSize"]]}'
    with Session(Scripted(lambda number: answer), SessionConfig(concurrency=1)) as session:
        task = Task(
            matmul(64), CPU, strategy="mcts:llm-names", cost_model="gbdt", seed=0,
            options={"llm": session, "asked": 2, "expansions": 2, "longest": 3},
        )  # fmt: skip
        keys = []
        for _ in range(3):
            batch = task.ask(4)
            keys += [candidate.key for candidate in batch]
            task.tell([(candidate, ok(candidate)) for candidate in batch])
        assert len(set(keys)) == 12
        assert session.usage.proposals > 0 and session.usage.dropped > 0


def test_it_takes_a_language_model_as_the_proposer_of_decisions_does():
    assert proposers.asks_llm("llm-names") and proposers.asks_llm("llm")
    assert not any(map(proposers.asks_llm, ("learned", "nobody", None)))
    assert strategy_options("mcts:llm-names", {}, has_llm=True) == {}
    with pytest.raises(BadInputError, match="'llm-names' needs a language model"):
        strategy_options("mcts:llm-names", {}, has_llm=False)


def test_impossible_options_are_refused():
    with pytest.raises(BadInputError, match="longest >= 1"):
        search.check("mcts:llm-names:longest=0", {})
    with pytest.raises(BadInputError, match="otherwise must be another proposer"):
        NamesConfig(otherwise="llm-names")
    with pytest.raises(BadInputError, match="llm has no option 'longest'"):
        search.check("mcts:llm:longest=4", {})
