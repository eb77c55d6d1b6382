"""TVM's per-store features of a symbolic program as formulas, differentiable where asked.

In the order of what is made of a program:

- ``_quantities``: what TVM's extractor measures at each store, as scalars.
- ``_arranged``: the scalars of all stores as tables.
- ``_tape`` and ``_kernels``: scalars compiled into operations of PyTorch on batches of points;
  ``_operators``: these operations, exact or smooth.
- ``_assemble``: the columns from the tables.
- ``_formulas``: all of this behind one class.
"""

from foretune.symbolic.formulas._formulas import Formulas, formulas

__all__ = ["Formulas", "formulas"]
