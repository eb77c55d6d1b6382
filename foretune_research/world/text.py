"""Programs as text: what a text encoder reads.

A program of nested loops and blocks becomes one line per chain of loops and two per block, without
names (see ``ProgramWriter`` for how things are called), about a third as long as TVM's script::

    arg b0:64x96 b1:96x128 b2:64x128
    root@parallel=32@vectorize=64
    for i0=2 i1=4 i2=96 i3=32 i4=32
     k0 s0=i0*32+i3 s1=i1*32+i4 r2=i2
      init 0
      b2[s0,s1]=_+b0[s0,r2]*b1[r2,s1]

``arg`` and ``tmp`` declare buffers (shape, then element type unless float32, then scope unless
global), ``for`` gives loops their iterations, ``k`` a block with the values of its axes, ``@`` an
annotation; ``_`` is the element that is stored to. Actions (``foretune.world.action_text``) name a
block by its place in the untransformed program and an axis by its place in the block, as that
program's text does: ``split k0.1 4 32``.

Paper: the compiler world model (arXiv 2606.09312) encodes TVM's script as it is. Here it is
canonical, so that a model cannot learn names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretune_research.world._program import ProgramWriter

_NAME = re.compile(r"\b([biosr])(\d+)\b")
_SPARE_NAMES = 4
_ANNOTATIONS = re.compile(r"(?:@[\w.]+=[^@\s]*){2,}")
_VALUE = re.compile(r"(?<= )([sro]\d+)=([^\s@]+)")


def program_text(module: Any) -> str:
    """The canonical text of a module with one function.

    Programs that are equal but for the names of variables, buffers and blocks have one text.

    Args:
        module: An ``IRModule``, scheduled or not, not lowered.
    """
    return ProgramWriter().text(module)


def variant(text: str, rng: np.random.Generator) -> str:
    """The same program written in another way: a positive for contrastive training.

    Loops, axes and buffers get other numbers, annotations, the declarations of temporary buffers
    and the terms of sums another order. Lines keep theirs, and so do the axes of a block: that is
    how actions refer to them.

    Before → after: ``k0 s0=i0*32+i3`` → ``k0 s2=i5+i1*32``.

    Args:
        text: From ``program_text``.
        rng: Decides.
    """
    names = _renaming(text, rng)
    renamed = _NAME.sub(lambda found: names[found[0]], text)
    return "\n".join(_reordered(line, rng) for line in renamed.split("\n"))


def _renaming(text: str, rng: np.random.Generator) -> dict[str, str]:
    numbers: dict[str, set[int]] = {}
    for letter, number in _NAME.findall(text):
        numbers.setdefault(letter, set()).add(int(number))
    names: dict[str, str] = {}
    for letter in sorted(numbers):
        own = sorted(numbers[letter])
        new = rng.permutation(len(own) + _SPARE_NAMES).tolist()
        names.update({f"{letter}{a}": f"{letter}{b}" for a, b in zip(own, new, strict=False)})
    return names


def _reordered(line: str, rng: np.random.Generator) -> str:
    def shuffled(parts: Sequence[str]) -> list[str]:
        return [parts[at] for at in rng.permutation(len(parts)).tolist()]

    if line.startswith("tmp "):
        return " ".join(["tmp", *shuffled(line.split(" ")[1:])])
    line = _ANNOTATIONS.sub(lambda a: "@" + "@".join(shuffled(a[0][1:].split("@"))), line)
    if line.lstrip().startswith("k"):
        line = _VALUE.sub(lambda v: f"{v[1]}={'+'.join(shuffled(_terms(v[2])))}", line)
    return line


def _terms(expression: str) -> list[str]:
    """The terms of a sum; the expression itself where it is none or has a difference."""
    terms, depth, start = [], 0, 0
    for at, letter in enumerate(expression):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in "-<>=&|":
            return [expression]
        if depth == 0 and letter == "+":
            terms.append(expression[start:at])
            start = at + 1
    return [*terms, expression[start:]]
