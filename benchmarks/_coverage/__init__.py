"""Suites of small networks: which work as they come, which are refused, which come out wrong.

A ``suite`` has names of networks and says what becomes of one; ``processes`` asks for many of them
and keeps what is answered. The suites are ``onnx_tests``, ``torch_samples``, ``random_networks``,
and ``architectures`` with its ``small_transformers``.
"""
