"""Run encoders on a device: the first layer reads token by token, later layers the window.

Letters of shapes: B streams, X inputs, H heads, n tokens of the window, D width.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from edgefold.train.contract import Prediction, Ring, State
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.ordered.continual_attention import at_index
from edgefold.train.models.ordered.window_encoder import WindowEncoder, positions_of


class ContinualForm(Protocol):
    """Describes the attention of a first layer that is kept as a state and updated by a step.

    Shapes: B streams, H heads, d numbers of a head, n tokens of the window, D width.

    Attributes:
        rings: By name of a state tensor of which a step returns only the newest token's row: where
            that row is written, over the oldest one.
    """

    rings: dict[str, Ring]

    def initial_state(self, like: Tensor, n_streams: int) -> State:
        """Return the state before the first token, of the type and device of `like`."""

    def step(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        """Take an embedded token (B, D) and attend.

        Returns:
            The state tensors that change, and the attention: of the newest token (B, H, d), or of
                all tokens in the window (B, H, n, d), token p at place p modulo n.
        """


class ConsolidatingForm(ContinualForm, Protocol):
    """Describes an attention whose state is computed again between two tokens, now and then.

    Attributes:
        period: Number of tokens after which `consolidate` must run.
    """

    period: int

    def consolidate(self, state: State) -> State:
        """Compute the state again: return its tensors that change.

        The state also holds `n_tokens` (B,), the number of tokens so far.
        """


class ContinualDevice(DeviceForm):
    """Runs an encoder on a device: it reads a token (B, X) and returns class scores (B, classes).

    The state is that of `form`, the first layer's attention, `n_tokens` (B,), and with several
    layers `rows` (B, n, D), the embedded tokens to which the first layer's output is added.
    """

    def __init__(self, model: WindowEncoder, form: ContinualForm):
        super().__init__(model)
        self.model, self.form = model, form
        self.first, self.has_more = model.layer(0), len(model.layers) > 1
        self.rings = dict(form.rings)
        if self.has_more:
            self.rings["rows"] = Ring(axis=1, counter="n_tokens")

    def initial_state(self, n_streams: int = 1) -> State:
        like, config = self.model.positions, self.model.config
        state = self.form.initial_state(like, n_streams)
        if self.has_more:
            state["rows"] = like.new_zeros(n_streams, config.window, config.width)
        return {**state, "n_tokens": torch.zeros(n_streams, dtype=torch.int64)}

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        n_tokens = state["n_tokens"]
        row = self.model.embed(x) + self.model.encoding(n_tokens)  # (B, D)
        written, attended = self.form.step(state, row)
        if self.has_more:
            written["rows"] = row[:, None]
            last = self._above(state, row, attended)
        else:
            last = self.first.finish(row[:, None], attended[:, :, None])[:, 0]
        scores = self.model.scores(last)
        return {**written, "n_tokens": n_tokens + 1, "finite": scores.sum(-1)}, {"scores": scores}

    def _above(self, state: State, row: Tensor, attended: Tensor) -> Tensor:
        """Return the output (B, D) of the layers above the first one for the newest token.

        Args:
            state: State before the token.
            row: The embedded token, (B, D).
            attended: First layer's attention of all tokens, (B, H, n, d).
        """
        n_tokens, window = state["n_tokens"], self.model.config.window
        slot = torch.remainder(n_tokens, window)  # (B,), of the newest token
        newest = torch.arange(window, device=row.device) == slot[:, None]  # (B, n)
        rows = torch.where(newest[..., None], row[:, None], state["rows"])
        rows = self.first.finish(rows, attended)
        positions = positions_of(n_tokens + 1, window)

        def pick(rows: Tensor) -> Tensor:
            return at_index(rows, slot)[:, None]

        return self.model.encode(rows, positions, pick, first=1)[:, 0]


class ConsolidatingDevice(ContinualDevice):
    """Runs an encoder on a device whose attention must compute its state again now and then."""

    def __init__(self, model: WindowEncoder, form: ConsolidatingForm):
        super().__init__(model, form)
        self.consolidate_every, self._consolidate = form.period, form.consolidate

    def consolidate(self, state: State) -> State:
        return self._consolidate(state)
