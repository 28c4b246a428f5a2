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
    landmark_inverse,
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
Inverse = Literal["exact", "iterated"]
Fixing = Literal["together", "by-block"]
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
        inverse: Kind of the pseudo-inverse of fixed landmarks: by singular values, or by the
            published iterations, which means always have.
        fixing: Order in which landmarks become fixed: those of all layers before the first step, or
            layer by layer, with a training of equal length after each, as published.
    """

    n_landmarks: int = 4
    landmarks: Landmarks = "means"
    inverse: Inverse = "exact"
    fixing: Fixing = "together"

    def __post_init__(self) -> None:
        WindowConfig.__post_init__(self)
        if self.n_landmarks > self.window:
            raise ValueError(f"n_landmarks is {self.n_landmarks}, must be at most the window")


class WindowNystrom(WindowEncoder):
    """Encodes a window by Nyström attention, through means of its segments or fixed landmarks."""

    name = "window-nystrom"
    presets: ClassVar[dict[str, Any]] = {
        "small": NystromConfig(),
        "paper": NystromConfig(**asdict(PAPER), inverse="iterated", fixing="by-block"),
    }
    config: NystromConfig
    landmark_queries: Tensor
    landmark_keys: Tensor
    inverses: Tensor
    layers_fixed: Tensor
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
            inverses = self._inverse_of(slice(None))
            self.register_buffer("inverses", inverses)  # (K, H, m, m)
            if self.config.fixing == "by-block":
                self.register_buffer("layers_fixed", torch.tensor(config.n_layers))
                self.register_load_state_dict_post_hook(WindowNystrom._count_fixed)
        self.n_fixed = config.n_layers if self.is_fixed else 0

    @property
    def is_fixed(self) -> bool:
        """Return whether landmarks are constants, instead of means over the window's segments."""
        return self.config.landmarks == "fixed"

    def _inverse_of(self, k: int | slice) -> Tensor:
        landmarks = self.landmark_queries[k], self.landmark_keys[k]
        return landmark_inverse(*landmarks, iterated=self.config.inverse == "iterated")

    def _count_fixed(self, incompatible: Any = None) -> None:
        """Take the number of layers whose landmarks are fixed from the weights."""
        self.n_fixed = int(self.layers_fixed)

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
        if k < self.n_fixed:
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
        return self.averaging(segments, visible)

    def averaging(self, segments: Tensor, taken: Tensor) -> Tensor:
        """Return weights (B, m, R) that average the rows of each segment."""
        return segment_means(segments, taken, self.config.n_landmarks, self.positions.dtype)

    # Fixed landmarks ------------------------------------------------------------------------------

    @property
    def n_stages(self) -> int:
        """Return the number of parts of a training: one for each layer where they are fixed so."""
        in_turn = self.is_fixed and self.config.fixing == "by-block"
        return self.config.n_layers if in_turn else 1

    def prepare(self, draw: Callable[[int], Batch], generator: torch.Generator) -> None:
        """Set fixed landmarks: cluster the task's queries and keys (Carreto Picon et al., IV-B).

        A layer's tokens come from the layers below with their landmarks already fixed. `draw`
        returns a batch of as many tasks as it is asked for. Layers that are fixed one by one attend
        by means until their turn comes (`prepare_stage`).
        """
        if self.n_stages > 1:
            self.prepare_stage(0, draw, generator)
        elif self.is_fixed:
            self._fix(range(self.config.n_layers), draw, generator)

    def prepare_stage(
        self, stage: int, draw: Callable[[int], Batch], generator: torch.Generator
    ) -> None:
        """Fix the landmarks of layer `stage`; those of the layers below stay as they are."""
        self.n_fixed = stage
        self._fix(range(stage, stage + 1), draw, generator)
        self.n_fixed = stage + 1
        self.layers_fixed.fill_(self.n_fixed)

    @torch.no_grad()
    def _fix(self, fixed: range, draw: Callable[[int], Batch], generator: torch.Generator) -> None:
        """Cluster the queries and keys of some layers, which follow each other."""
        batch = draw(N_CLUSTERED)
        context, targets = batch.x_context, batch.x_target[:, -1:]
        tokens, positions = windows(context, targets, batch.mask, self.reach)
        tokens, positions = tokens[:, 0], positions[:, 0]
        rows = self.embed(tokens) + self.encoding(positions)
        visible = in_window(positions, self.config.window)
        for k in range(fixed.stop):
            layer = self.layer(k)
            if k in fixed:
                self._fix_layer(k, rows, visible, generator)
            rows = layer.finish(rows, self.attend(k, layer, rows, rows, positions, visible))

    def _fix_layer(self, k: int, rows: Tensor, visible: Tensor, generator: torch.Generator) -> None:
        """Cluster the queries and keys of layer k, which reads `rows` (B, R, D)."""
        layer = self.layer(k)
        keys, _ = layer.keys_values(rows)
        for place, tokens_by_head in (
            (self.landmark_queries, queries(layer, rows)),
            (self.landmark_keys, keys),
        ):
            seen = tokens_by_head.transpose(0, 1)[:, visible]  # (H, tokens, d)
            place[k] = clustered(seen, self.config.n_landmarks, generator)
        self.inverses[k] = self._inverse_of(k)
