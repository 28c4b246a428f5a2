"""From a model's steps to ONNX graphs."""
