"""Trained models as ONNX step graphs in a bundle, checked against PyTorch."""
