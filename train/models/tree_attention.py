"""Tree cross attention (Feng et al., ICLR 2024): a query reads O(log N) nodes instead of N points.

    level 2          o               o        the root's children; the root itself is never read
    level 1      o       *       o       o
    level 0    o   o   *   x   o   o   o   o  the leaves, that is the points

The leaves are level 0; a node is made of its `branching` children by the aggregator. A search
begins at the root and goes down to one leaf. At each level it compares the children of the node
that it is at (section 3.2, algorithm 1), and the query then attends to the children that it did not
follow, and to the leaf (x, and the nodes beside its way). Leaves are filled from the left, so that
a node exists where its first leaf does; nodes that do not exist are hidden, and their values are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.models.layers import Attention, FeedForward, join_heads

HIDDEN = -3e4
"""Score of a node that does not exist: no float32 or float16 weight is left of it."""

Order = Literal["kd", "axis", "projection", "arrival"]
ORDERS = get_args(Order)
"""How points become leaves: k-d tree with the axes in turn; sorted by one input; sorted by a random
projection of the inputs; in order of arrival, which for a time series is sorted by time."""

Noise = Callable[[Tensor], Tensor]


def no_noise(x: Tensor) -> Tensor:
    """What a layer gives out, as it is: without dropout."""
    return x


def level_sizes(n_leaves: int, branching: int) -> list[int]:
    """Nodes of each level, from the leaves to the root's children; their number is the height."""
    sizes = [n_leaves]
    while sizes[-1] > branching:
        sizes.append(-(-sizes[-1] // branching))
    return sizes


def n_nodes(n_leaves: Tensor, branching: int, level: int) -> Tensor:
    """Nodes that exist on a level, of integers (B,) of leaves that do."""
    size = branching**level
    return (n_leaves + (size - 1)) // size


def rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """Rows (B, n, D) at places (B, ...) of each stream: (B, ..., D)."""
    n_streams, length, width = rows.shape
    if n_streams > 1:
        first = torch.arange(0, n_streams * length, length, device=places.device)
        places = places + first.reshape(-1, *(1,) * (places.ndim - 1))
    found = rows.reshape(-1, width).index_select(0, places.reshape(-1))
    return found.reshape(*places.shape, width)


def leaf_order(x: Tensor, visible: Tensor, order: Order, branching: int, axis: int) -> Tensor:
    """Which point becomes each leaf, (B, n) with n >= N; those that do not exist come last.

    Args:
        x: (B, N, X), the inputs; of a random projection their projections, (B, N, 1).
        visible: (B, N), whether the point exists.
        order: One of `ORDERS`.
        branching: Parts that a k-d tree splits a block into, equally large where all are there.
        axis: The input of the order "axis".

    Equal inputs keep their order of arrival: sorting does so in torch on a CPU, and as onnxruntime
    does it. (A graph cannot ask for it.)
    """
    if order == "arrival":
        keys = torch.zeros_like(x[..., :1])
    else:
        keys = x[..., axis : axis + 1] if order == "axis" else x
    height = len(level_sizes(x.shape[1], branching))
    n_leaves = x.shape[1] if keys.shape[-1] == 1 else branching**height
    padding = n_leaves - x.shape[1]
    keys = torch.where(visible[..., None], keys, torch.inf)
    keys = F.pad(keys, (0, 0, 0, padding), value=torch.inf)
    if keys.shape[-1] == 1:  # all splits together are one sort
        return torch.sort(keys[..., 0], dim=-1).indices
    found = torch.arange(n_leaves, device=x.device).expand(len(x), -1)
    # Axes are counted from the leaves, so that a higher tree of the same points splits them alike.
    for level in range(height, 0, -1):
        key = (
            keys[..., (level - 1) % x.shape[-1]]
            .gather(1, found)
            .unflatten(1, (-1, branching**level))
        )
        inside = torch.sort(key, dim=-1).indices  # (B, blocks, block)
        found = found.unflatten(1, (-1, branching**level)).gather(-1, inside).flatten(1)
    return found


class Retrieved(NamedTuple):
    """What a search found: S nodes for each of M queries, S = height * branching.

    Attributes:
        scores: (B, M, S, H), `HIDDEN` where the node is not read: it does not exist, or the search
            went on below it.
        values: (B, M, S, D).
        leaf: (B, M), the leaf at which the search ended.
        log_chance: (B, M), log-probability of the path under the policy.
        entropy: (B, M), of the policy, summed over the path.
    """

    scores: Tensor
    values: Tensor
    leaf: Tensor
    log_chance: Tensor
    entropy: Tensor

    @property
    def n_read(self) -> Tensor:
        """Nodes that each query reads, (B, M): the paper's tokens, at most 1 + height * (b - 1)."""
        return (self.scores[..., 0] > HIDDEN / 2).sum(-1)


def search(
    queries: Tensor,
    levels: Sequence[Tensor],
    n_leaves: Tensor,
    branching: int,
    uniform: Tensor | None = None,
) -> Retrieved:
    """Go down the tree of each stream, with the head-averaged weights of the attention as policy.

    Args:
        queries: (B, M, H, D/H), scaled.
        levels: From the leaves up, keys and values of the nodes side by side, (B, n, 2D).
        n_leaves: (B,), leaves that exist.
        branching: Children of a node.
        uniform: (height, B, M, branching), random numbers that draw the path from the policy. By
            default the path follows the largest weight.
    """
    child = torch.arange(branching, device=queries.device)
    node = n_leaves.new_zeros(queries.shape[:2])  # (B, M), the root
    log_chance = entropy = queries.new_zeros(queries.shape[:2])
    scores, values = [], []
    for level in reversed(range(len(levels))):
        children = node[..., None] * branching + child  # (B, M, b)
        exists = children < n_nodes(n_leaves, branching, level)[:, None, None]
        length = levels[level].shape[1]
        places = children if length % branching == 0 else children.clamp(max=length - 1)
        key, value = rows_at(levels[level], places).chunk(2, dim=-1)  # (B, M, b, D)
        score = (key.unflatten(-1, queries.shape[2:]) * queries[:, :, None]).sum(-1)
        score = torch.where(exists[..., None], score, HIDDEN)  # (B, M, b, H)
        weights = torch.softmax(score, dim=2).mean(-1)  # (B, M, b)
        log_weights = weights.clamp(min=1e-30).log()
        if uniform is None:
            chosen = weights.argmax(-1, keepdim=True)
        else:  # the largest of weights with Gumbel noise is drawn with the weights' chances
            chosen = (log_weights - torch.log(-torch.log(uniform[level]))).argmax(-1, keepdim=True)
        log_chance = log_chance + log_weights.gather(-1, chosen)[..., 0]
        entropy = entropy - (weights * log_weights).sum(-1)
        if level:
            score = torch.where((child == chosen)[..., None], HIDDEN, score)
        node = node * branching + chosen[..., 0]
        scores.append(score)
        values.append(value)
    return Retrieved(torch.cat(scores, 2), torch.cat(values, 2), node, log_chance, entropy)


class Aggregator(nn.Module):
    """One transformer layer over the children of a node, and the mean of those that exist."""

    def __init__(self, width: int, n_heads: int, feedforward: int):
        super().__init__()
        self.attention = Attention(width, n_heads, cross=False)
        self.ff = FeedForward(width, feedforward)

    def forward(self, children: Tensor, exists: Tensor, noise: Noise = no_noise) -> Tensor:
        """Children (..., b, D), exists (..., b), to nodes (..., D); zeros where no child exists."""
        hidden = self_attention(self.attention, children, exists, noise)
        hidden = hidden + noise(self.ff(hidden))
        count = exists.sum(-1, keepdim=True).clamp(min=1)
        return torch.where(exists[..., None], hidden, 0.0).sum(-2) / count


def self_attention(layer: Attention, x: Tensor, exists: Tensor, noise: Noise = no_noise) -> Tensor:
    """x (..., n, D) plus what its rows find in those that exist (..., n)."""
    keys, values = layer.keys_values(x)
    scores = layer.queries(x) @ keys.mT  # (..., H, n, n)
    weights = torch.softmax(torch.where(exists[..., None, None, :], scores, HIDDEN), -1)
    return x + noise(layer.out(join_heads(weights @ values)))


class TreeAttention(nn.Module):
    """One layer of tree cross attention; the policy of the search has the attention's weights.

    The query's norm also serves the nodes. Where the query reads all leaves instead, it is the
    ordinary cross attention.
    """

    def __init__(self, width: int, n_heads: int, feedforward: int, branching: int):
        super().__init__()
        self.branching = branching
        self.attention = Attention(width, n_heads, cross=False)
        self.ff = FeedForward(width, feedforward)
        self.aggregator = Aggregator(width, n_heads, feedforward)

    def levels(self, leaves: Tensor, exists: Tensor, noise: Noise = no_noise) -> list[Tensor]:
        """Nodes of all levels from leaves (B, n, D), of which the first ones exist (B, n)."""
        found = [torch.where(exists[..., None], leaves, 0.0)]
        for _ in level_sizes(leaves.shape[1], self.branching)[1:]:
            padding = -found[-1].shape[1] % self.branching
            children = F.pad(found[-1], (0, 0, 0, padding)).unflatten(1, (-1, self.branching))
            exists = F.pad(exists, (0, padding)).unflatten(1, (-1, self.branching))
            found.append(self.aggregator(children, exists, noise))
            exists = exists[..., 0]
        return found

    def keys_values(self, nodes: Tensor) -> Tensor:
        """Keys and values of nodes (..., D) side by side, (..., 2D)."""
        normal = self.attention.norm(nodes)
        return torch.cat([self.attention.k(normal), self.attention.v(normal)], -1)

    def queries(self, hidden: Tensor) -> Tensor:
        """Scaled queries (B, M, H, D/H)."""
        return self.attention.queries(hidden).transpose(1, 2)

    def read(self, hidden: Tensor, found: Retrieved, noise: Noise = no_noise) -> Tensor:
        """The queries' rows (B, M, D) after they attended to what their searches found."""
        weights = torch.softmax(found.scores, dim=2)[..., None]  # (B, M, S, H, 1)
        by_head = found.values.unflatten(-1, (self.attention.n_heads, -1))
        return self._with(hidden, (weights * by_head).sum(2).flatten(2), noise)

    def read_leaves(
        self, hidden: Tensor, leaves: Tensor, exists: Tensor, noise: Noise = no_noise
    ) -> Tensor:
        """The same after they attended to all leaves, given as keys and values (B, n, 2D)."""
        heads = leaves.unflatten(-1, (2 * self.attention.n_heads, -1)).transpose(1, 2)
        keys, values = heads.chunk(2, dim=1)  # (B, H, n, D/H)
        scores = self.attention.queries(hidden) @ keys.mT  # (B, H, M, n)
        weights = torch.softmax(torch.where(exists[:, None, None], scores, HIDDEN), -1)
        return self._with(hidden, join_heads(weights @ values), noise)

    def _with(self, hidden: Tensor, attended: Tensor, noise: Noise) -> Tensor:
        hidden = hidden + noise(self.attention.out(attended))
        return hidden + noise(self.ff(hidden))
