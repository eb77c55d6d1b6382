"""LLMTuner's own regressor, and controls of models of behaviour.

``ranker`` is the ranker, ``regressor`` with ``perceptron`` its second stage, ``identities`` takes
devices for others.
"""
