"""Test a model against the contract, and a bundle against PyTorch."""
