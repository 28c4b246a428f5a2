"""Define a window encoder with Nyström attention, computed again at each token: Nyströmformer.

Xiong et al. 2021; with fixed landmarks the variant of Carreto Picon et al., section V-A.
`continual-nystrom` is compared with it.

Letters of shapes: B streams, m landmarks, R rows, K layers, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor

from edgefold.train.batch import Batch
from edgefold.train.layers.nystrom_attention import (
    center_inverse,
    clustered,
    exact_inverse,
    means,
    nystrom,
    segment_lengths,
    segment_means,
)
from edgefold.train.layers.postnorm_layers import PostNormLayer
from edgefold.train.models.ordered.window_encoder import (
    PAPER,
    WindowConfig,
    WindowEncoder,
    in_window,
    queries,
    unseen,
    windows,
)

Landmarks = Literal["means", "fixed"]
N_CLUSTERED: Final = 64
"""Number of streams of the training task whose tokens are clustered."""


@dataclass(frozen=True, slots=True)
class NystromConfig(WindowConfig):
    """Holds the sizes of an encoder with landmarks.

    Attributes:
        n_landmarks: m, the number of landmarks.
        landmarks: Kind of landmarks: "means" of queries and keys over segments of the window, or
            "fixed" ones: set by clustering before the first training step, then constant. Train
            with means first, then again with fixed ones from the trained weights (`--start-from`).
    """

    n_landmarks: int = 4
    landmarks: Landmarks = "means"

    def __post_init__(self) -> None:
        WindowConfig.__post_init__(self)
        if self.n_landmarks > self.window:
            raise ValueError(f"n_landmarks is {self.n_landmarks}, must be at most the window")


class WindowNystrom(WindowEncoder):
    """Encodes a window by Nyström attention, through means of its segments or fixed landmarks."""

    name = "window-nystrom"
    presets: ClassVar[dict[str, Any]] = {
        "small": NystromConfig(),
        "paper": NystromConfig(**asdict(PAPER)),
    }
    config: NystromConfig
    landmark_queries: Tensor
    landmark_keys: Tensor
    inverses: Tensor
    segment_of: Tensor
    end_of: Tensor

    def __init__(self, config: NystromConfig):
        super().__init__(config)
        lengths = torch.tensor(segment_lengths(config.window, config.n_landmarks))
        segments = torch.arange(config.n_landmarks).repeat_interleave(lengths)
        self.register_buffer("segment_of", segments, persistent=False)  # (n,)
        self.register_buffer("end_of", (lengths.cumsum(0) - 1)[segments], persistent=False)  # (n,)
        if self.is_fixed:
            shape = config.n_layers, config.n_heads, config.n_landmarks
            wide = (*shape, config.width // config.n_heads)
            self.register_buffer("landmark_queries", torch.randn(wide) / wide[-1] ** 0.5)  # scaled
            self.register_buffer("landmark_keys", torch.randn(wide))
            inverses = exact_inverse(self.landmark_queries, self.landmark_keys)
            self.register_buffer("inverses", inverses)  # (K, H, m, m)

    @property
    def is_fixed(self) -> bool:
        """Return whether landmarks are constants, instead of means over the window's segments."""
        return self.config.landmarks == "fixed"

    def attend(
        self,
        k: int,
        layer: PostNormLayer,
        rows: Tensor,
        asked: Tensor,
        positions: Tensor,
        visible: Tensor,
    ) -> Tensor:
        keys, values = layer.keys_values(rows)
        if self.is_fixed:
            landmarks = self.landmark_queries[k], self.landmark_keys[k], self.inverses[k]
        else:
            weights = self.mean_weights(k, positions, visible)
            of_queries, of_keys = means(queries(layer, rows), weights), means(keys, weights)
            landmarks = of_queries, of_keys, center_inverse(of_queries, of_keys)
        return nystrom(queries(layer, asked), *landmarks, keys, values, unseen(visible))

    def mean_weights(self, k: int, positions: Tensor, visible: Tensor) -> Tensor:
        """Return the weights (B, m, R) by which landmarks are means of the R rows.

        A landmark of layer k is the mean of one segment of the window.

        Args:
            k: Number of the layer.
            positions: Positions of the rows' tokens in the stream, (B, R).
            visible: True for rows in the window, (B, R).
        """
        oldest = positions.amax(1, keepdim=True) - (self.config.window - 1)
        segments = self.segment_of[(positions - oldest).clamp_min(0)]
        return segment_means(segments, visible, self.config.n_landmarks)

    # Fixed landmarks ------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self, draw: Callable[[int], Batch], generator: torch.Generator) -> None:
        """Set fixed landmarks: cluster the task's queries and keys (Carreto Picon et al., IV-C).

        A layer's tokens come from the layers below with their landmarks already fixed. `draw`
        returns a batch of as many tasks as it is asked for.
        """
        if not self.is_fixed:
            return
        batch = draw(N_CLUSTERED)
        context, targets = batch.x_context, batch.x_target[:, -1:]
        tokens, positions = windows(context, targets, batch.mask, self.reach)
        tokens, positions = tokens[:, 0], positions[:, 0]
        rows = self.embed(tokens) + self.encoding(positions)
        visible = in_window(positions, self.config.window)
        for k in range(len(self.layers)):
            layer = self.layer(k)
            keys, _ = layer.keys_values(rows)
            for place, tokens_by_head in (
                (self.landmark_queries, queries(layer, rows)),
                (self.landmark_keys, keys),
            ):
                seen = tokens_by_head.transpose(0, 1)[:, visible]  # (H, tokens, d)
                place[k] = clustered(seen, self.config.n_landmarks, generator)
            self.inverses[k] = exact_inverse(self.landmark_queries[k], self.landmark_keys[k])
            rows = layer.finish(rows, self.attend(k, layer, rows, rows, positions, visible))
