"""Child of `benchmarks.memory.process`: from Python's start to a prediction and on, with PyTorch.

Usage: python benchmarks/memory/first_torch.py RUN

The same work as `first_edgefold.py`, in the paper's manner: a refresh at each update.
"""

import sys
from pathlib import Path

import torch

from edgefold.train.checkpoints import load_model


def main() -> None:
    """Learn two points, predict, then run every step of the model."""
    torch.set_num_threads(1)
    model, _ = load_model(Path(sys.argv[1]))
    with torch.inference_mode():
        state = model.initial_state()
        for x, y in ((-0.5, 0.3), (0.5, 0.7)):
            state = model.update(state, torch.tensor([[x]]), torch.tensor([[y]]))
            cache = model.refresh(state)
        print("prediction", model.query(cache, torch.tensor([[[0.1]]]))["mean"].item(), flush=True)
        history = torch.linspace(-2, 2, 64)[None, :, None]
        state = model.condition(state, history, history)
        for i in range(30):
            x_new = torch.tensor([[i / 15 - 1]])
            state = model.update(state, x_new, torch.tensor([[0.5]]))
            cache = model.refresh(state)
        model.query(cache, history[:, :16])
    print("imported torch")


if __name__ == "__main__":
    main()
