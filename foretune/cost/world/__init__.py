"""The compiler world model as a ranker (``foretune.world`` has its states and transitions).

Reading order: ``ranker`` says what ranks and why; ``learning`` what is learned of training groups,
from what ``programs`` looks at; ``model`` rolls candidates out, whose actions ``actions`` numbers;
``readers`` say what a state is made of; ``head`` is what gradient search climbs.
"""

from foretune.cost.world.ranker import WorldRanker

__all__ = ["WorldRanker"]
