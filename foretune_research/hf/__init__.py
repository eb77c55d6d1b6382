"""Models of transformers in this process: LLMTuner's classifier, and scores of a tuned one.

``classifier`` and ``_adapted`` are the first stage, ``scores`` and ``score_model`` the scores,
``_transformers`` is what both need.
"""
