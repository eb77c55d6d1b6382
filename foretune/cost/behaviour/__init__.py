"""Models of execution behaviour that carry over to hardware they have never seen (LLMTuner).

Reading order: ``tokens`` turns nests of loops into what a network reads, ``labels`` says which
programs of a group are good, ``compact`` is the network of the first stage and ``classifier`` the
ranker around it. ``columns`` and ``memory`` hold what is known of programs that survive it, and
``regressor`` makes times of that.
"""
