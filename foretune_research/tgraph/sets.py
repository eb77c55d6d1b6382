"""TGraph's head over sets: candidates of one program that are compared with anchors, in PyTorch.

Idea: what ranks configurations of a graph ranks schedules of a program, too. A candidate has no
nodes, only columns; what is left of TGraph is f_in with its attention over channels and across
configurations. As in ``corrected``, a candidate is compared with itself and with fixed anchors, so
that its score does not depend on what is scored beside it.

Source: equations 5 to 7 of Tatarkhanov et al., TGraph (2025), without graph convolutions.
"""

from __future__ import annotations

from torch import Tensor, nn

from foretune.tgraph._layers import Dense
from foretune_research.tgraph.config import VariantsConfig


class SetNetwork(nn.Module):
    """Scores candidates by their columns and those of their anchors.

    Args:
        columns: Of a candidate.
        anchors: Rows that stand before each candidate's own; 0: no attention across candidates.
        width: Channels, a multiple of 16.
        depth: Layers.
        channel_attention: Equation 5.
        dropout: Share of the last layer's numbers left out at random in training.
    """

    def __init__(
        self,
        columns: int,
        anchors: int,
        width: int,
        depth: int,
        channel_attention: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        config = VariantsConfig(width=width, channel_attention=channel_attention)
        self._anchors = anchors
        widths = [columns, *[width] * (depth - 1)]
        self.layers = nn.ModuleList(Dense(each, config, anchors > 0) for each in widths)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, 1)

    def forward(self, rows: Tensor, counts: Tensor, context: Tensor) -> Tensor:
        """Scores, shape (n, 1), of n candidates.

        Args:
            rows: Shape (n * (anchors + 1), columns): of each its anchors, then itself.
            counts, context: Not looked at.
        """
        del counts, context
        x = rows.view(-1, self._anchors + 1, rows.shape[1])
        for layer in self.layers:
            x = layer(x, self._anchors)
        scores: Tensor = self.out(self.dropout(x[:, -1]))
        return scores
