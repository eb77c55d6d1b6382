"""Models of transformers in this process: LLMTuner's classifier, and scores of a tuned one."""
