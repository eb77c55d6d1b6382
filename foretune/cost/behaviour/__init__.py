"""Models of execution behaviour that carry over to hardware they have never seen (LLMTuner).

Reading order: ``ranker`` joins two stages. Of the first, ``tokens`` turns nests of loops into what
a network reads, ``labels`` says which programs of a group are good, ``compact`` is the network and
``classifier`` the ranker around it. Of the second, ``scores`` is the door to sources of scores,
``columns`` and ``memory`` hold what is known of a program, and ``regressor`` makes times of that.

Besides: ``_statements`` and ``_loop_columns`` hold tokens as arrays, ``reading`` groups as nests,
``targets`` what the regressor learns, ``line`` and ``trees`` its parts, ``lessons`` what it learns
from, ``regressors`` those of several sources. ``composition`` makes one
order of the stages, ``model`` corrects it by a run; ``table_rankers`` reads behaviour beside
decisions, ``_asked`` the columns for that. ``llm_scores``, ``prompts`` and ``answers`` ask a
language model for scores. ``_ranker_options`` refuses options by name, ``identities`` says which
devices were seen.
"""
