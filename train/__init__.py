"""Streaming models in PyTorch, the tasks they learn from, and the loop that trains them."""
