"""TensorRT as a backend: engines, their cache, and what drives them."""
