"""Run a bundle's graphs with TensorRT: build engines, keep them, drive the GPU."""
