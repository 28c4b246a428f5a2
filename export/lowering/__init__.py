"""Turn the steps of a PyTorch model into ONNX graphs."""
