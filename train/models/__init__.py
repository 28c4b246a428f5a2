"""One file a model, all on the contract of `contract.py`."""
