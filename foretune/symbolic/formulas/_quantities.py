"""What TVM's feature extractor measures at each store of a symbolic program, as scalars.

A store's loops are kept in the places where the trace put them (threads around their kernel); the
conditions of each place say whether the lowered program has a loop there. Everything that depends
on the order of loops beyond that (which loop comes first, where reuse begins) is left to
``_assemble``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretune._per_store import OPERATIONS
from foretune.symbolic import (
    Algebra,
    Bound,
    Buffer,
    Digit,
    Index,
    Level,
    Literal,
    Load,
    Opaque,
    Operation,
    Scalar,
    Store,
    SymbolicProgram,
    walk,
)

_INTEGER_OPS = {
    "floordiv": "int_div_mod",
    "floormod": "int_div_mod",
    "minimum": "int_cmp",
    "maximum": "int_cmp",
    "product": "int_mul",
}
"""What an operation that is not linear counts as."""


@dataclass
class BufferUse:
    """What a store does to one buffer.

    Attributes:
        buffer: The buffer.
        kind: 0 read, 1 write, 2 both.
        touched: Elements touched while the loops from each place inwards run.
        used: Conditions that the loop of each place moves the access.
        stride: Elements from one iteration of the loop of each place to the next.
        contiguous: Bytes of the innermost dimension that is accessed as a whole; 1 for none.
    """

    buffer: Buffer
    kind: int
    touched: list[Scalar]
    used: list[Scalar]
    stride: list[Scalar]
    contiguous: Scalar


@dataclass
class StoreQuantities:
    """The scalars of one store.

    Attributes:
        store: The store.
        levels: Its loops, without those that are never there.
        counts: Operations per execution, by ``OPERATIONS``.
        uses: The buffers, in TVM's order of ties: larger elements first, then names.
    """

    store: Store
    levels: list[Level]
    counts: dict[str, Scalar]
    uses: list[BufferUse]


def quantities(program: SymbolicProgram) -> list[StoreQuantities]:
    """One entry for each store that has features: those of constants have none."""
    return [
        _Measured(program, store).result() for store in program.stores if not _constant(store.value)
    ]


def _constant(value: object) -> bool:
    return isinstance(value, Literal) and (value.index is None or not value.index.terms)


@dataclass(frozen=True)
class _Part:
    """A term of an index as it looks when simplified.

    Attributes:
        place: The loop's place around the store.
        digit: The digit.
        coefficient: Its coefficient.
        shown: Condition that it has more than one value.
        tail: Condition that it is shown and the next digit is not written together with it.
        head: Condition that it is shown and not written together with the one before.
        remains: Condition that the remainder is taken of what it is written together with.
    """

    place: int
    digit: Digit
    coefficient: Scalar
    shown: Scalar
    tail: Scalar
    head: Scalar
    remains: Scalar


class _Measured:
    def __init__(self, program: SymbolicProgram, store: Store) -> None:
        self.program, self.store = program, store
        self.algebra: Algebra = program.algebra
        self.none = self.algebra.number(0)
        self.one = self.algebra.number(1)
        self.levels = [
            level
            for level in store.levels
            if level.kept.constant != 0 or level.extent.constant != 1
        ]
        self.place = {level.loop: at for at, level in enumerate(self.levels)}
        self.iterates = [level.extent.above_one() for level in self.levels]
        self._parts: dict[int, tuple[Index, list[_Part]]] = {}
        self._neighbours: dict[tuple[int, range], Scalar] = {}

    def result(self) -> StoreQuantities:
        accesses: dict[Buffer, tuple[int, list[tuple[Index, ...]]]] = {
            self.store.target: (1, [self.store.indices])
        }
        for node in walk(self.store.value):
            if isinstance(node, Load):
                kind, indices = accesses.setdefault(node.buffer, (0, []))
                if kind == 1:
                    accesses[node.buffer] = (2, indices)
                elif kind == 0:
                    indices.append(node.indices)
        uses = [self._use(buffer, *access) for buffer, access in accesses.items()]
        uses.sort(key=lambda use: (-use.buffer.bytes, use.buffer.name))
        counts = dict.fromkeys(OPERATIONS, self.none)
        self._count(self.store.value, counts, self.one)
        return StoreQuantities(self.store, self.levels, counts, uses)

    # Regions and strides.

    def _use(self, buffer: Buffer, kind: int, indices: list[tuple[Index, ...]]) -> BufferUse:
        shapes = [self._extents(indices, place) for place in range(len(self.levels))]
        allocated = self.program.allocations[buffer].shape
        contiguous = self.one
        # Without loops one element is accessed, whatever the dimensions.
        whole = shapes[0] if shapes else [self.one] * len(allocated)
        for accessed, size in zip(whole, allocated, strict=True):
            contiguous = accessed.equal(size).choose(size * buffer.bytes, contiguous)
        return BufferUse(
            buffer,
            kind,
            [self.algebra.product(shape) for shape in shapes],
            [self._used(indices, place) for place in range(len(self.levels))],
            [self._stride(buffer, indices, place) for place in range(len(self.levels))],
            contiguous,
        )

    def _extents(self, indices: list[tuple[Index, ...]], place: int) -> list[Scalar]:
        extents = []
        for each in zip(*indices, strict=True):
            low, high = self._range(each[0], place)
            for index in each[1:]:
                other_low, other_high = self._range(index, place)
                low, high = _smaller(low, other_low), _larger(high, other_high)
            extents.append(high - low + 1)
        return extents

    def _range(self, index: Index, place: int) -> tuple[Scalar, Scalar]:
        """The range that TVM finds while the loops from a place inwards run.

        It binds each loop to 0 first, and its modular analysis keeps that: remainders stay 0.
        """
        ranges: dict[Digit, tuple[Scalar, Scalar]] = {}
        for part in self._all_parts(index):
            if part.place >= place:
                coupled = part.digit.coupled or self.none
                still = self.algebra.any_of([part.remains, coupled])
                high = still.choose(self.none, part.digit.size - 1)
                ranges[part.digit] = self.none, high
        return index.range(lambda digit: ranges.get(digit, (self.none, self.none)))

    def _all_parts(self, index: Index) -> list[_Part]:
        inner = [
            part
            for _, atom in index.terms
            if isinstance(atom, Opaque)
            for argument in atom.args
            for part in self._all_parts(argument)
        ]
        return [*self._simplified(index), *inner]

    def _members(self, place: int) -> list[Scalar]:
        """For each place, the condition that its loop is part of the lowered loop at ``place``."""
        level = self.levels[place]
        members = [self.none] * len(self.levels)
        members[place] = self.one
        for at, other in enumerate(self.levels):
            if place == 0 and at > 0:
                members[at] = other.parallel
            if at > place:
                joined = self.algebra.all_of([level.head, level.vector])
                members[at] = self.algebra.any_of([members[at], joined])
        return members

    def _used(self, indices: list[tuple[Index, ...]], place: int) -> Scalar:
        members = self._members(place)
        conditions = []
        # In order: what is built here is evaluated in it, and must be the same in every process.
        for atom in dict.fromkeys(a for each in indices for index in each for a in index.atoms()):
            if isinstance(atom, Digit) and atom.loop in self.place:
                member = members[self.place[atom.loop]]
                conditions.append(self.algebra.all_of([member, atom.size.above_one()]))
        return self.algebra.any_of(conditions)

    def _stride(self, buffer: Buffer, indices: list[tuple[Index, ...]], place: int) -> Scalar:
        members = self._members(place)
        shape = self.program.allocations[buffer].shape
        result: Scalar | None = None
        for each in indices:
            weight = self.one
            moving, stride = self.none, self.none
            for index, size in zip(reversed(each), reversed(shape), strict=True):
                coefficient, here = self._coefficient(index, members)
                if here.constant != 0:
                    stride = moving.choose(stride, here.choose(coefficient * weight, self.none))
                    moving = self.algebra.any_of([moving, here])
                weight = weight * size
            if moving.constant != 0:
                # An access that the loop does not move has no say.
                known = result
                result = stride if known is None else _least_moving(known, stride)
        return self.none if result is None else result

    def _coefficient(self, index: Index, members: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
        """What TVM takes for the coefficient of a loop, and whether the loop is in the index.

        It is the last factor that it meets in the sum from the loop's first term on.
        """
        here = result = last = self.none
        for part in reversed(self._simplified(index)):
            member = self.algebra.all_of([members[part.place], part.tail])
            factor = self._multiplied(part)
            # Meeting the loop itself once more leaves a 2.
            met = self.algebra.all_of([part.tail, self.algebra.any_of([factor, member])])
            ends = self.algebra.all_of([met, last.equal(0)])
            last = ends.choose(factor.choose(part.coefficient, 2), last)
            mine = factor.choose(last, self.one)
            result = member.choose(mine, result)
            here = self.algebra.any_of([here, member])
        for _, atom in index.terms:
            if isinstance(atom, Opaque):
                inside = [
                    self.algebra.all_of([members[self.place[a.loop]], a.size.above_one()])
                    for argument in atom.args
                    for a in argument.atoms()
                    if isinstance(a, Digit) and a.loop in self.place
                ]
                member = self.algebra.any_of(inside)
                result = here.choose(result, member.choose(self.one, self.none))
                here = self.algebra.any_of([here, member])
        return result, here

    # Operations.

    def _simplified(self, index: Index) -> list[_Part]:
        known = self._parts.get(id(index))
        if known is not None:
            return known[1]
        terms = [
            (self.place[atom.loop], atom, coefficient)
            for coefficient, atom in index.terms
            if isinstance(atom, Digit) and atom.loop in self.place and atom.size.constant != 1
        ]
        shown = [atom.size.above_one() for _, atom, _ in terms]
        joined = [self.none] * (len(terms) + 1)
        for at in range(1, len(terms)):
            for before in range(at - 1, -1, -1):
                between = self.algebra.any_of(shown[before + 1 : at])
                condition = self._together(terms[before], terms[at])
                joined[at] = self.algebra.any_of(
                    [
                        joined[at],
                        self.algebra.all_of(
                            [shown[before], shown[at], between.negated(), condition]
                        ),
                    ]
                )
                if between.constant == 1 or shown[before].constant == 1:
                    break
        # The next shown digit is written together with this one: then this is no tail.
        parts = []
        carried = self.none
        for at, (place, digit, coefficient) in enumerate(terms):
            followed = self.algebra.any_of(
                self.algebra.all_of(
                    [
                        shown[later],
                        self.algebra.any_of(shown[at + 1 : later]).negated(),
                        self._together(terms[at], terms[later]),
                    ]
                )
                for later in range(at + 1, len(terms))
            )
            head = self.algebra.all_of([shown[at], joined[at].negated()])
            remains = head.choose(self._remains(place, digit), carried)
            carried = shown[at].choose(remains, carried)
            tail = self.algebra.all_of([shown[at], followed.negated()])
            parts.append(_Part(place, digit, coefficient, shown[at], tail, head, remains))
        self._parts[id(index)] = index, parts
        return parts

    def _together(
        self, outer: tuple[int, Digit, Scalar], inner: tuple[int, Digit, Scalar]
    ) -> Scalar:
        """Whether two digits are neighbours of one lowered loop and make one term."""
        (a, first, big), (b, second, small) = outer, inner
        if a > b:
            return self.none
        same = self.one
        if a != b:
            same = self._joined(a, b)
            if same.constant == 0:
                return same
        conditions = [same, big.equal(small * second.size)]
        if a == b:
            conditions.append(first.low.equal(second.high))
        else:
            conditions += [first.low.equal(1), second.high.equal(self.levels[b].extent)]
            conditions += [iterates.negated() for iterates in self.iterates[a + 1 : b]]
        return self.algebra.all_of(conditions)

    def _index_ops(
        self, index: Index, counts: dict[str, Scalar], weight: Scalar, compared: bool = False
    ) -> None:
        """Adds the integer operations of an index.

        Of an index that is compared with a constant, offsets move to the other side; a factor and
        a divisor do as well where it is a single term.
        """
        parts = self._simplified(index)
        shown = self.none
        for part in parts:
            others = [other.tail for other in parts if other is not part]
            written = self.algebra.any_of(others) if compared else self.one
            shown = shown + part.tail
            factor = [part.tail, written, self._multiplied(part)]
            counts["int_mul"] = counts["int_mul"] + self.algebra.all_of(factor) * weight
            divided = self.algebra.all_of([part.tail, written, self._divided(part)])
            remains = self.algebra.all_of([part.head, part.remains])
            counts["int_div_mod"] = counts["int_div_mod"] + (divided + remains) * weight
        for _, atom in index.terms:
            if isinstance(atom, Opaque):
                shown = shown + self.one
                kind = _INTEGER_OPS[atom.kind]
                counts[kind] = counts[kind] + weight
                for argument in atom.args:
                    self._index_ops(argument, counts, weight)
        sums = shown.maximum(1) - 1
        if not compared:
            sums = sums + self.one.at_most(shown) * index.constant.equal(0).negated()
        counts["int_add_sub"] = counts["int_add_sub"] + sums * weight

    def _multiplied(self, part: _Part) -> Scalar:
        # What is subtracted once is not multiplied.
        if part.coefficient.constant == -1:
            return self.none
        return part.coefficient.equal(1).negated()

    def _divided(self, part: _Part) -> Scalar:
        inner = self._beside(part.place, range(part.place + 1, len(self.levels)))
        return self.algebra.any_of([part.digit.low.above_one(), inner])

    def _remains(self, place: int, digit: Digit) -> Scalar:
        own = self.none if digit.leading else digit.high.less(self.levels[place].extent)
        return self.algebra.any_of([own, self._beside(place, range(place))])

    def _beside(self, place: int, others: range) -> Scalar:
        """Whether some of the other loops iterate and are part of the same lowered loop."""
        known = self._neighbours.get((place, others))
        if known is None:
            known = self._neighbours[place, others] = self.algebra.any_of(
                self.algebra.all_of([self._joined(place, at), self.iterates[at]]) for at in others
            )
        return known

    def _joined(self, a: int, b: int) -> Scalar:
        x, y = self.levels[a], self.levels[b]
        return self.algebra.any_of(
            [
                self.algebra.all_of([x.parallel, y.parallel]),
                self.algebra.all_of([x.vector, y.vector]),
            ]
        )

    def _count(self, node: object, counts: dict[str, Scalar], weight: Scalar) -> None:
        """Adds the operations of a stored value, each ``weight`` times."""
        if isinstance(node, Load):
            for index in node.indices:
                self._index_ops(index, counts, weight)
        elif isinstance(node, Literal):
            if node.index is not None:
                self._index_ops(node.index, counts, weight)
        elif isinstance(node, Bound):
            self._add(counts, "int_cmp", self._undecided(node) * weight)
            self._index_ops(
                node.index, counts, weight * self._undecided(node), compared=node.kind != "other"
            )
            if node.kind == "other":
                self._index_ops(node.limit, counts, weight)
        elif isinstance(node, Operation):
            self._operation(node, counts, weight)

    def _operation(self, node: Operation, counts: dict[str, Scalar], weight: Scalar) -> None:
        if node.kind == "if":
            conditions = _conjunction(node.args[0])
            undecided = self.algebra.any_of(self._undecided(c) for c in conditions)
            kind = "float_math_func" if node.floating else "int_math_func"
            self._add(counts, kind, undecided * weight)
            for condition in conditions:
                self._count(condition, counts, weight)
            number = self.none
            for condition in conditions:
                number = number + self._undecided(condition)
            self._add(counts, "bool_op", (number.maximum(1) - 1) * weight)
            self._count(node.args[1], counts, weight)
            self._count(node.args[2], counts, weight * undecided)
            return
        if node.kind in ("and", "or", "bool"):
            self._add(counts, "bool_op", weight)
        elif node.kind == "select":
            self._add(counts, "select_op", weight)
        elif node.kind != "plain":
            self._add(counts, f"{'float' if node.floating else 'int'}_{node.kind}", weight)
        for argument in node.args:
            self._count(argument, counts, weight)

    def _add(self, counts: dict[str, Scalar], kind: str, weight: Scalar) -> None:
        counts[kind] = counts[kind] + weight

    def _undecided(self, node: object) -> Scalar:
        """Whether a comparison holds for some iterations only."""
        if not isinstance(node, Bound) or node.kind == "other":
            return self.one
        low, high = node.index.range(self._all)
        limit = node.limit.constant
        if node.kind == "at_least":
            return low.less(limit)
        return limit.at_most(high)

    def _all(self, digit: Digit) -> tuple[Scalar, Scalar] | None:
        return None if digit.loop in self.place else (self.none, self.none)


def _conjunction(node: object) -> list[object]:
    if isinstance(node, Operation) and node.kind == "and":
        return [c for argument in node.args for c in _conjunction(argument)]
    return [node]


def _smaller(a: Scalar, b: Scalar) -> Scalar:
    constant = (a - b).constant
    if constant is not None:
        return a if constant <= 0 else b
    return a.minimum(b)


def _larger(a: Scalar, b: Scalar) -> Scalar:
    constant = (a - b).constant
    if constant is not None:
        return a if constant >= 0 else b
    return a.maximum(b)


def _least_moving(a: Scalar, b: Scalar) -> Scalar:
    """The smaller of two strides, of which 0 means no movement."""
    if a.same(b):
        return a
    return a.equal(0).choose(b, b.equal(0).choose(a, a.minimum(b)))
