"""Models of execution behaviour that carry over to hardware they have never seen (LLMTuner).

Reading order: ``ranker`` joins two stages. Of the first, ``tokens`` turns nests of loops into what
a network reads, ``labels`` says which programs of a group are good, ``compact`` is the network and
``classifier`` the ranker around it. Of the second, ``scores`` is the door to sources of scores,
``columns`` and ``memory`` hold what is known of a program, and ``regressor`` makes times of that.
"""
