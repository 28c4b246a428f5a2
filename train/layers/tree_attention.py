"""Attend over a tree (Feng et al., ICLR 2024): a query reads O(log N) nodes, not N points.

    level 2          o               *        the root's children; the root itself is never read
    level 1      *       o       o       o
    level 0    o   o   *   x   o   o   o   o  the leaves, that is the points

The leaves are level 0; a node is computed from its `branching` children by the aggregator. A search
begins at the root and goes down to one leaf. At each level it compares the children of the node
that it is at (section 3.2, algorithm 1), and the query then attends to the children that it did not
follow, and to the leaf (in the picture x is the leaf, * are the nodes that were not followed).
Leaves are filled from the left, so that a node exists where its first leaf does; nodes that do not
exist are hidden, and their values are 0.

Letters of shapes: B streams, N points, M queries, D width, H heads, n nodes of a level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.layers.attention import (
    HIDDEN,
    Attention,
    FeedForward,
    Reads,
    Residual,
    join_heads,
)
from edgefold.train.layers.device_layers import (
    Affine,
    FeedForwardOnDevice,
    ResidualNorm,
    exact,
    join_products,
    scaled,
)

Order = Literal["kd", "axis", "projection", "arrival"]
"""Ways in which points become leaves: by a k-d tree with the axes in turn; sorted by one input;
sorted by a random projection of the inputs; in order of arrival, which for a time series is by
time."""

Decisions = Literal["all", "inner"]
"""Decisions of a search that are trained: all, down to the choice of a leaf as in algorithm 1 of
the paper; or all but the last one, as in the published code. A query reads all children of the last
node, so that the last decision changes no prediction."""

EntropyOf = Literal["path", "heads"]
"""Entropy that is a bonus of a search: that of the policy, summed over the path, as in section 3.5
of the paper; or that of the weights of each head, averaged over heads and decisions, as in the
published code."""

Noise = Callable[[Tensor], Tensor]


def no_noise(x: Tensor) -> Tensor:
    """Return x as it is; stands in for dropout where there is none."""
    return x


class Dropout:
    """Sets a share of the numbers to 0, drawn from a generator, and scales the others up."""

    def __init__(self, share: float, generator: torch.Generator):
        self.share, self.generator = share, generator

    def __call__(self, x: Tensor) -> Tensor:
        mask = torch.rand(x.shape, generator=self.generator) >= self.share
        return x * (mask.to(x.device) / (1 - self.share))


def level_sizes(n_leaves: int, branching: int) -> list[int]:
    """Return the number of nodes of each level, from the leaves to the root's children.

    The length of the list is the height of the tree.
    """
    sizes = [n_leaves]
    while sizes[-1] > branching:
        sizes.append(-(-sizes[-1] // branching))
    return sizes


def nodes_by_level(n_leaves: Tensor, branching: int, n_levels: int) -> Tensor:
    """Count the nodes that exist on each level, (B, levels), where n_leaves (B,) leaves exist."""
    sizes = branching ** torch.arange(n_levels, device=n_leaves.device)
    return torch.div(n_leaves[:, None] + (sizes - 1), sizes, rounding_mode="trunc")


def rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """Return the rows (B, n, D) at places (B, ...) of each stream: (B, ..., D)."""
    n_streams, length, width = rows.shape
    if n_streams > 1:
        first = torch.arange(0, n_streams * length, length, device=places.device)
        places = places + first.reshape(-1, *(1,) * (places.ndim - 1))
    chosen = rows.reshape(-1, width).index_select(0, places.reshape(-1))
    return chosen.reshape(*places.shape, width)


def leaf_order(x: Tensor, visible: Tensor, order: Order, branching: int, axis: int) -> Tensor:
    """Return which point each leaf holds, as its number, (B, n), n >= N; missing points come last.

    Args:
        x: Inputs of the points, (B, N, X), or their random projections, (B, N, 1).
        visible: True for points that exist, (B, N).
        order: "kd": by a k-d tree over all columns of x in turn; "axis": by one of them;
            "projection": by the only one; "arrival": by the order in which the points came.
        branching: Number of parts that a k-d tree splits a block into, of equal size if all points
            exist.
        axis: Number of the input by which the order "axis" sorts.

    Equal inputs keep their order of arrival.
    """
    if order == "arrival":
        keys = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)[..., None].to(x)
    else:
        keys = x[..., axis : axis + 1] if order == "axis" else x
    height = len(level_sizes(x.shape[1], branching))
    n_leaves = x.shape[1] if keys.shape[-1] == 1 else branching**height
    padding = n_leaves - x.shape[1]
    keys = torch.where(visible[..., None], keys, torch.inf)
    keys = F.pad(keys, (0, 0, 0, padding), value=torch.inf)
    if keys.shape[-1] == 1:  # all splits together are one sort
        return _sorted(keys[..., 0])
    leaves = torch.arange(n_leaves, device=x.device).expand(len(x), -1)
    # Axes are counted from the leaves, so that a higher tree of the same points splits them alike.
    for level in range(height, 0, -1):
        leaves = leaves.unflatten(1, (-1, branching**level))  # (B, blocks, block)
        leaves = leaves.gather(-1, _sorted(leaves)).flatten(1)  # by arrival, for equal keys
        key = keys[..., (level - 1) % x.shape[-1]].gather(1, leaves)
        inside = _sorted(key.unflatten(1, (-1, branching**level)))
        leaves = leaves.unflatten(1, (-1, branching**level)).gather(-1, inside).flatten(1)
    return leaves


def _sorted(keys: Tensor) -> Tensor:
    """Return the indices that sort the last axis; equal keys keep their order."""
    if torch.compiler.is_exporting():
        # A graph cannot ask for that: ONNX defines it for its TopK, which this becomes.
        return torch.sort(keys, dim=-1).indices
    return torch.sort(keys, dim=-1, stable=True).indices


class Retrieved(NamedTuple):
    """Holds the nodes that a search met: S nodes for each of M queries, S = height * branching.

    Attributes:
        scores: Scores of the nodes by head, (B, M, S, H); `HIDDEN` for a node that is not read,
            because it does not exist or because the search went on below it.
        values: Values of the nodes, (B, M, S, D).
        leaf: Number of the leaf at which the search ended, (B, M).
        log_chance: Log-probability of the decisions that lead to `leaf`, (B, M).
        entropy: Entropy of these decisions in nats, (B, M): see `EntropyOf`.
    """

    scores: Tensor
    values: Tensor
    leaf: Tensor
    log_chance: Tensor
    entropy: Tensor

    @property
    def n_read(self) -> Tensor:
        """Return how many nodes each query reads, (B, M): at most 1 + height * (branching - 1).

        The paper counts them as tokens.
        """
        return (self.scores[..., 0] > HIDDEN / 2).sum(-1)


def search(
    queries: Tensor,
    levels: Sequence[Tensor],
    n_leaves: Tensor,
    branching: int,
    uniform: Tensor | None = None,
    decisions: Decisions = "all",
    entropy_of: EntropyOf = "path",
) -> Retrieved:
    """Go down the tree of each stream, once for each of M queries, and return the nodes met.

    The policy, which gives the chance of each child of a node, is the attention's weights, averaged
    over the heads.

    Args:
        queries: Scaled queries, (B, M, H, D/H).
        levels: Keys and values of the nodes side by side, from the leaves up, (B, n, 2D), with n a
            multiple of the branching.
        n_leaves: Number of leaves that exist, (B,).
        branching: Number of children of a node.
        uniform: Random numbers from 0 to 1 that draw the path from the policy, (height, B, M,
            branching). By default the path follows the largest weight.
        decisions: Decisions that `log_chance` and `entropy` are of.
        entropy_of: Entropy that is returned.
    """
    child = torch.arange(branching, device=queries.device)
    present = nodes_by_level(n_leaves, branching, len(levels))[..., None].split(1, dim=1)
    node = n_leaves.new_zeros(queries.shape[:2])  # (B, M), the root
    log_chance = entropy = queries.new_zeros(queries.shape[:2])
    n_decisions = n_leaves.new_zeros(len(n_leaves), 1)
    scores, values = [], []
    for level in reversed(range(len(levels))):
        family = levels[level].unflatten(1, (-1, branching)).flatten(2)  # (B, n/b, b*2D)
        family = rows_at(family, node).unflatten(-1, (branching, -1))
        key, value = family.chunk(2, dim=-1)  # (B, M, b, D)
        score = (key.unflatten(-1, queries.shape[2:]) * queries[:, :, None]).sum(-1)
        first = node[..., None] * branching  # (B, M, 1)
        exists = first + child < present[level]
        score = torch.where(exists[..., None], score, HIDDEN)
        shares = torch.softmax(score, dim=2)  # (B, M, b, H)
        weights = shares.mean(-1)
        log_weights = weights.clamp(min=1e-30).log()
        if uniform is None:
            chosen = weights.argmax(-1, keepdim=True)
        else:  # the largest of weights with Gumbel noise is drawn with the weights' chances
            drawn = log_weights - torch.log(-torch.log(uniform[level]))
            chosen = torch.where(exists, drawn, -torch.inf).argmax(-1, keepdim=True)
        if level or decisions == "all":
            log_chance = log_chance + log_weights.gather(-1, chosen)[..., 0]
            if entropy_of == "path":
                entropy = entropy - (weights * log_weights).sum(-1)
            else:
                by_head = shares * shares.clamp(min=1e-30).log()
                entropy = entropy - by_head.sum(2).mean(-1)
                n_decisions = n_decisions + (present[level][:, 0] > 1)
        if level:
            score = torch.where((child == chosen)[..., None], HIDDEN, score)
        node = (first + chosen)[..., 0]
        scores.append(score)
        values.append(value)
    if entropy_of == "heads":
        entropy = entropy / n_decisions.clamp(min=1)
    return Retrieved(torch.cat(scores, 2), torch.cat(values, 2), node, log_chance, entropy)


def attended_nodes(nodes: Retrieved) -> Tensor:
    """Attend to the nodes that searches met; return the averages of their values, (B, M, D)."""
    weights = torch.softmax(nodes.scores, dim=2)  # (B, M, S, H)
    by_head = nodes.values.unflatten(-1, (weights.shape[-1], -1))
    return (weights[..., None] * by_head).sum(2).flatten(2)


def attended_leaves(queries: Tensor, leaves: Tensor, exists: Tensor) -> Tensor:
    """Attend to all leaves that exist; return the averages of their values, (B, M, D).

    Args:
        queries: Scaled queries, (B, M, H, D/H).
        leaves: Keys and values side by side, (B, n, 2D).
        exists: True for leaves that exist, (B, n).
    """
    heads = leaves.unflatten(-1, (2 * queries.shape[2], -1)).transpose(1, 2)
    keys, values = heads.chunk(2, dim=1)  # (B, H, n, D/H)
    scores = queries.transpose(1, 2) @ keys.mT  # (B, H, M, n)
    weights = torch.softmax(torch.where(exists[:, None, None], scores, HIDDEN), -1)
    return join_heads(weights @ values)


class TreeSizes(NamedTuple):
    """Holds the sizes of the layers, and which form they have: see `attention`."""

    width: int
    n_heads: int
    feedforward: int
    residual: Residual = "input"
    reads: Reads = "normalised"

    def attention(self) -> Attention:
        """Build an attention of which one layer norm serves queries and context."""
        return Attention(
            self.width, self.n_heads, cross=False, residual=self.residual, reads=self.reads
        )

    def feed_forward(self) -> FeedForward:
        return FeedForward(self.width, self.feedforward, residual=self.residual)


class TransformerLayer(nn.Module):
    """Applies self-attention and a feed-forward layer to rows, some of which may not exist."""

    def __init__(self, sizes: TreeSizes):
        super().__init__()
        self.attention, self.ff = sizes.attention(), sizes.feed_forward()

    def forward(self, rows: Tensor, exists: Tensor, noise: Noise = no_noise) -> Tensor:
        """Return the output for rows (..., n, D), where exists (..., n) is True.

        The function `noise` applies dropout, in training.
        """
        keys, values = self.attention.keys_values(rows)
        scores = self.attention.queries(rows) @ keys.mT  # (..., H, n, n)
        weights = torch.softmax(torch.where(exists[..., None, None, :], scores, HIDDEN), -1)
        attended = noise(self.attention.out(join_heads(weights @ values)))
        rows = self.attention.kept(rows) + attended
        return self.ff.kept(rows) + noise(self.ff(rows))


class TreeAttention(nn.Module):
    """Attends to a tree in one layer; the search takes its policy from the attention's weights.

    The layer norm of the queries also serves the nodes. A node is the mean of its children after
    one transformer layer over them (appendix C.2). `gradients` says whether gradients of a node
    reach its children.
    """

    def __init__(self, sizes: TreeSizes, branching: int, gradients: bool = True):
        super().__init__()
        self.branching, self.gradients = branching, gradients
        self.attention, self.ff = sizes.attention(), sizes.feed_forward()
        self.aggregator = TransformerLayer(sizes)

    def levels(
        self,
        leaves: Tensor,
        n_leaves: Tensor,
        noise: Noise = no_noise,
        n_levels: int | None = None,
    ) -> list[Tensor]:
        """Build the tree; return keys and values (B, n, 2D) of each level for `search`.

        Args:
            leaves: Rows of the points, in the order of the leaves, (B, N, D).
            n_leaves: Number of leaves that exist, (B,); these are the first ones.
            noise: Function that applies dropout, in training.
            n_levels: Number of levels to build, from the leaves up; all by default.
        """
        nodes, pairs, branching = leaves, [], self.branching
        sizes = level_sizes(leaves.shape[1], branching)[:n_levels]
        present = nodes_by_level(n_leaves, branching, len(sizes))
        for level, size in enumerate(sizes):
            nodes = F.pad(nodes, (0, 0, 0, -size % branching))
            places = torch.arange(nodes.shape[1], device=nodes.device)
            exists = places < present[:, level, None]
            pairs.append(torch.where(exists[..., None], self.keys_values(nodes), 0.0))
            if level + 1 < len(sizes):
                exists = exists.unflatten(1, (-1, branching))
                children = nodes.unflatten(1, (-1, branching))
                children = children if self.gradients else children.detach()
                nodes = masked_mean(self.aggregator(children, exists, noise), exists)
        return pairs

    def keys_values(self, nodes: Tensor) -> Tensor:
        """Return keys and values of nodes (..., D) side by side, (..., 2D)."""
        read = self.attention.read(nodes)
        return torch.cat([self.attention.k(read), self.attention.v(read)], -1)

    def queries(self, hidden: Tensor) -> Tensor:
        """Return the scaled queries (B, M, H, D/H) of rows (B, M, D)."""
        return self.attention.queries(hidden).transpose(1, 2)

    def after(self, hidden: Tensor, attended: Tensor, noise: Noise = no_noise) -> Tensor:
        """Return the output for rows `hidden` and what they attended to, each (B, M, D).

        The function `noise` applies dropout, in training.
        """
        hidden = self.attention.kept(hidden) + noise(self.attention.out(attended))
        return self.ff.kept(hidden) + noise(self.ff(hidden))


def masked_mean(rows: Tensor, exists: Tensor) -> Tensor:
    """Average the rows (..., n, D) where exists (..., n) is True; zeros where none exists."""
    count = exists.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(exists[..., None], rows, 0.0).sum(-2) / count


class AggregatorOnDevice(nn.Module):
    """Computes G nodes (G, D) from b children of each, (G, b, D), as `TreeAttention` does."""

    def __init__(self, layer: TransformerLayer):
        super().__init__()
        one = layer.attention
        self.n_heads, self.reads = one.n_heads, one.reads
        self.norm = ResidualNorm(one.norm, one.residual, torch.float32)
        query = scaled(self.norm.read_by(one.q), one.n_heads)
        if self.reads == "raw":
            self.read = Affine(query)
            self.read_raw = Affine(join_products(exact(one.k), exact(one.v)))
        else:
            others = (self.norm.read_by(side) for side in (one.k, one.v))
            self.read = Affine(join_products(query, *others))
        self.out = Affine(exact(one.out))
        self.ff = FeedForwardOnDevice(layer.ff, torch.float32)

    def forward(self, children: Tensor, exists: Tensor) -> Tensor:
        """Return nodes (G, D) of children (G, b, D); `exists` (G, b) is 1 for real ones, else 0."""
        n_groups, branching, width = children.shape
        rows = children.reshape(-1, width)
        normal = self.norm(rows)
        read = self.read(normal)
        if self.reads == "raw":
            read = torch.cat([read, self.read_raw(rows)], -1)
        heads = read.view(n_groups, branching, 3 * self.n_heads, -1)
        queries, keys, values = heads.transpose(1, 2).chunk(3, dim=1)  # (G, H, b, D/H)
        scores = queries @ keys.mT + ((1 - exists) * HIDDEN)[:, None, None]
        attended = (torch.softmax(scores, -1) @ values).transpose(1, 2).reshape(-1, width)
        kept = self.norm.kept(rows, normal)
        rows = self.ff(self.out(attended) + kept).view(n_groups, branching, width)
        share = exists / exists.sum(-1, keepdim=True).clamp(min=1)
        return (share[:, None] @ rows)[:, 0]
