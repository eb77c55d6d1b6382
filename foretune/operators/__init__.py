"""Operators that TVM's importers lack or compute wrongly, lowered here for all importers.

One file per family. A function takes a Relax block builder and Relax expressions of static shapes,
and returns a Relax expression; each has its test against the runtime whose operator it is.

In TE: ``elements``, ``indexing``, ``extremes``, ``pooling``, ``resize`` and ``resampling``,
``normalization``, ``convolution``, ``special``, ``recurrent``, ``winograd``, ``panels``, with
``_read``. As kernels whose order is final (``_script``): ``attention`` and ``attention_few_rows``
(both of ``attention_form``), ``rows``, ``products``, ``recurrent_kernel``; ``views`` says where
their operands lie.
"""
