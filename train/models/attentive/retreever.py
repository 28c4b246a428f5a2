"""Define ReTreever: a context encoder and a layer of tree cross attention (Feng et al. 2024).

The context is the points learned so far. The cost of an update depends on the settings:

    no encoder, order of arrival   a device keeps the tree: an update makes one leaf and its
                                   ancestors again, and nothing else
    no encoder, sorted leaves      every point may move: `refresh` sorts, and makes the tree of
                                   O(N) nodes
    an encoder                     every point changes every other one: `refresh` encodes all of
                                   them, O(N^2) a layer, and makes the tree

N is the capacity. A query reads O(log N) nodes in all cases, or all leaves with `full`.

A device runs one of two forms, in which products of one input are one product:

    TreeOnDevice           the first case: the tree is the state, and there is no refresh
    EncodedTreeOnDevice    the other cases: the state holds embedded points

An update makes a leaf and its `height` - 1 ancestors: the root is never read, so it is not made. A
node needs only its children, so that all others stay as they are, to the bit.

Letters of shapes: B streams, M targets, X inputs, P sorting numbers, D width, n nodes of a level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.batch import Batch
from edgefold.train.contract import FINITE, Cache, Prediction, Ring, State, StreamingModel
from edgefold.train.layers.device_layers import (
    Affine,
    FeedForwardOnDevice,
    ResidualNorm,
    exact,
    fold,
    join_products,
    normalise,
    scaled,
)
from edgefold.train.layers.embeddings import embedding_of, embedding_on_device
from edgefold.train.layers.prediction_head import HeadOnDevice, Outputs, PredictionHead
from edgefold.train.layers.prenorm_layers import AttentionLayerOnDevice
from edgefold.train.layers.starts import start_alike
from edgefold.train.layers.tree_attention import (
    AggregatorOnDevice,
    Dropout,
    Noise,
    Retrieved,
    TransformerLayer,
    TreeAttention,
    TreeSizes,
    attended_leaves,
    attended_nodes,
    leaf_order,
    level_sizes,
    no_noise,
    nodes_by_level,
    rows_at,
    search,
)
from edgefold.train.models.attentive.retreever_config import PRESETS, RetreeverConfig
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.kept_points import PointsModel
from edgefold.train.published import Published, as_published
from edgefold.train.settings import PAPER_TRAINING
from edgefold.train.states.point_buffer import COUNT, SLOT, PointBuffer, real_points

PUBLISHED = as_published(
    {"ReTreever": (1.25, 0.81), "ReTreever-Full": (1.33, 0.90)},
    {"ReTreever": (3.52, None, None, 1.30), "ReTreever-Full": (3.77,)},
)
"""Published log-likelihoods in nats: for GP tasks (RBF and Matern 5/2) table 7 of Feng et al. 2024
(tree cross attention), for images tables 3 and 7. EMNIST is of the classes seen in training."""
POINTS, PLACES = "points", "places"


class Tree(NamedTuple):
    """Holds the keys and values of a tree's nodes, by level.

    Attributes:
        levels: Keys and values side by side, (B, n, 2D), from the leaves up.
        n_leaves: Number of leaves that exist, (B,).
    """

    levels: list[Tensor]
    n_leaves: Tensor

    @property
    def exists(self) -> Tensor:
        """Return which leaves exist, True or False, (B, n)."""
        places = torch.arange(self.levels[0].shape[1], device=self.n_leaves.device)
        return places < self.n_leaves[:, None]


class Retreever(PointsModel):
    """Keeps embedded points in a buffer; its cache is the tree that queries search.

    State, per stream: `points` (B, capacity, D), and `places` (B, capacity, P), the inputs or their
    projection, by which leaves are sorted; without `places` they come in order of arrival. Cache:
    `level_0` (leaves), `level_1` and so on, keys and values of the nodes, (B, n, 2D); `count` (B,).
    """

    name = "retreever"
    presets: ClassVar[Mapping[str, RetreeverConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING
    published: ClassVar[Published] = PUBLISHED
    projection: Tensor

    def __init__(self, config: RetreeverConfig):
        super().__init__()
        self.outputs = Outputs(config.n_outputs, config.n_classes, config.bounded)
        self.prediction = self.outputs.prediction
        rows = {POINTS: (config.width,)}
        if config.order != "arrival":
            rows[PLACES] = (1 if config.order == "projection" else config.n_inputs,)
        self.keep_points(config, rows)
        self.ordered |= config.order == "arrival"
        self.n_levels = 1 if config.full else len(level_sizes(config.capacity, config.branching))
        self.embedding = embedding_of(
            config.embedding,
            config.n_inputs,
            self.outputs.n_encoded,
            config.width,
            config.fourier_std,
        )
        sizes = TreeSizes(
            *(config.width, config.n_heads, config.feedforward, config.residual, config.reads)
        )
        encoder = (TransformerLayer(sizes) for _ in range(config.n_encoder_layers))
        self.encoder = cast("list[TransformerLayer]", nn.ModuleList(encoder))
        self.tree = TreeAttention(sizes, config.branching, config.tree_gradients)
        self.head = PredictionHead(config.width, self.outputs, config.head_norm)
        if config.start == "published":
            start_alike(self.encoder)
        # Footnote 4 of the paper: drawn once, and kept with the weights.
        self.register_buffer("projection", torch.randn(config.n_inputs, 1))

    # The stream -----------------------------------------------------------------------------------

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        rows = {POINTS: self.embedding.points(x, self.outputs.encoded(y)), PLACES: self.places(x)}
        return self.buffer.written(state, {name: rows[name] for name in self.buffer.rows})

    def refresh(self, state: State) -> Cache:
        """Encode all points, order them and make the tree: O(N^2) for a layer, and O(N) nodes."""
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
        """Return the nodes that queries at x (B, M, X) meet in a search; not used with `full`."""
        levels = [cache[f"level_{level}"] for level in range(self.n_levels)]
        queries = self.tree.queries(self.embedding.queries(x))
        n_leaves = cache[COUNT].clamp(max=self.capacity)
        return search(queries, levels, n_leaves, self.config.branching)

    # Training -------------------------------------------------------------------------------------

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """Predict targets from all context points at once, of any number, for training."""
        tree = self._tree_of(x_context, y_context, mask)
        return self._answer(self.embedding.queries(x_target), tree)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Return the training loss of section 3.5.

        It sums the loss of predictions from the nodes that the search reads, that of predictions
        from all leaves, and REINFORCE. The path is drawn from the policy; the reward has no
        baseline. With `full` the loss is only that of all leaves, because nothing searches.
        """
        config = self.config
        noise = Dropout(config.dropout, generator) if config.dropout else no_noise
        tree = self._tree_of(batch.x_context, batch.y_context, batch.mask, noise)
        hidden = noise(self.embedding.queries(batch.x_target))
        if config.full:
            prediction = self._answer(hidden, tree, noise)
            nodes = self.prediction.log_likelihood(prediction, batch.y_target, torch)
            return -cast(Tensor, nodes).mean()
        shape = (len(tree.levels), *hidden.shape[:2], config.branching)
        uniform = torch.rand(shape, generator=generator).clamp(1e-7, 1 - 1e-7).to(hidden.device)
        queries = self.tree.queries(hidden)
        nodes = search(
            *(queries, tree.levels, tree.n_leaves, config.branching, uniform),
            decisions=config.decisions,
            entropy_of=config.entropy,
        )
        of_leaves = attended_leaves(queries, tree.levels[0], tree.exists)
        answer, answer_of_leaves = (
            self.head(self.tree.after(hidden, attended, noise))
            for attended in (attended_nodes(nodes), of_leaves)
        )
        likelihood, leaves_likelihood = (
            cast(Tensor, self.prediction.log_likelihood(prediction, batch.y_target, torch))
            for prediction in (answer, answer_of_leaves)
        )
        if config.reward == "accuracy":
            reward = (answer["scores"].argmax(-1) == batch.y_target[..., 0]).float()
        else:
            reward = likelihood.detach()
        policy = reward * nodes.log_chance + config.entropy_weight * nodes.entropy
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
        """Return the numbers (..., P) that sort points: x (..., X) itself or its projection."""
        return x @ self.projection if self.config.order == "projection" else x

    def _tree_of(self, x: Tensor, y: Tensor, mask: Tensor | None, noise: Noise = no_noise) -> Tree:
        x, y, mask = real_points(x, y, mask)
        if x.shape[1] == 0:  # one point that does not exist
            x, y, mask = (t.new_zeros(len(t), 1, *t.shape[2:]) for t in (x, y, mask))
        points = self.embedding.points(x, self.outputs.encoded(y))
        return self._tree(noise(points), self.places(x), mask, noise)

    def _tree(
        self, points: Tensor, places: Tensor | None, visible: Tensor, noise: Noise = no_noise
    ) -> Tree:
        """Make the tree of points (B, N, D) that are visible (B, N), sorted by places (B, N, P).

        `places` is None in order of arrival; `noise` applies dropout, in training.
        """
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
            nodes = search(queries, tree.levels, tree.n_leaves, self.config.branching)
            attended = attended_nodes(nodes)
        hidden = self.tree.after(hidden, attended, noise)
        prediction: Prediction = self.head(hidden)
        return prediction


