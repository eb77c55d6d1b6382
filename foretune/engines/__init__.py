"""Other ways to run a model, to compare an artifact with: PyTorch, ONNX Runtime, OpenVINO.

Every engine lives in a child process of its own, because the thread pools of several runtimes in
one process fight for the cores (OpenMP spins after its work is done). The children stay alive and
are timed one at a time, in rounds A B C A B C, so that a slow episode of the machine meets all of
them.
"""

from foretune.engines._compare import ENGINES, EngineResult, bootstrap_median, compare

__all__ = ["ENGINES", "EngineResult", "bootstrap_median", "compare"]
