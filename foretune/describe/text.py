"""A scheduled program as a short text: what language models read of it.

One line per loop (its letter, its iterations, what kind it is), indented by its depth, and one per
statement, of the arrays that it reads and writes and the loops that move along each dimension:

    arrays A global 64x128, B global 64x256, C global 256x128
    a 8 parallel
     b 8
      c 256 reduce
       d 128 vectorized
        A[a.b,d] += B[a.b,c] C[c,d] | 2 flops unroll 64

Nothing depends on names: arrays have capital letters in the order in which they are met, loops
small ones; loops of one iteration are not shown. ``a.b`` is the index whose digits are the
iterations of loops a and b; what is not of that form says so: ``a*8.b`` where a moves by 8,
``a/4%8`` where it moves every four iterations and takes eight values. A reduction that adds
nothing and compares is written ``max=``; which extreme it takes, nests do not say.

A text has at most ``MOST_TOKENS`` tokens, by ``token_bound``. Of a program that is longer the
indices are left out first (``A(abd)`` names the loops that move it), then the statements of least
work, then decisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from foretune.describe._nests import KIND_NAMES, SERIAL, Access, Nests, Statement
from foretune.describe.words import device_words, metric_words
from foretune.hardware import Device

TEXT_VERSION = 2
"""Raised whenever the text of a program changes."""

MOST_TOKENS = 700

_PIECES = re.compile(r"\d|[A-Za-z]{1,3}|[^\w\s]|_|\s+")
_SMALL, _CAPITAL = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def token_bound(text: str) -> int:
    """Tokens that a text has at most for a language model that knows sequences of three letters.

    Every digit, mark and run of blanks counts as one, and every three letters of a word: a model
    that was trained on code joins more than that.
    """
    return len(_PIECES.findall(text))


def program_text(
    nests: Nests, row: int, decisions: Sequence[tuple[str, str]] = (), most: int = MOST_TOKENS
) -> str:
    """One program of a batch in at most ``most`` tokens.

    Args:
        nests: The batch.
        row: Which of it.
        decisions: What was decided and how, as ``words.decision_words`` gives them, or the
            parameters of a kernel; at the end of the text.
        most: Tokens at most.
    """
    program = _Program(nests, row)
    order = program.by_work
    for indices in (True, False):
        text = program.text(order, indices, decisions)
        if token_bound(text) <= most:
            return text
    kept = len(order)
    while kept > 1 and token_bound(program.text(order[:kept], False, decisions)) > most:
        kept -= max(1, kept // 8)
    told = list(decisions)
    while told and token_bound(program.text(order[:kept], False, told)) > most:
        told.pop()
    return program.text(order[:kept], False, told)


def device_text(device: Device, name: bool = True) -> str:
    """A device by its data sheet in a line; see ``words.device_words``."""
    return device_words(device, name)


def criteria_text(kind: str) -> str:
    """What a program is judged by on a kind of device: the scores of the schema, a line each."""
    return "\n".join(metric_words(kind))


class _Program:
    """One program of a batch, with letters for its loops and arrays."""

    def __init__(self, nests: Nests, row: int) -> None:
        self._nests, self._row = nests, row
        self._extents = nests.extents[row]
        loops: dict[int, None] = {}
        arrays: dict[int, None] = {}
        for statement in nests.statements:
            loops.update({n: None for n in statement.path if self._extents[n] > 1})
            arrays.update({access.buffer: None for access in statement.accesses})
        self._loops = {loop: _letter(_SMALL, at) for at, loop in enumerate(loops)}
        self._arrays = {buffer: _letter(_CAPITAL, at) for at, buffer in enumerate(arrays)}

    @property
    def by_work(self) -> list[int]:
        """Statements, those of most work first."""
        work = []
        for statement in self._nests.statements:
            cost = statement.operations + 4.0 * statement.calls + statement.selects
            each = float(cost[self._row]) + len(statement.accesses)
            work.append(each * self._executions(statement))
        order: list[int] = np.argsort(-np.array(work), kind="stable").tolist()
        return order

    def _executions(self, statement: Statement) -> float:
        return float(self._extents[list(statement.path)].prod() * statement.executed[self._row])

    def text(self, kept: Sequence[int], indices: bool, decisions: Sequence[tuple[str, str]]) -> str:
        """The text with some of the statements, and the loops around them."""
        lines = [f"arrays {', '.join(self._array_words(kept))}"]
        opened: list[int] = []
        for number, statement in enumerate(self._nests.statements):
            if number not in kept:
                continue
            path = [loop for loop in statement.path if loop in self._loops]
            shared = next(
                (at for at, loop in enumerate(path) if opened[at : at + 1] != [loop]), len(path)
            )
            lines += [" " * at + self._loop_words(path[at]) for at in range(shared, len(path))]
            opened = path
            lines.append(" " * len(path) + self._statement_words(statement, indices))
        left_out = len(self._nests.statements) - len(kept)
        if left_out:
            lines.append(f"and {left_out} statements of less work")
        lines += [f"{what} {how}" for what, how in decisions]
        return "\n".join(lines) + "\n"

    def _array_words(self, kept: Sequence[int]) -> Iterator[str]:
        used = {a.buffer for number in kept for a in self._nests.statements[number].accesses}
        for number, letter in self._arrays.items():
            if number in used:
                buffer = self._nests.buffers[number]
                size = "x".join(f"{each:.0f}" for each in buffer.shape[self._row])
                width = "" if buffer.bytes == 4 else f" {buffer.bytes} bytes"
                yield f"{letter} {buffer.scope}{'' if buffer.parameter else ' own'} {size}{width}"

    def _loop_words(self, loop: int) -> str:
        kind = int(self._nests.kinds[self._row, loop])
        words = [self._loops[loop], f"{self._extents[loop]:.0f}"]
        if kind != SERIAL:
            axis = self._nests.axes[loop]
            words.append(KIND_NAMES[kind] + (f".{axis}" if axis else ""))
        if self._nests.reduction[loop]:
            words.append("reduce")
        return " ".join(words)

    def _statement_words(self, statement: Statement, indices: bool) -> str:
        show = self._indexed if indices else self._moved
        loads = [show(statement, access) for access in statement.accesses if not access.store]
        stores = [show(statement, access) for access in statement.accesses if access.store]
        row = self._row
        sign = _sign(statement, row)
        facts = [
            f"{value[row]:g} {what}"
            for value, what in (
                (statement.operations, "flops"),
                (statement.calls, "calls"),
                (statement.selects, "selects"),
            )
            if value[row]
        ]
        if statement.unroll[row]:
            facts.append(f"unroll {statement.unroll[row]:.0f}")
        if statement.executed[row] < 1:
            facts.append(f"executed {statement.executed[row]:.2g}")
        if statement.reduces:
            # That it reads what it stores to is what the sign says.
            loads = [load for load in loads if load not in stores]
        computed = " ".join([*stores, sign, *loads])
        return f"{computed} | {' '.join(facts)}" if facts else computed

    def _moved(self, statement: Statement, access: Access) -> str:
        """An access by the loops that move it."""
        moving = {
            statement.path[term.place]: None
            for term in sorted(access.terms, key=lambda term: term.place)
            if term.values[self._row] > 1 and term.coefficient[self._row] != 0
        }
        letters = "".join(self._loops[loop] for loop in moving if loop in self._loops)
        return f"{self._arrays[access.buffer]}({letters})"

    def _indexed(self, statement: Statement, access: Access) -> str:
        """An access by its index in each dimension."""
        rank = self._nests.buffers[access.buffer].shape.shape[1]
        indices = (self._index(statement, access, dimension) for dimension in range(rank))
        return f"{self._arrays[access.buffer]}[{','.join(indices)}]"

    def _index(self, statement: Statement, access: Access, dimension: int) -> str:
        """Digits of an index, the largest first; what a digit is worth, where that is not usual.

        A digit is usually worth the product of the values of those behind it.
        """
        row = self._row
        own = [
            (abs(t.coefficient[row]), t.coefficient[row], t.values[row], t.every[row], t.place)
            for t in access.terms
            if t.dimension == dimension and t.values[row] > 1 and t.coefficient[row] != 0
        ]
        digits, usual = [], 1.0
        for size, coefficient, values, every, place in sorted(own):
            loop = statement.path[place]
            digit = self._loops[loop]
            if every > 1:
                digit += f"/{every:.0f}"
            if values * every < self._extents[loop]:
                digit += f"%{values:.0f}"
            if coefficient != usual:
                digit += f"*{coefficient:.0f}"
            digits.append(digit)
            usual = size * values
        return ".".join(reversed(digits)) or "0"


def _sign(statement: Statement, row: int) -> str:
    if not statement.reduces:
        return "="
    # A sum has an addition at least.
    extreme = not statement.operations[row] and statement.selects[row]
    return "max=" if extreme else "+="


def _letter(letters: str, number: int) -> str:
    """a, b... z, a1, b1..."""
    again, at = divmod(number, len(letters))
    return letters[at] + (str(again) if again else "")
