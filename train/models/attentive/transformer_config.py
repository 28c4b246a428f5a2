"""Settings that all transformers have which keep points."""

from __future__ import annotations

from dataclasses import dataclass

from edgefold.train.layers.embeddings import EmbeddingKind
from edgefold.train.settings import SizedConfig


@dataclass(frozen=True, slots=True)
class TransformerConfig(SizedConfig):
    """The shape of a transformer, and how many points it keeps.

    `embedding` is "mlp" as published, or "fourier", which learns faster; `fourier_std` is described
    at `FourierEmbedding`, `bounded` at `Outputs`. `capacity` and `when_full` are described at
    `PointBuffer`.
    """

    n_inputs: int = 1
    n_outputs: int = 1
    n_layers: int = 6
    width: int = 64
    n_heads: int = 4
    feedforward: int = 128
    embedding: EmbeddingKind = "mlp"
    fourier_std: float = 3.0
    bounded: bool = False
    capacity: int = 256
    when_full: str = "refuse"
