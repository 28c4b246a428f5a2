"""Attend by m landmarks instead of n keys: the Nyström approximation of softmax attention.

Xiong et al. 2021, "Nyströmformer"; Carreto Picon et al., "Continual Low-Rank Scaled Dot-product
Attention", section III-B. With landmarks q~ and k~, averages of queries Q and of keys K (V are the
values),

    out = softmax(Q k~^T) pinv(softmax(q~ k~^T)) softmax(q~ K^T) V     queries scaled by 1/sqrt(d)

Landmarks are means over segments of the window, or fixed ones that clustering found (section IV-B).
The segments of a window of n tokens have n // m tokens; the first n % m of them have one more.
"""

from __future__ import annotations

import torch
from torch import Tensor

N_ITERATIONS = 6
"""Number of iterations of the pseudo-inverse, as published."""


def segment_lengths(window: int, n_landmarks: int) -> list[int]:
    """Return the number of tokens in each segment of a window, `n_landmarks` numbers."""
    whole, more = divmod(window, n_landmarks)
    return [whole + (j < more) for j in range(n_landmarks)]


def pseudo_inverse(matrix: Tensor) -> Tensor:
    """Return the Moore-Penrose inverse of matrices (..., m, m), computed only by matrix products.

    The iteration of Razavi et al. 2014, as in Nyströmformer, eq. 14, converges to it from a start
    that is scaled by the largest column sum and the largest row sum.
    """
    columns = matrix.abs().sum(-2).amax(-1)[..., None, None]
    rows = matrix.abs().sum(-1).amax(-1)[..., None, None]
    inverse = matrix.mT / (columns * rows)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(N_ITERATIONS):
        product = matrix @ inverse
        inner = 7 * identity - product
        inner = 15 * identity - product @ inner
        inverse = 0.25 * inverse @ (13 * identity - product @ inner)
    return inverse


def center_inverse(landmark_queries: Tensor, landmark_keys: Tensor) -> Tensor:
    """Return pinv(softmax(q~ k~^T)), (..., H, m, m), of landmarks q~ and k~ (..., H, m, d)."""
    return pseudo_inverse(torch.softmax(landmark_queries @ landmark_keys.mT, -1))


def exact_inverse(landmark_queries: Tensor, landmark_keys: Tensor) -> Tensor:
    """Return what `center_inverse` does, by singular values in float64: for constant landmarks."""
    scores = landmark_queries.double() @ landmark_keys.double().mT
    inverse: Tensor = torch.linalg.pinv(torch.softmax(scores, -1), rtol=1e-6)
    return inverse.to(landmark_queries.dtype)


def landmark_inverse(landmark_queries: Tensor, landmark_keys: Tensor, iterated: bool) -> Tensor:
    """Return the pseudo-inverse of constant landmarks, as published by iterations, or exactly."""
    kind = center_inverse if iterated else exact_inverse
    return kind(landmark_queries, landmark_keys)


def means(tokens: Tensor, weights: Tensor) -> Tensor:
    """Return landmarks (B, H, m, d): means of tokens (B, H, R, d) with weights (B, m, R)."""
    return weights[:, None] @ tokens


def segment_means(segments: Tensor, taken: Tensor, n_landmarks: int, dtype: torch.dtype) -> Tensor:
    """Return weights (B, m, R) that average the rows of each segment; 0 for a segment without rows.

    Args:
        segments: Number of the segment of each row, (B, R).
        taken: True for the rows that count, (B, R).
        n_landmarks: m, the number of segments.
        dtype: Type of the weights.
    """
    index = torch.arange(n_landmarks, device=segments.device)[:, None]
    member = ((segments[:, None] == index) & taken[:, None]).to(dtype)
    return member / member.sum(-1, keepdim=True).clamp_min(1.0)


def complete_segments(
    positions: Tensor, segment_of: Tensor, end_of: Tensor, window: int, at_once: bool = False
) -> tuple[Tensor, Tensor]:
    """Find the tokens that lie in the newest complete segment of each of the m segment numbers.

    The stream is cut into windows of n positions, and each window into the same m segments. A
    segment is complete when its last position lies before the newest token.

    Args:
        positions: Position of each token in the stream, (B, R); below 0 where a row has no token.
        segment_of: Number of the segment to which each place in a window belongs, (n,).
        end_of: Last place of that segment, for each place in a window, (n,).
        window: n, the number of places in a window.
        at_once: Whether a segment is complete as soon as the newest token lies at its last
            position.

    Returns:
        The segment's number of each row, (B, R), and True for rows in such a segment, (B, R).
    """
    place = torch.remainder(positions, window)
    newest = positions.amax(1, keepdim=True) + int(at_once)
    end = positions - place + end_of[place]
    return segment_of[place], (positions >= 0) & (end < newest) & (end >= newest - window)


def nystrom(
    asked: Tensor,
    landmark_queries: Tensor,
    landmark_keys: Tensor,
    inverse: Tensor,
    keys: Tensor,
    values: Tensor,
    unseen: Tensor,
) -> Tensor:
    """Attend from queries to keys and values by landmarks: return (B, H, rows, d).

    Args:
        asked: Queries, scaled by 1/sqrt(d), (B, H, rows, d).
        landmark_queries: Landmarks of the queries, scaled too, (B, H, m, d) or (H, m, d).
        landmark_keys: Landmarks of the keys, of the same shape.
        inverse: Pseudo-inverse of the landmarks' attention to each other, (..., H, m, m).
        keys: Keys of the window, (B, H, R, d).
        values: Values of the window, (B, H, R, d).
        unseen: Number that is added to the scores of keys to hide them, (B, 1, 1, R).
    """
    right = torch.softmax(landmark_queries @ keys.mT + unseen, -1) @ values  # (B, H, m, d)
    left: Tensor = torch.softmax(asked @ landmark_keys.mT, -1) @ inverse  # (B, H, rows, m)
    return left @ right


def clustered(tokens: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """Return m = n_clusters centres (H, m, d) of tokens (H, N, d): k-means++, then Lloyd's."""
    n_heads, n_tokens, _ = tokens.shape
    heads = torch.arange(n_heads)
    first = torch.randint(n_tokens, (n_heads, 1), generator=generator)
    centres = tokens[heads[:, None], first]
    for _ in range(n_clusters - 1):
        nearest = torch.cdist(tokens, centres).square().amin(-1) + 1e-12  # (H, N)
        drawn = torch.multinomial(nearest, 1, generator=generator)
        centres = torch.cat([centres, tokens[heads[:, None], drawn]], 1)
    for _ in range(25):
        member = torch.cdist(tokens, centres).argmin(-1)  # (H, N)
        chosen = torch.nn.functional.one_hot(member, n_clusters).to(tokens.dtype).mT  # (H, m, N)
        sizes = chosen.sum(-1, keepdim=True)
        moved = torch.where(sizes > 0, chosen @ tokens / sizes.clamp_min(1), centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    return centres
