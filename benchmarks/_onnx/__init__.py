"""Parts of the benchmark of ONNX's own tests."""
