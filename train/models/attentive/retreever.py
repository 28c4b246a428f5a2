"""ReTreever: an encoder of the context, and one layer of tree cross attention (Feng et al. 2024).

What an update costs depends on the settings:

    no encoder, order of arrival   what is deployed keeps the tree: an update makes one leaf and its
                                   ancestors anew, and nothing else (`retreever_device`)
    no encoder, sorted leaves      every point may move: `refresh` sorts, and makes the tree of
                                   O(N) nodes
    an encoder                     every point changes every other one: `refresh` encodes all of
                                   them, O(N^2) a layer, and makes the tree

N is the capacity there. A query reads O(log N) nodes in all cases, or all leaves with `full`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from edgefold.train.batch import Batch
from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.embeddings import EmbeddingKind, embedding_of
from edgefold.train.layers.prediction_head import Outputs, PredictionHead
from edgefold.train.layers.tree_attention import (
    ORDERS,
    Noise,
    Order,
    Retrieved,
    TransformerLayer,
    TreeAttention,
    attended_leaves,
    attended_nodes,
    leaf_order,
    level_sizes,
    no_noise,
    rows_at,
    search,
)
from edgefold.train.models.attentive.retreever_device import EncodedTreeOnDevice, TreeOnDevice
from edgefold.train.paper_training import PAPER_TRAINING
from edgefold.train.published import Published, as_published
from edgefold.train.settings import require_share, require_sizes
from edgefold.train.states.point_buffer import COUNT, PointBuffer


@dataclass(frozen=True, slots=True)
class RetreeverConfig:
    """The shape of a ReTreever, how it is trained, and how many points it keeps.

    Attributes:
        n_classes, bounded: Described at `Outputs`.
        n_encoder_layers: Transformer layers over the context; 0 for tree cross attention alone.
        branching: Children of a node.
        order: How the leaves are sorted: "kd", by all inputs in turn; "axis", by the input number
            `axis`; "projection", by a random direction; "arrival", as they come.
        full: Whether a query reads all leaves instead of searching. Set at export it makes
            ReTreever-Full of a trained model, whose weights serve both; set in training it is plain
            cross attention, and the tree is not trained.
        reward: What the search is trained by: the log-likelihood of a target, or with classes
            whether the right one has the largest score.
        rl_weight, ca_weight, entropy_weight: lambda_RL, lambda_CA and alpha of section 3.5.
        dropout: Share of each layer's output that is dropped in training.
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
    dropout: float = 0.0
    capacity: int = 256
    when_full: str = "refuse"

    def __post_init__(self) -> None:
        require_sizes(self)
        require_share("dropout", self.dropout)
        if self.branching < 2:
            raise ValueError(f"branching is {self.branching}, must be at least 2")
        if self.order not in ORDERS:
            raise ValueError(f"order is {self.order!r}; take one of {', '.join(ORDERS)}")
        if self.order == "axis" and not 0 <= self.axis < self.n_inputs:
            raise ValueError(f"axis is {self.axis}, must be from 0 to {self.n_inputs - 1}")
        if self.reward == "accuracy" and not self.n_classes:
            raise ValueError("the reward 'accuracy' needs n_classes")


PRESETS = {
    "small": RetreeverConfig(n_encoder_layers=3),
    "paper": RetreeverConfig(embedding="mlp"),
    "tree": RetreeverConfig(n_encoder_layers=0, order="arrival"),
}
"""`paper` is the published size; `small` has half its encoder and learns faster; `tree` is tree
cross attention alone, whose updates touch one way up the tree."""
PUBLISHED = as_published({"ReTreever": (1.25, 0.81), "ReTreever-Full": (1.33, 0.90)})
"""Log-likelihood under RBF and Matern 5/2, table 7 of Feng et al. 2024."""
POINTS, PLACES = "points", "places"


class Tree(NamedTuple):
    """Keys and values of the nodes by level, from the leaves up, (B, n, 2D); leaves (B,)."""

    levels: list[Tensor]
    n_leaves: Tensor

    @property
    def exists(self) -> Tensor:
        """Which leaves exist, (B, n)."""
        places = torch.arange(self.levels[0].shape[1], device=self.n_leaves.device)
        return places < self.n_leaves[:, None]


