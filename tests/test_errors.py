"""The messages of errors that several rooms raise."""

from __future__ import annotations

from foretune.errors import UnsupportedOperatorsError, first_line, last_line, listed


def test_reasons_stand_behind_the_operators_that_have_one():
    error = UnsupportedOperatorsError(
        "net", {"a": ["n1", "n2"], "b": ["m"]}, ["x"], {"a": "it is\n odd", "c": "unused"}
    )
    assert error.reasons == {"a": "it is\n odd"}
    assert str(error) == (
        "net holds operators that cannot be compiled: a (n1, n2): it is odd; b (m); tune the part "
        "before them with --until x"
    )


def test_a_message_that_names_many_operators_stays_readable():
    names = [f"operator_{n}" for n in range(20)]
    reasons = {name: "words " * 60 for name in names}
    many = UnsupportedOperatorsError("net", {name: ["node"] for name in names}, (), reasons)
    assert all(name in str(many) for name in names) and "words" not in str(many)
    assert many.reasons == reasons
    one = UnsupportedOperatorsError("net", {"a": ["node"]}, (), {"a": "words " * 60})
    assert "wor...;" in str(one) and len(str(one)) < 300


def test_the_telling_line_of_a_foreign_error():
    error = RuntimeError("\n  first thing \nsecond\n  third\n\n")
    assert (first_line(error), last_line(error)) == ("first thing", "third")
    assert first_line(KeyError()) == last_line(KeyError("\n").__class__()) == "KeyError"
    assert first_line(ValueError("x" * 400), 10) == "x" * 10


def test_of_many_names_the_first_are_listed():
    assert listed([]) == ""
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
