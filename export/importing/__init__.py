"""Read an ONNX file that keeps its state in its inputs and outputs."""
