"""What is known of engines without importing anything, so that a help text can show their names."""

from __future__ import annotations

ENGINES = ("eager", "inductor", "onnxruntime", "openvino")
"""What an artifact can be compared with, in the order of the report."""

ARTIFACT = "foretune"

SPINNING_S = 0.4
"""Thread pools go on spinning after their work, OpenMP's for 0.2 s and TVM's for up to 0.3 s:
nobody is timed before."""
