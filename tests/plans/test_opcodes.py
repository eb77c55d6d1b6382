"""Operations of XLA that operators of Relax are."""

from __future__ import annotations

from foretune import _tvm
from foretune.plans.opcodes import OPERATIONS, number_of
from foretune.tgraph.opcodes import OPCODES


def test_operators_are_operations_that_have_a_number():
    assert set(OPERATIONS.values()) <= set(OPCODES)
    assert number_of("conv2d", False) == OPCODES["convolution"]
    assert number_of("lstm_steps", True) == OPCODES["custom-call"]
    assert number_of("no_such_operator", False) == 0


def test_every_listed_operator_exists():
    known = {str(name).rpartition(".")[2] for name in _tvm.tvm.ir.Op.list_op_names()}
    assert set(OPERATIONS) <= known, sorted(set(OPERATIONS) - known)
