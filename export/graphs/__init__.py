"""Define step graphs (one ONNX graph for each step of a model); read, fold and rewrite them."""
