"""Which workloads of the training networks make the list, and in what order.

Left out is what the evaluation set has, what is too small to schedule or too large to measure, what
differs from another in its epilogue's constants at most, and what has no space to search. Then no
kind may have more than its share, and the kinds stand in proportion, so that a collection that is
cut short has all of them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._training.extraction import Extracted
from foretune.dataset import StoredWorkload
from foretune.errors import BadInputError
from foretune.hardware import Hardware
from foretune.space import Space
from foretune.workload import Workload, training
from foretune.workload._signature import _Block, _blocks, _extent, _main
from foretune.workload.element_types import element_type

ELEMENTWISE = "elementwise"


@dataclass(frozen=True)
class Rules:
    """What a workload must be to make the list.

    Attributes:
        flops: Least and most floating-point operations; elementwise ones may have none.
        buffer_bytes: Least and most bytes of all parameters.
        elementwise: How many elementwise ones, each of another structure.
        elementwise_bytes: Least bytes of those.
        share: Of the list that one kind may have at most.
        candidates: How many its space must have at least.
    """

    flops: tuple[float, float] = (0.02e6, 1500e6)
    buffer_bytes: tuple[int, int] = (16 << 10, 64 << 20)
    elementwise: int = 40
    elementwise_bytes: int = 64 << 10
    share: float = 0.35
    candidates: int = 8


@dataclass(frozen=True)
class Selected:
    """A workload of the list.

    Attributes:
        origin: Where it is from.
        kind: Its operator kind.
    """

    origin: Extracted
    kind: str


def select(
    found: Iterable[Extracted],
    rules: Rules,
    searchable: Callable[[Extracted], bool],
    dropped: Counter[str],
) -> list[Selected]:
    """The workloads that make the list, in its order.

    Args:
        found: Workloads of all networks; of two that are alike the earlier one stays.
        rules: What they must be.
        searchable: Whether there is a space of one; asked last, because that takes seconds.
        dropped: Counts those left out by reason.
    """
    kept = [each for each in _distinct(found, rules, dropped) if not _full(each, dropped)]
    first = _limited(_in_turn(kept), rules, Counter())
    known = {id(each): searchable(each.origin) for each in first}
    left = [each for each in kept if known.get(id(each), True)]
    dropped["space"] += len(kept) - len(left)
    # What takes the place of one without a space has to have one itself.
    chosen = _limited(_in_turn(left), rules, dropped)
    good = [each for each in chosen if id(each) in known or searchable(each.origin)]
    dropped["space"] += len(chosen) - len(good)
    return list(_in_turn(good))


def named(selected: Sequence[Selected]) -> list[StoredWorkload]:
    """The list as a data set stores it, each called ``NETWORK/KERNEL``, and no two the same."""
    taken: set[str] = set()
    stored = []
    for each in selected:
        origin = each.origin
        plain = f"{origin.network}/{origin.workload.name}"
        others = (f"{plain}_{at}" for at in itertools.count(2))
        names = itertools.chain((plain, f"{plain}_{origin.variant}"), others)
        name = next(name for name in names if name not in taken)
        taken.add(name)
        stored.append(StoredWorkload(replace(origin.workload, name=name), each.kind))
    return stored


def has_space(workload: Workload, hardware: Hardware, candidates: int) -> str:
    """Why a workload cannot be searched; empty if it has at least that many candidates."""
    try:
        space = Space.generate(workload, hardware)
    except BadInputError as error:
        return str(error)[:200]
    count = len(space.sample(np.random.default_rng(0), candidates))
    return "" if count >= candidates else f"{count} candidates"


def buffer_bytes(workload: Workload) -> int:
    """Bytes of all parameters of a workload."""
    return sum(
        math.prod(map(_extent, var.ty.shape)) * element_type(str(var.ty.dtype)).itemsize
        for var in workload.module["main"].params
        if hasattr(var.ty, "shape")
    )


def structure(workload: Workload) -> tuple[str, ...]:
    """Names of the blocks beside the main one, without the counters of variables and fusion."""
    blocks = _blocks(workload)
    main = _main(blocks) if blocks else None
    return tuple(sorted(_plain(block) for block in blocks if block is not main))


def _plain(block: _Block) -> str:
    return re.sub(r"^lv\d*_|_?\d+$", "", block.name)


def _distinct(
    found: Iterable[Extracted], rules: Rules, dropped: Counter[str]
) -> Iterator[Selected]:
    """The workloads of a permitted size, no two of them alike."""
    keys: set[str] = set()
    alike: set[tuple[object, ...]] = set()
    for each in found:
        workload = each.workload
        if workload.key in keys:
            dropped["same key"] += 1
            continue
        keys.add(workload.key)
        size, kind = buffer_bytes(workload), training.operator_kind(workload)
        reason = _reason(workload, kind, size, rules)
        if reason:
            dropped[reason] += 1
            continue
        sort = _sort(workload, kind)
        if sort in alike:
            dropped["alike"] += 1
            continue
        alike.add(sort)
        yield Selected(each, kind)


def _sort(workload: Workload, kind: str) -> tuple[object, ...]:
    """What only one workload of the list has; shapes of elementwise ones do not count."""
    if kind != ELEMENTWISE:
        return training.signature(workload), kind, structure(workload)
    blocks = _blocks(workload)
    return kind, *((_plain(block), len(block.node.iter_vars)) for block in blocks)


def _reason(workload: Workload, kind: str, size: int, rules: Rules) -> str:
    least, most = rules.flops
    if kind != ELEMENTWISE and workload.flops < least:
        return "little work"
    if workload.flops > most:
        return "much work"
    if size < (rules.elementwise_bytes if kind == ELEMENTWISE else rules.buffer_bytes[0]):
        return "small buffers"
    return "large buffers" if size > rules.buffer_bytes[1] else ""


def _full(each: Selected, dropped: Counter[str]) -> bool:
    """Whether the evaluation set has it."""
    if training.excluded().has(each.origin.workload):
        dropped["evaluation set"] += 1
        return True
    return False


def _limited(selected: Iterable[Selected], rules: Rules, dropped: Counter[str]) -> list[Selected]:
    """The first of each kind, as many as it may have."""
    kinds: defaultdict[str, list[Selected]] = defaultdict(list)
    for each in selected:
        kinds[each.kind].append(each)
    before = {kind: len(members) for kind, members in kinds.items()}
    del kinds[ELEMENTWISE][rules.elementwise :]
    # The more numerous last: how many there may be follows from how many others there are.
    for members in sorted(kinds.values(), key=len):
        others = sum(map(len, kinds.values())) - len(members)
        if others:
            del members[math.floor(rules.share / (1 - rules.share) * others) :]
    for kind, number in before.items():
        dropped[f"enough of {kind}"] += number - len(kinds[kind])
    return [each for members in kinds.values() for each in members]


def _in_turn(selected: Iterable[Selected]) -> Iterator[Selected]:
    """Kinds in proportion, and within a kind a workload of each network and variant by turns.

    The i-th of the n of a kind comes at the fraction i / n of the list.
    """
    kinds: defaultdict[str, defaultdict[tuple[str, str], list[Selected]]]
    kinds = defaultdict(lambda: defaultdict(list))
    for each in selected:
        kinds[each.kind][each.origin.network, each.origin.variant].append(each)
    placed = []
    for order, queues in enumerate(kinds.values()):
        rounds = itertools.zip_longest(*queues.values())
        members = [each for turn in rounds for each in turn if each is not None]
        placed += [(at / len(members), order, each) for at, each in enumerate(members)]
    for _, _, each in sorted(placed, key=lambda entry: entry[:2]):
        yield each