class Retreever(StreamingModel):
    """Embedded points in a buffer, and what a tree search needs of them as the cache.

    State, per stream: `points` (B, capacity, D), and `places` (B, capacity, P), by which leaves are
    sorted, unless they come in order of arrival. Cache: `level_0` (leaves), `level_1` and so on,
    keys and values of the nodes, (B, n, 2D); `count` (B,).
    """

    name = "retreever"
    presets: ClassVar[Mapping[str, RetreeverConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING
    published: ClassVar[Published] = PUBLISHED
    projection: Tensor

    def __init__(self, config: RetreeverConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.outputs = Outputs(config.n_outputs, config.n_classes, config.bounded)
        self.prediction = self.outputs.prediction
        self.capacity, self.when_full = config.capacity, config.when_full
        arrival = config.order == "arrival"
        self.ordered = arrival or config.when_full != "refuse"
        rows = {POINTS: (config.width,)}
        if not arrival:
            rows[PLACES] = (1 if config.order == "projection" else config.n_inputs,)
        self.buffer = PointBuffer(config.capacity, config.when_full, rows)
        self.rings = self.buffer.rings
        self.n_levels = 1 if config.full else len(level_sizes(config.capacity, config.branching))
        self.embedding = embedding_of(
            config.embedding,
            config.n_inputs,
            self.outputs.n_encoded,
            config.width,
            config.fourier_std,
        )
        layer = config.width, config.n_heads, config.feedforward
        encoder = (TransformerLayer(*layer) for _ in range(config.n_encoder_layers))
        self.encoder = cast("list[TransformerLayer]", nn.ModuleList(encoder))
        self.tree = TreeAttention(*layer, config.branching)
        self.head = PredictionHead(config.width, self.outputs)
        # Footnote 4 of the paper: drawn once, and kept with the weights.
        self.register_buffer("projection", torch.randn(config.n_inputs, 1))

    # The stream -----------------------------------------------------------------------------------

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        rows = {POINTS: self.embedding.points(x, self.outputs.encoded(y)), PLACES: self.places(x)}
        return self.buffer.written(state, {name: rows[name] for name in self.buffer.rows})

    def refresh(self, state: State) -> Cache:
        """Encode all points, order them and make the tree: O(N^2) a layer, and O(N) nodes."""
        capacity = self.capacity
        visible = self.buffer.visible(state)[:, :capacity]
        places = state[PLACES][:, :capacity] if PLACES in state else None
        tree = self._tree(state[POINTS][:, :capacity], places, visible)
        return {
            COUNT: state[COUNT],
            **{f"level_{level}": rows for level, rows in enumerate(tree.levels)},
        }

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        levels = [cache[f"level_{level}"] for level in range(self.n_levels)]
        tree = Tree(levels, cache[COUNT].clamp(max=self.capacity))
        return self._answer(self.embedding.queries(x), tree)

    def search(self, cache: Cache, x: Tensor) -> Retrieved:
        """What queries at x (B, M, X) read, where they do not read all leaves."""
        levels = [cache[f"level_{level}"] for level in range(self.n_levels)]
        queries = self.tree.queries(self.embedding.queries(x))
        n_leaves = cache[COUNT].clamp(max=self.capacity)
        return search(queries, levels, n_leaves, self.config.branching)

    # Training -------------------------------------------------------------------------------------

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """All points at once; no capacity bounds them."""
        tree = self._tree_of(x_context, y_context, mask)
        return self._answer(self.embedding.queries(x_target), tree)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Section 3.5: the loss of what the search reads and of all leaves, and REINFORCE.

        The path is drawn from the policy; the reward has no baseline. With `full` the loss is that
        of all leaves alone: nothing searches.
        """
        config = self.config
        noise = no_noise
        if config.dropout:
            noise = _Dropout(config.dropout, generator)
        tree = self._tree_of(batch.x_context, batch.y_context, batch.mask, noise)
        hidden = noise(self.embedding.queries(batch.x_target))
        if config.full:
            prediction = self._answer(hidden, tree, noise)
            found = self.prediction.log_likelihood(prediction, batch.y_target, torch)
            return -cast(Tensor, found).mean()
        shape = (len(tree.levels), *hidden.shape[:2], config.branching)
        uniform = torch.rand(shape, generator=generator).clamp(1e-7, 1 - 1e-7).to(hidden.device)
        queries = self.tree.queries(hidden)
        found = search(queries, tree.levels, tree.n_leaves, config.branching, uniform)
        of_leaves = attended_leaves(queries, tree.levels[0], tree.exists)
        answer, answer_of_leaves = (
            self.head(self.tree.after(hidden, attended, noise))
            for attended in (attended_nodes(found), of_leaves)
        )
        likelihood, leaves_likelihood = (
            cast(Tensor, self.prediction.log_likelihood(prediction, batch.y_target, torch))
            for prediction in (answer, answer_of_leaves)
        )
        if config.reward == "accuracy":
            reward = (answer["scores"].argmax(-1) == batch.y_target[..., 0]).float()
        else:
            reward = likelihood.detach()
        policy = reward * found.log_chance + config.entropy_weight * found.entropy
        gains = likelihood + config.rl_weight * policy + config.ca_weight * leaves_likelihood
        return -gains.mean()

    def tokens_read(self, batch: Batch) -> Tensor:
        tree = self._tree_of(batch.x_context, batch.y_context, batch.mask)
        if self.config.full:
            return tree.n_leaves[:, None].expand(batch.x_target.shape[:2])
        queries = self.tree.queries(self.embedding.queries(batch.x_target))
        return search(queries, tree.levels, tree.n_leaves, self.config.branching).n_read

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        keeps_tree = not self.encoder and self.config.order == "arrival"
        return (TreeOnDevice if keeps_tree else EncodedTreeOnDevice)(self, n_streams)

    # Parts ----------------------------------------------------------------------------------------

    def places(self, x: Tensor) -> Tensor:
        """Numbers (..., P) by which points at x (..., X) are sorted."""
        return x @ self.projection if self.config.order == "projection" else x

    def _tree_of(self, x: Tensor, y: Tensor, mask: Tensor | None, noise: Noise = no_noise) -> Tree:
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if x.shape[1] == 0:  # one point that does not exist
            x, y, mask = (t.new_zeros(len(t), 1, *t.shape[2:]) for t in (x, y, mask))
        x, y = (torch.where(mask[..., None], points, 0.0) for points in (x, y))
        points = self.embedding.points(x, self.outputs.encoded(y))
        return self._tree(noise(points), self.places(x), mask, noise)

    def _tree(
        self, points: Tensor, places: Tensor | None, visible: Tensor, noise: Noise = no_noise
    ) -> Tree:
        """The tree of embedded points (B, N, D), of which some exist (B, N)."""
        for layer in self.encoder:
            points = layer(points, visible, noise)
        n_leaves = visible.sum(-1)
        if places is not None:
            c = self.config
            order = leaf_order(places, visible, c.order, c.branching, c.axis)  # (B, n)
            points = rows_at(points, order.clamp(max=points.shape[1] - 1))
        n_levels = 1 if self.config.full else None
        return Tree(self.tree.levels(points, n_leaves, noise, n_levels), n_leaves)

    def _answer(self, hidden: Tensor, tree: Tree, noise: Noise = no_noise) -> Prediction:
        queries = self.tree.queries(hidden)
        if self.config.full:
            attended = attended_leaves(queries, tree.levels[0], tree.exists)
        else:
            found = search(queries, tree.levels, tree.n_leaves, self.config.branching)
            attended = attended_nodes(found)
        hidden = self.tree.after(hidden, attended, noise)
        prediction: Prediction = self.head(hidden)
        return prediction


class _Dropout:
    """Sets a share of the numbers to 0, drawn from a generator, and scales the others up."""

    def __init__(self, share: float, generator: torch.Generator):
        self.share, self.generator = share, generator

    def __call__(self, x: Tensor) -> Tensor:
        kept = torch.rand(x.shape, generator=self.generator) >= self.share
        return x * (kept.to(x.device) / (1 - self.share))
