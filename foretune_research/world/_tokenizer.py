"""Program texts as what a transformer reads: numbers of tokens, in overlapping windows.

A text is cut into names, whole numbers and runs of other signs. Names and signs become tokens by
merges learned from the training texts (byte pair encoding), so that what programs repeat is one
token, and any other text can still be written, byte by byte if need be. A whole number is a token
of its own, whatever it is (``numbered_tokens``): an extent that no training program had is not to
fall into digits. Long texts become windows of ``size`` tokens every ``stride`` tokens; of a text
with more windows than a model may read, as many are kept, spread evenly from its first token to its
last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretune._arrays import IntArray
from foretune.errors import BadInputError
from foretune.world._part import require

if TYPE_CHECKING:
    from tokenizers import Tokenizer


PAD = "<pad>"
"""Token that fills up batches; number 0 of a tokenizer trained here."""

NUMBER = "#"
"""Stands for every whole number that is no part of a name."""

_NUMBER = re.compile(r"(?<![A-Za-z_0-9])[0-9]+|(?<=[0-9]x)[0-9]+")
_LARGEST = 1 << 40
_WORDS = rf"[^\w\n{NUMBER}]*[A-Za-z_]\w*=?|{NUMBER}|[^\w\n{NUMBER}]+|\n\s*"
"""Names with what stands before them, numbers, other signs, beginnings of lines."""


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
    """Learns merges from texts.

    Args:
        texts: What is to become short.
        vocabulary: Tokens at most, the 256 bytes among them.

    Raises:
        MissingDependencyError: The ``tokenizers`` package is not installed.
    """
    require("tokenizers")
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Split
    from tokenizers.pre_tokenizers import Sequence as Both
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Both(
        [Split(Regex(_WORDS), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_NUMBER.sub(NUMBER, text) for text in texts), trainer)
    return tokenizer


def read_tokenizer(text: str) -> Tokenizer:
    """The tokenizer that was written as JSON.

    Raises:
        ValueError: It is none.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(text)
    # The package raises nothing narrower on a text that it cannot read.
    except Exception as error:
        raise ValueError(f"not a tokenizer: {error}") from error


def numbered_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[IntArray]:
    """The same where numbers are apart: a number n becomes the token V + n, V the vocabulary.

    Before → after: ``i1=64`` → the token of ``i1=``, V + 64.

    Raises:
        BadInputError: A text is empty.
    """
    mark, first = tokenizer.token_to_id(NUMBER), tokenizer.get_vocab_size()
    found = tokens_of(tokenizer, [_NUMBER.sub(NUMBER, text) for text in texts])
    for ids, text in zip(found, texts, strict=True):
        values = [min(int(number), _LARGEST) for number in _NUMBER.findall(text)]
        at = ids == mark
        # A text may hold the mark itself: such a place has no number.
        if at.sum() == len(values):
            ids[at] = first + np.array(values, dtype=np.int64)
    return found


def tokens_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[IntArray]:
    """The tokens of each text, without any that mark beginning or end.

    Raises:
        BadInputError: A text is empty.
    """
    found = [
        np.array(encoding.ids, dtype=np.int64)
        for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    ]
    for at, ids in enumerate(found):
        if not len(ids):
            raise BadInputError(
                f"a text must hold something, but text {at} of {len(texts)} is {texts[at]!r}: "
                "leave it out"
            )
    return found


def windows(length: int, size: int, stride: int, most: int) -> list[slice]:
    """Where the windows over so many tokens are.

    Before → after: with size 4 and stride 2, 7 tokens → 0:4, 2:6, 4:7, or with 2 at most 0:4, 3:7.

    Args:
        length: Tokens of the text, at least 1.
        size: Tokens of a window at most.
        stride: From the start of a window to that of the next; ``1 <= stride <= size``.
        most: Windows at most. If more were needed, so many are spread evenly, and tokens between
            them are not read.
    """
    needed = 1 + max(0, -(-(length - size) // stride))
    if needed <= most:
        return [slice(at, min(at + size, length)) for at in range(0, needed * stride, stride)]
    starts = np.linspace(0, length - size, most) if most > 1 else [0]
    return [slice(int(at), int(at) + size) for at in np.rint(starts)]


def batches(
    pieces: Sequence[IntArray], pad: int, budget: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Pieces of like length together, filled up to the longest.

    Args:
        pieces: Token numbers of each.
        pad: The number to fill up with.
        budget: Tokens of a batch at most, where it has more than one piece.

    Yields:
        Numbers of the pieces, shape (b,), their tokens, shape (b, longest), and their lengths (b,).
    """
    lengths = np.array([len(piece) for piece in pieces])
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        end = start + 1
        while end < len(order) and lengths[order[end]] * (end + 1 - start) <= budget:
            end += 1
        at = order[start:end]
        rows = np.full((len(at), int(lengths[at[-1]])), pad, dtype=np.int64)
        for row, piece in zip(rows, at.tolist(), strict=True):
            row[: lengths[piece]] = pieces[piece]
        yield at, rows, lengths[at]
        start = end
