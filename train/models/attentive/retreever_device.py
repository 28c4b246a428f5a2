"""ReTreever rewritten so that a device does as little as possible; it predicts what it predicts.

    TreeOnDevice           without encoder, leaves in order of arrival: the tree is the state
        update             leaf -> its ancestors, one a level, and keys and values of all of them
        query              search and prediction; there is no refresh
    EncodedTreeOnDevice    the state are embedded points
        refresh            encoder, order of the leaves, tree
        query              the same

The way up the tree is the leaf's and `height` - 1 ancestors': the root is never read, so it is not
made. A node needs its children alone, so that all others stay as they are, to the bit.

Layer norms are folded into the products behind them; products of one input are one product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.contract import (
    FINITE,
    Cache,
    Prediction,
    Ring,
    State,
    StreamingModel,
)
from edgefold.train.layers.attention import HIDDEN
from edgefold.train.layers.device_layers import (
    Affine,
    FeedForwardOnDevice,
    Weights,
    exact,
    fold,
    normalise,
    scaled,
)
from edgefold.train.layers.embeddings_device import embedding_on_device
from edgefold.train.layers.tree_attention import (
    Retrieved,
    TransformerLayer,
    attended_leaves,
    attended_nodes,
    leaf_order,
    level_sizes,
    nodes_by_level,
    rows_at,
    search,
)
from edgefold.train.models.attentive.context_encoder_device import AttentionLayerOnDevice
from edgefold.train.states.point_buffer import COUNT, SLOT, PointBuffer

if TYPE_CHECKING:
    from edgefold.train.models.attentive.retreever import Retreever


class AggregatorOnDevice(nn.Module):
    """Children of G nodes, (G, b, D), to the nodes, (G, D)."""

    def __init__(self, layer: TransformerLayer):
        super().__init__()
        one = layer.attention
        self.n_heads = one.n_heads
        parts = (scaled(fold(one.norm, one.q), one.n_heads), fold(one.norm, one.k))
        self.read = Affine(_beside(*parts, fold(one.norm, one.v)))
        self.out = Affine(exact(one.out))
        self.ff = FeedForwardOnDevice(layer.ff, torch.float32)

    def forward(self, children: Tensor, exists: Tensor) -> Tensor:
        """`exists` (G, b), 1 where a child does, else 0."""
        n_groups, branching, width = children.shape
        rows = children.reshape(-1, width)
        heads = self.read(normalise(rows)).view(n_groups, branching, 3 * self.n_heads, -1)
        queries, keys, values = heads.transpose(1, 2).chunk(3, dim=1)  # (G, H, b, D/H)
        scores = queries @ keys.mT + ((1 - exists) * HIDDEN)[:, None, None]
        attended = (torch.softmax(scores, -1) @ values).transpose(1, 2).reshape(-1, width)
        rows = self.ff(self.out(attended) + rows).view(n_groups, branching, width)
        share = exists / exists.sum(-1, keepdim=True).clamp(min=1)
        return (share[:, None] @ rows)[:, 0]


def _beside(*parts: Weights) -> Weights:
    """Several products of one input as one."""
    weights, biases = zip(*parts, strict=True)
    return torch.cat(weights, -1), torch.cat(biases, -1)


class RetreeverOnDevice(StreamingModel):
    """What both forms have in common: the query."""

    def __init__(self, model: Retreever, n_streams: int):
        super().__init__()
        self.config, self.n_streams = model.config, n_streams
        self.n_inputs, self.n_outputs = model.n_inputs, model.n_outputs
        self.prediction, self.outputs = model.prediction, model.outputs
        self.capacity, self.when_full, self.ordered = model.capacity, model.when_full, model.ordered
        self.sizes = level_sizes(model.capacity, model.config.branching)
        self.n_levels = 1 if model.config.full else len(self.sizes)
        self.embedding = embedding_on_device(model.embedding)
        one = model.tree.attention
        self.n_heads = one.n_heads
        self.q = Affine(scaled(fold(one.norm, one.q), one.n_heads))
        self.keys_values = Affine(_beside(fold(one.norm, one.k), fold(one.norm, one.v)))
        self.out = Affine(exact(one.out))
        self.ff = FeedForwardOnDevice(model.tree.ff, torch.float32)
        self.aggregator = AggregatorOnDevice(model.tree.aggregator)
        self.head_up = Affine(fold(model.head.norm, model.head.up))
        self.head_down = Affine(exact(model.head.down))

    def n_leaves(self, state: State) -> Tensor:
        """(B,)."""
        return state[COUNT].clamp(max=self.capacity)

    def search(self, cache: Cache, x: Tensor) -> Retrieved:
        """What queries at x (B, M, X) read, where they do not read all leaves."""
        return self._search(cache, self._queries(self.embedding(x.reshape(-1, self.n_inputs))))

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        rows = self.embedding(x.reshape(-1, self.n_inputs))  # (B*M, D)
        queries = self._queries(rows)
        if self.config.full:
            leaves = cache["level_0"]
            exists = torch.arange(leaves.shape[1]) < self.n_leaves(cache)[:, None]
            attended = attended_leaves(queries, leaves, exists)
        else:
            attended = attended_nodes(self._search(cache, queries))
        rows = self.ff(self.out(attended.reshape(rows.shape)) + rows)
        numbers = self.head_down(torch.relu(self.head_up(normalise(rows))))
        return self.outputs.prediction_of(numbers.view(*x.shape[:2], -1))

    def _queries(self, rows: Tensor) -> Tensor:
        heads = self.q(normalise(rows))
        return heads.view(self.n_streams, -1, self.n_heads, heads.shape[-1] // self.n_heads)

    def _search(self, cache: Cache, queries: Tensor) -> Retrieved:
        levels = [cache[f"level_{level}"] for level in range(self.n_levels)]
        return search(queries, levels, self.n_leaves(cache), self.config.branching)


class TreeOnDevice(RetreeverOnDevice):
    """The tree as state.

    `nodes_k` (B, n, D) of each level that has ancestors; `level_k` (B, n, 2D), keys and values of
    its nodes; `count` (B,). The nodes of a level are rings, whose slots the update chooses.

    n is a multiple of the branching; with a reservoir there is another family of slots, which
    nothing reads.
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
        """Make a leaf and its ancestors; all other nodes stay."""
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
        rows = self.keys_values(normalise(torch.cat(nodes))).unflatten(0, (self.n_levels, -1))
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
    """State and cache as those of `Retreever`."""

    def __init__(self, model: Retreever, n_streams: int):
        super().__init__(model, n_streams)
        self.buffer, self.rings = model.buffer, model.rings
        self.register_buffer("projection", model.projection)
        layers = (AttentionLayerOnDevice(cast(Any, layer), n_streams) for layer in model.encoder)
        self.encoder = cast("list[AttentionLayerOnDevice]", nn.ModuleList(layers))
        self.places = model.places

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        rows = {"points": self.embedding(x, self.outputs.encoded(y)), "places": self.places(x)}
        return self.buffer.written(state, {name: rows[name] for name in self.buffer.rows})

    def refresh(self, state: State) -> Cache:
        """O(N^2) an encoder layer, where there are any, and O(N) nodes."""
        c, visible = self.config, self.buffer.visible(state)
        rows = state["points"].flatten(0, 1)  # (B*N, D)
        if self.encoder:
            slots = self.encoder[0].attention.slots(visible)
            for layer in self.encoder:
                normal = normalise(rows)
                rows = layer(rows, normal, *layer.attention.keys_values(normal, slots))
        points = rows.view(self.n_streams, -1, rows.shape[-1])
        if "places" in state:
            order = leaf_order(state["places"], visible, c.order, c.branching, c.axis)
            points = rows_at(points, order.clamp(max=points.shape[1] - 1))
        return {
            COUNT: state[COUNT],
            **self._levels(points[:, : self.sizes[0]], self.n_leaves(state)),
        }

    def _levels(self, nodes: Tensor, n_leaves: Tensor) -> Cache:
        """Keys and values of all levels above leaves (B, N, D)."""
        branching, found = self.config.branching, {}
        present = nodes_by_level(n_leaves, branching, self.n_levels)
        for level in range(self.n_levels):
            nodes = F.pad(nodes, (0, 0, 0, -nodes.shape[1] % branching))
            n_nodes, width = nodes.shape[1:]
            exists = (torch.arange(n_nodes) < present[:, level, None]).float()  # (B, n)
            rows = self.keys_values(normalise(nodes.reshape(-1, width)))
            found[f"level_{level}"] = rows.view(self.n_streams, n_nodes, -1) * exists[..., None]
            if level + 1 < self.n_levels:
                children = nodes.reshape(-1, branching, width)
                nodes = self.aggregator(children, exists.reshape(-1, branching))
                nodes = nodes.view(self.n_streams, -1, width)
        return found
