"""The guard around passes, and what is refused when nothing can lower an operator."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from foretune import _tvm
from foretune.errors import UnsupportedOperatorsError
from foretune.graph._lowering import lower
from foretune.graph.passes import Passes, PassReport

relax = _tvm.tvm.relax


def module_of(make, *shapes, dtype="float32"):
    """A module whose ``main`` returns ``make`` of inputs of these shapes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(make(*inputs)))
        builder.emit_func_output(result)
    return builder.get()


def raises(module):
    raise RuntimeError("std::bad_alloc")


def other_shape(module):
    return module_of(lambda x: relax.op.sum(x, [0]), (2, 3))


def not_well_formed(module):
    x, y = (relax.Var(n, relax.TensorType((2, 3), "float32")) for n in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.add(x, y)))
        builder.emit_func_output(result, [x])
    return builder.get()


@pytest.mark.passes_may_fail
@pytest.mark.parametrize("change", [raises, other_shape, not_well_formed])
def test_a_pass_that_fails_is_left_out_with_a_warning_that_names_it(change, caplog):
    module, passes = module_of(relax.op.exp, (2, 3)), Passes("a network")
    with caplog.at_level(logging.WARNING):
        assert passes.run("shaky", module, lambda m: m, change) is module
    (report,) = passes.reports
    assert (report.name, report.on, report.changed, report.failed) == ("shaky", False, False, True)
    assert passes.run("shaky", module, lambda m: m) is module, "it has no further turn"
    assert "a network: 'shaky' is left out" in caplog.text


def test_a_pass_that_works_is_listed_once():
    module, passes = module_of(relax.op.exp, (2, 3)), Passes("a network")
    again = passes.run("tidy", module, relax.transform.Normalize())
    passes.run("tidy", again, relax.transform.Normalize())
    assert passes.reports == (PassReport("tidy"),)


def test_operators_without_lowering_are_refused_by_name_all_at_once():
    weight = relax.const(np.zeros((3, 4, 3, 3), "float32"))

    def both(x):
        # TVM lowers no transposed convolution in this layout, and leaves it without a word.
        return relax.op.nn.conv2d_transpose(x, weight, data_layout="NHWC", kernel_layout="IOHW")

    with pytest.raises(UnsupportedOperatorsError, match=r"nn\.conv2d_transpose \(lv\)"):
        lower(module_of(both, (1, 5, 5, 3)), "a network")