class RetreeverOnDevice(DeviceForm):
    """Answers queries from a tree on a device; the base of both device forms."""

    def __init__(self, model: Retreever, n_streams: int):
        super().__init__(model, n_streams)
        self.outputs = model.outputs
        self.sizes = level_sizes(model.capacity, model.config.branching)
        self.n_levels = 1 if model.config.full else len(self.sizes)
        self.embedding = embedding_on_device(model.embedding)
        one = model.tree.attention
        self.n_heads = one.n_heads
        self.norm = ResidualNorm(one.norm, one.residual, torch.float32)
        self.q = Affine(scaled(self.norm.read_by(one.q), one.n_heads))
        self.reads = one.reads
        sides = (
            exact(side) if self.reads == "raw" else fold(one.norm, side) for side in (one.k, one.v)
        )
        self.of_nodes = Affine(join_products(*sides))
        self.out = Affine(exact(one.out))
        self.ff = FeedForwardOnDevice(model.tree.ff, torch.float32)
        self.aggregator = AggregatorOnDevice(model.tree.aggregator)
        self.head = HeadOnDevice(model.head)

    def n_leaves(self, state: State) -> Tensor:
        """Return how many leaves exist in each stream, (B,)."""
        return state[COUNT].clamp(max=self.capacity)

    def search(self, cache: Cache, x: Tensor) -> Retrieved:
        """Return the nodes that queries at x (B, M, X) meet in a search; not used with `full`."""
        rows = self.norm(self.embedding(x.reshape(-1, self.n_inputs)))
        return self._search(cache, self._queries(rows))

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        rows = self.embedding(x.reshape(-1, self.n_inputs))  # (B*M, D)
        normal = self.norm(rows)
        queries = self._queries(normal)
        if self.config.full:
            leaves = cache["level_0"]
            exists = torch.arange(leaves.shape[1]) < self.n_leaves(cache)[:, None]
            attended = attended_leaves(queries, leaves, exists)
        else:
            attended = attended_nodes(self._search(cache, queries))
        kept = self.norm.kept(rows, normal)
        rows = self.ff(self.out(attended.reshape(rows.shape)) + kept)
        prediction: Prediction = self.head(rows, x.shape[:2])
        return prediction

    def keys_values(self, nodes: Tensor) -> Tensor:
        """Return keys and values of nodes (rows, D) side by side, (rows, 2D)."""
        pairs: Tensor = self.of_nodes(nodes if self.reads == "raw" else normalise(nodes))
        return pairs

    def _queries(self, normal: Tensor) -> Tensor:
        heads = self.q(normal)
        return heads.view(self.n_streams, -1, self.n_heads, heads.shape[-1] // self.n_heads)

    def _search(self, cache: Cache, queries: Tensor) -> Retrieved:
        levels = [cache[f"level_{level}"] for level in range(self.n_levels)]
        return search(queries, levels, self.n_leaves(cache), self.config.branching)


class TreeOnDevice(RetreeverOnDevice):
    """Keeps the tree itself as its state, so that an update makes one leaf and its ancestors.

    State: `nodes_k` (B, n, D), the nodes of each level k that has ancestors; `level_k` (B, n, 2D),
    keys and values of the nodes of level k; `count` (B,), the number of points. An update returns
    one row of each tensor of nodes, and its place.

    n is a multiple of the branching. With a reservoir there are `branching` more places, into which
    an update writes when the point is not kept; nothing reads them.
    """

    def __init__(self, model: Retreever, n_streams: int):
        super().__init__(model, n_streams)
        width, config = model.config.width, model.config
        self.buffer = PointBuffer(config.capacity, config.when_full, {"level_0": (2 * width,)})
        self.widths = {f"level_{level}": 2 * width for level in range(self.n_levels)}
        self.widths |= {f"nodes_{level}": width for level in range(self.n_levels - 1)}
        self.rings = {name: Ring(1, slot=f"slot_{name.split('_')[1]}") for name in self.widths}

    def initial_state(self, n_streams: int = 1) -> State:
        branching = self.config.branching
        state = self.buffer.initial_state(n_streams)
        for name, width in self.widths.items():
            size = self.sizes[int(name.split("_")[1])]
            n_slots = size + -size % branching + branching * self.buffer.is_reservoir
            state[name] = torch.zeros(n_streams, n_slots, width)
        return state

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        """Make the leaf of a point x (B, X), y (B, Y) and its ancestors; all other nodes stay."""
        branching, count = self.config.branching, state[COUNT]
        leaf = self.embedding(x, self.outputs.encoded(y))  # (B, D)
        written = self.buffer.written(state, {"level_0": leaf})
        place = written.pop(SLOT) if self.buffer.is_reservoir else count % self.capacity
        n_leaves = (count + 1).clamp(max=self.capacity)
        # (B, levels): the way up, and by how far each of its nodes is behind its eldest sibling
        sizes = branching ** torch.arange(self.n_levels + 1)
        way = torch.div(place[:, None], sizes, rounding_mode="trunc")
        child = torch.arange(branching)
        families = way[:, 1:, None] * branching + child  # (B, levels, b)
        is_new = (families == way[:, :-1, None])[..., None]
        present = nodes_by_level(n_leaves, branching, self.n_levels)
        exists = (families < present[..., None]).float()
        nodes = [leaf]
        for level in range(self.n_levels - 1):
            rows = state[f"nodes_{level}"].unflatten(1, (-1, branching)).flatten(2)
            children = rows_at(rows, way[:, level + 1]).unflatten(-1, (branching, -1))
            children = torch.where(is_new[:, level], nodes[-1][:, None], children)
            nodes.append(self.aggregator(children, exists[:, level]))
        rows = self.keys_values(torch.cat(nodes)).unflatten(0, (self.n_levels, -1))
        written[FINITE] = written[FINITE] + rows.sum((0, 2))
        for level, node in enumerate(nodes):
            written[f"level_{level}"] = rows[level][:, None]
            slot = way[:, level]
            if self.buffer.is_reservoir:  # a point that is not kept goes where nothing is read
                unread = self.sizes[level] + -self.sizes[level] % branching
                slot = torch.where(place < self.capacity, slot, unread)
            written[f"slot_{level}"] = slot
            if level + 1 < self.n_levels:
                written[f"nodes_{level}"] = node[:, None]
        return written


class EncodedTreeOnDevice(RetreeverOnDevice):
    """Keeps embedded points and makes the tree at refresh; state and cache as in `Retreever`."""

    def __init__(self, model: Retreever, n_streams: int):
        super().__init__(model, n_streams)
        self.buffer = model.buffer
        self.register_buffer("projection", model.projection)
        layers = (AttentionLayerOnDevice(one.attention, one.ff, n_streams) for one in model.encoder)
        self.encoder = cast("list[AttentionLayerOnDevice]", nn.ModuleList(layers))
        self.places = model.places

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        rows = {"points": self.embedding(x, self.outputs.encoded(y)), "places": self.places(x)}
        return self.buffer.written(state, {name: rows[name] for name in self.buffer.rows})

    def refresh(self, state: State) -> Cache:
        """Encode the points, at O(N^2) for each encoder layer, and make the O(N) nodes."""
        c, visible = self.config, self.buffer.visible(state)
        rows = state["points"].flatten(0, 1)  # (B*N, D)
        if self.encoder:
            slots = self.encoder[0].attention.slots(visible)
            for layer in self.encoder:
                normal = normalise(rows)
                read = rows if self.reads == "raw" else normal
                rows = layer.step(rows, normal, *layer.keys_values(read, slots), slots)
        points = rows.view(self.n_streams, -1, rows.shape[-1])
        if "places" in state:
            order = leaf_order(state["places"], visible, c.order, c.branching, c.axis)
            points = rows_at(points, order.clamp(max=points.shape[1] - 1))
        return {
            COUNT: state[COUNT],
            **self._levels(points[:, : self.sizes[0]], self.n_leaves(state)),
        }

    def _levels(self, nodes: Tensor, n_leaves: Tensor) -> Cache:
        """Return the keys and values of all levels of the tree over leaves `nodes` (B, N, D)."""
        branching, cache = self.config.branching, {}
        present = nodes_by_level(n_leaves, branching, self.n_levels)
        for level in range(self.n_levels):
            nodes = F.pad(nodes, (0, 0, 0, -nodes.shape[1] % branching))
            n_nodes, width = nodes.shape[1:]
            exists = (torch.arange(n_nodes) < present[:, level, None]).float()  # (B, n)
            rows = self.keys_values(nodes.reshape(-1, width))
            cache[f"level_{level}"] = rows.view(self.n_streams, n_nodes, -1) * exists[..., None]
            if level + 1 < self.n_levels:
                children = nodes.reshape(-1, branching, width)
                nodes = self.aggregator(children, exists.reshape(-1, branching))
                nodes = nodes.view(self.n_streams, -1, width)
        return cache
