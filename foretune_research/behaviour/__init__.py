"""LLMTuner's own regressor, and controls of models of behaviour."""
