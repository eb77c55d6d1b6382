"""Cost models: how good is a candidate?"""

from foretune.cost._base import CostModel, Prediction

__all__ = ["CostModel", "Prediction"]
