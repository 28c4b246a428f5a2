"""A keyword spotter: one frame of 40 log-mel energies in, scores of 12 classes out.

It is of the filtering kind: there is nothing to learn on the device, and each input has its answer.
A frame comes every 10 ms. Its slow mean over the stream is subtracted, which removes microphone and
room; three depthwise separable convolutions see the last 21 frames; a GRU carries what came before.
The parts are those of Zhang et al., "Hello Edge: Keyword Spotting on Microcontrollers", 2017; the
classes are the ten words, silence and unknown of Warden, "Speech Commands", 2018.

    edgefold verify examples/keyword_spotter.py:KeywordSpotter
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions import Categorical
from edgefold.train.contract import Prediction, State, StreamingModel


class KeywordSpotter(StreamingModel):
    """Convolutions over frames, a GRU, and linear scores.

    Args:
        width: D.
        n_layers: Convolutions.
        kernel: Frames that one convolution sees.
        memory: Frames over which the mean is taken.
        n_inputs: X, energies of one frame.
        n_classes: Classes.
    """

    def __init__(
        self,
        width: int = 64,
        n_layers: int = 3,
        kernel: int = 7,
        memory: float = 300.0,
        n_inputs: int = 40,
        n_classes: int = 12,
    ):
        super().__init__()
        self.n_inputs, self.prediction = n_inputs, Categorical(n_classes)
        self.kernel, self.memory = kernel, memory
        self.embed = nn.Linear(n_inputs, width)
        # Depthwise kernels, (kernel, D): each channel has its own; then a mix of the channels.
        self.kernels = nn.ParameterList(
            torch.randn(kernel, width) / kernel for _ in range(n_layers)
        )
        self.mixes = nn.ModuleList(nn.Linear(width, width) for _ in range(n_layers))
        self.cell = nn.GRUCell(width, width)
        self.scores = nn.Linear(width, n_classes)

    def initial_state(self, n_streams: int = 1) -> State:
        """The mean (B, X), the last frames of each layer (B, kernel - 1, D), the GRU (B, D)."""
        like = self.embed.weight
        frames = (n_streams, self.kernel - 1, like.shape[0])
        return {f"frames_{k}": like.new_zeros(frames) for k in range(len(self.mixes))} | {
            "mean": like.new_zeros(n_streams, self.n_inputs),
            "hidden": like.new_zeros(n_streams, like.shape[0]),
        }

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        """x (B, X); scores (B, classes)."""
        mean = state["mean"] + (x - state["mean"]) / self.memory
        following = {"mean": mean}
        hidden = self.embed(x - mean)
        for k, (kernel, mix) in enumerate(zip(self.kernels, self.mixes, strict=True)):
            frames = torch.cat([state[f"frames_{k}"], hidden[:, None]], 1)  # (B, kernel, D)
            following[f"frames_{k}"] = frames[:, 1:]
            hidden = hidden + torch.relu(mix((frames * kernel).sum(1)))
        following["hidden"] = self.cell(hidden, state["hidden"])
        return following, {"scores": self.scores(following["hidden"])}
