"""Define a continual Nyströmformer: Nyström attention over a sliding window, token by token.

Carreto Picon et al., "Continual Low-Rank Scaled Dot-product Attention", section IV. Its landmarks
are fixed, or means over the segments of a grid over the stream (their Figure 1): every n/m tokens
the mean of the last n/m tokens replaces the oldest landmark. As published, a landmark already
serves the last token of its segment; then the step of every token must be able to make one, which
costs O(n m D). Otherwise it serves from the next token on, and is made between two steps. Until the
first segment is complete, landmarks are 0, which makes attention a plain mean.

In PyTorch an answer is computed from only the window's tokens, without sums that go on; this form
is trained. `continual_nystrom_device` keeps sums, and gives the same answers; `prompt_nystrom`
gives those of landmarks that serve at once.

Letters of shapes: B streams, m landmarks, n tokens of the window, R rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from edgefold.train.contract import StreamingModel
from edgefold.train.layers.nystrom_attention import complete_segments, segment_lengths
from edgefold.train.models.ordered.continual_device import ConsolidatingDevice, ContinualDevice
from edgefold.train.models.ordered.continual_nystrom_device import NystromRetroactive, NystromSingle
from edgefold.train.models.ordered.prompt_nystrom import PromptRetroactive, PromptSingle
from edgefold.train.models.ordered.window_encoder import PAPER
from edgefold.train.models.ordered.window_nystrom import NystromConfig, WindowNystrom

Serves = Literal["next", "last"]
ContinualBlock = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class ContinualNystromConfig(NystromConfig):
    """Holds the sizes of a continual Nyströmformer, and which of its published forms it has.

    Attributes:
        landmark_serves: First token that a mean of a segment serves as a landmark: the one that
            follows the segment, or as published the segment's last one.
        continual_block: Layer whose landmarks are those of a grid over the stream: the first, with
            retroactive attention (the paper's section V), or the last, after layers that read the
            window's own segments (its section IV-C). A device then computes the window again.
    """

    landmark_serves: Serves = "next"
    continual_block: ContinualBlock = "first"


class ContinualNystrom(WindowNystrom):
    """Encodes a stream by the continual form of Nyström attention.

    With several layers only one is continual, by default the first. Every new token changes all
    tokens that the layers above it see: these are computed again, and each of their landmarks is
    the mean of the window's tokens in one segment of the grid, complete or not.
    """

    name = "continual-nystrom"
    presets: ClassVar[dict[str, Any]] = {
        "small": ContinualNystromConfig(),
        "paper": ContinualNystromConfig(
            **asdict(PAPER), inverse="iterated", fixing="by-block", landmark_serves="last"
        ),
    }
    config: ContinualNystromConfig

    @property
    def continual_layer(self) -> int:
        """Return the number of the layer whose landmarks are those of a grid over the stream."""
        return 0 if self.config.continual_block == "first" else self.config.n_layers - 1

    @property
    def reach(self) -> int:
        """Return the number of tokens that an answer depends on.

        It is more than the window, because a landmark's segment began before the window did.
        """
        if self.continual_layer < self.n_fixed:
            return self.config.window
        return self.config.window + max(
            segment_lengths(self.config.window, self.config.n_landmarks)
        )

    def mean_weights(self, k: int, positions: Tensor, visible: Tensor) -> Tensor:
        """Return the weights (B, m, R) by which the m landmarks of layer k are means of R rows.

        `positions` (B, R) are those of the rows' tokens in the stream; `visible` (B, R) is True for
        rows in the window.
        """
        if k < self.continual_layer:
            return super().mean_weights(k, positions, visible)
        grid = self.segment_of, self.end_of, self.config.window
        at_once = self.config.landmark_serves == "last"
        segments, taken = complete_segments(positions, *grid, at_once)
        return self.averaging(segments, taken if k == self.continual_layer else visible)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        if self.continual_layer and self.n_fixed < self.config.n_layers:
            return self
        is_single = self.config.n_layers == 1
        if self.config.landmark_serves == "last" and not self.is_fixed:
            form = PromptSingle if is_single else PromptRetroactive
            return ContinualDevice(self, form(self))
        kept = NystromSingle if is_single else NystromRetroactive
        return ConsolidatingDevice(self, kept(self))
