"""Define a continual Nyströmformer: Nyström attention over a sliding window, token by token.

Carreto Picon et al., "Continual Low-Rank Scaled Dot-product Attention", section IV. Its landmarks
are fixed, or means over the segments of a grid over the stream (their Figure 1): every n/m tokens
the mean of the last n/m tokens replaces the oldest landmark. A landmark serves from the token on
that follows its segment; as published, it already serves the segment's last token. Until the first
segment is complete, landmarks are 0, which makes attention a plain mean.

In PyTorch an answer is computed from only the window's tokens, without sums that go on; this form
is trained. `continual_nystrom_device` keeps sums, and gives the same answers.

Letters of shapes: B streams, m landmarks, n tokens of the window, R rows.
"""

from __future__ import annotations

from torch import Tensor

from edgefold.train.contract import StreamingModel
from edgefold.train.layers.nystrom_attention import (
    complete_segments,
    segment_lengths,
    segment_means,
)
from edgefold.train.models.ordered.continual_device import ConsolidatingDevice
from edgefold.train.models.ordered.continual_nystrom_device import NystromRetroactive, NystromSingle
from edgefold.train.models.ordered.window_nystrom import WindowNystrom


class ContinualNystrom(WindowNystrom):
    """Encodes a stream by the continual form of Nyström attention.

    With several layers only the first one is continual. Every new token changes all tokens that the
    layers above see: these are computed again, and each of their landmarks is the mean of the
    window's tokens in one segment of the grid, complete or not.
    """

    name = "continual-nystrom"

    @property
    def reach(self) -> int:
        """Return the number of tokens that an answer depends on.

        It is more than the window, because a landmark's segment began before the window did.
        """
        if self.is_fixed:
            return self.config.window
        return self.config.window + max(
            segment_lengths(self.config.window, self.config.n_landmarks)
        )

    def mean_weights(self, k: int, positions: Tensor, visible: Tensor) -> Tensor:
        """Return the weights (B, m, R) by which the m landmarks of layer k are means of R rows.

        `positions` (B, R) are those of the rows' tokens in the stream; `visible` (B, R) is True for
        rows in the window.
        """
        n = self.config.window
        segments, taken = complete_segments(positions, self.segment_of, self.end_of, n)
        return segment_means(segments, visible if k else taken, self.config.n_landmarks)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        if self.config.n_layers == 1:
            return ConsolidatingDevice(self, NystromSingle(self))
        return ConsolidatingDevice(self, NystromRetroactive(self))
