"""Names of the engines, free of imports so that a help text can show them."""

from __future__ import annotations

ENGINES = ("eager", "inductor", "onnxruntime", "openvino")
"""What an artifact can be compared with, in the order of the report."""

ARTIFACT = "foretune"
