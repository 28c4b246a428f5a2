"""Hold the settings of ReTreever (`retreever`), and its presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgefold.train.layers.attention import Reads, Residual
from edgefold.train.layers.embeddings import EmbeddingKind
from edgefold.train.layers.tree_attention import Decisions, EntropyOf, Order
from edgefold.train.settings import Start, require_share, require_sizes


@dataclass(frozen=True, slots=True)
class RetreeverConfig:
    """Holds the sizes of a ReTreever, how it is trained, and how many points it keeps.

    Attributes:
        n_classes, bounded: Settings of the predictions, described at `Outputs`.
        n_encoder_layers: Number of transformer layers over the context; 0 for tree cross attention
            only.
        branching: Children of a node.
        order: How the leaves are sorted: "kd", by all inputs in turn; "axis", by the input number
            `axis`; "projection", by a random direction; "arrival", as they come.
        full: Whether a query reads all leaves instead of searching. Set at export it makes
            ReTreever-Full of a trained model, whose weights serve both; set in training it is plain
            cross attention, and the tree is not trained.
        reward: Reward by which the search is trained: "likelihood", the log-likelihood of a target,
            or "accuracy", with classes: 1 if the right class has the largest score, else 0.
        rl_weight, ca_weight, entropy_weight: Weights in the loss, lambda_RL, lambda_CA and alpha of
            section 3.5.
        decisions, entropy: Decisions of a search that are trained, and the entropy that is its
            bonus: see `Decisions` and `EntropyOf`.
        tree_gradients: Whether the gradient of a node goes on to its children in training. The
            published code stops it before each aggregation (`bptt: False`).
        start: Initial weights: with "published" all layers of the encoder start from the same
            numbers, as the copies of one layer do.
        dropout: Share of each layer's output that is dropped in training.
        residual, reads: Forms of the layers, described at `attention.Residual` and
            `attention.Reads`.
        head_norm: Whether a layer norm stands before the predictor: see `PredictionHead`.
    """

    n_inputs: int = 1
    n_outputs: int = 1
    n_classes: int = 0
    bounded: bool = False
    n_encoder_layers: int = 6
    width: int = 64
    n_heads: int = 4
    feedforward: int = 128
    embedding: EmbeddingKind = "fourier"
    fourier_std: float = 3.0
    branching: int = 2
    order: Order = "kd"
    axis: int = 0
    full: bool = False
    reward: Literal["likelihood", "accuracy"] = "likelihood"
    rl_weight: float = 1.0
    ca_weight: float = 1.0
    entropy_weight: float = 0.01
    decisions: Decisions = "all"
    entropy: EntropyOf = "path"
    tree_gradients: bool = True
    start: Start = "ours"
    dropout: float = 0.0
    residual: Residual = "input"
    reads: Reads = "normalised"
    head_norm: bool = True
    capacity: int = 256
    when_full: str = "refuse"

    def __post_init__(self) -> None:
        require_sizes(self)
        require_share("dropout", self.dropout)
        if self.branching < 2:
            raise ValueError(f"branching is {self.branching}, must be at least 2")
        if self.order == "axis" and not 0 <= self.axis < self.n_inputs:
            raise ValueError(f"axis is {self.axis}, must be from 0 to {self.n_inputs - 1}")
        if self.reward == "accuracy" and not self.n_classes:
            raise ValueError("the reward 'accuracy' needs n_classes")


PRESETS = {
    "small": RetreeverConfig(n_encoder_layers=3),
    "paper": RetreeverConfig(
        embedding="elu",
        order="axis",
        decisions="inner",
        entropy="heads",
        tree_gradients=False,
        start="published",
        residual="normalised",
        reads="raw",
        head_norm=False,
    ),
    "tree": RetreeverConfig(n_encoder_layers=0, order="arrival"),
}
"""Settings by name: `paper` is the published model, with leaves sorted by one input as for all
published scores (set `axis`: the scores of EMNIST are of the first, those of CelebA of the second);
`small` has half its encoder and learns faster; `tree` is only tree cross attention, whose updates
touch one leaf and its ancestors."""
