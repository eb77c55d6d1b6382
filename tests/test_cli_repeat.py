"""The command that a result notes means what the run was: every option of ``tune``, parsed back."""

from __future__ import annotations

import argparse
import functools
import shlex
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from foretune import cli
from foretune.cli import _tune

_WORDS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda word: not word.startswith("-")
)
_FLAGS = ("--fresh",)


@functools.cache
def _parser() -> argparse.ArgumentParser:
    return cli._parser()


def _tune_actions() -> list[argparse.Action]:
    commands = next(
        action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    return [a for a in commands.choices["tune"]._actions if a.option_strings and a.dest != "help"]


def _value_of(action: argparse.Action) -> st.SearchStrategy[str]:
    if action.type is int:
        return st.integers(-9, 10**9).map(str)
    if action.type is float:
        return st.floats(allow_nan=False).map(repr)
    return _WORDS


@st.composite
def _command_lines(draw: st.DrawFn) -> list[str]:
    """Any of the options, in any order and number, before and behind INPUT."""
    words: list[list[str]] = [[draw(_WORDS)]]
    budgets = draw(st.sampled_from([["--trials"], ["--time"], []]))
    for action in _tune_actions():
        name = draw(st.sampled_from(action.option_strings))
        if name in ("--trials", "--time") and name not in budgets:
            continue
        for _ in range(draw(st.integers(0, 2 if isinstance(action.default, list) else 1))):
            if action.nargs == 0:
                words.append([name])
            else:
                value = draw(_value_of(action))
                joined = name.startswith("--") and (value.startswith("-") or draw(st.booleans()))
                words.append([f"{name}={value}"] if joined else [name, value])
    ordered = [word for group in draw(st.permutations(words)) for word in group]
    return [*draw(st.sampled_from([[], ["--verbose"]])), "tune", *ordered]


def _parsed(given: list[str]) -> dict[str, Any]:
    return vars(_parser().parse_args(given, argparse.Namespace(given=given)))


@given(_command_lines())
def test_every_option_of_tune_survives(given: list[str]) -> None:
    args = _parsed(given)
    program, *words = shlex.split(_tune._reproducing(argparse.Namespace(**args)))
    again = _parsed(words)
    assert program == "foretune"
    assert again.pop("fresh") is True, "as it was given it would resume its own run"
    again.pop("given")
    assert again.pop("store") == ("none" if args["store"] is None else args["store"])
    assert again == {name: args[name] for name in again}


def test_all_kinds_of_options_are_drawn() -> None:
    assert {action.type for action in _tune_actions()} <= {None, int, float, Path}
    assert all(a.nargs == 0 for a in _tune_actions() if a.option_strings[0] in _FLAGS)
