"""Scores by a model of transformers in this process, tuned for the schema.

See ``foretune_research.hf.score_model`` for how numbers are read off, and
the package ``foretune-research`` for how such a model is made. Programs of equal text are
read once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foretune._arrays import FloatArray
from foretune.cost.behaviour import prompts
from foretune.cost.behaviour.answers import Counts
from foretune.cost.behaviour.scores import ScoreSource, scores_alone
from foretune.describe import METRICS, Behaviours, Nests
from foretune.describe.text import device_text, program_text
from foretune.hardware import Device
from foretune_research.hf.score_model import ScoreModel

_REMEMBERED = 1 << 14


class HfScores(ScoreSource):
    """A tuned local model.

    Args:
        folder: Of the model, as ``distillation.tune`` writes it.
        readout: ``"digits"`` or ``"heads"``; what the folder says if None.
        threads: Threads PyTorch may use; None: as many as it would otherwise.
        device: PyTorch's name of a device; None: a CUDA device where there is one.

    Raises:
        BadInputError: The folder holds no such model.
        MissingDependencyError: PyTorch or transformers is not installed.
    """

    name = "hf"

    def __init__(
        self,
        folder: Path | str,
        *,
        readout: str | None = None,
        threads: int | None = None,
        device: str | None = None,
    ) -> None:
        self.model = ScoreModel(folder, readout, device)
        self.threads = threads
        self.counts = Counts()
        self._known: dict[tuple[str, str], FloatArray] = {}

    def behaviours(self, nests: Nests, device: Device) -> Behaviours:
        """Scores of the model, and nothing else."""
        from foretune import _torch

        prefix = prompts.instructions(device, device_text(device))
        texts = [program_text(nests, row) for row in range(len(nests))]
        new = [t for t in dict.fromkeys(texts) if (prefix, t) not in self._known]
        self.counts.programs += len(texts)
        self.counts.cached += len(texts) - len(new)
        if new:
            with _torch.limited_threads(self.threads):
                found = self.model.scores([prompts.question(prefix, t) for t in new], device.kind)
            self.counts.answers += len(new)
            self._known.update({(prefix, t): s for t, s in zip(new, found, strict=True)})
        scores = np.array([self._known[prefix, text] for text in texts], dtype=np.float64)
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return scores_alone(device, scores.reshape(len(texts), len(METRICS)))
