"""The update rule of constant memory attention, of one head, in float64 numpy.

Feng et al. 2024 (CMANP), section 3.1.1: CA is what latents attend to, c the sum of the exponentials
of their scores. Scores are (L, U) of U new points, values (U, D/H).
"""

from __future__ import annotations

import numpy as np

from tests.reference.numpy_layers import Rows, softmax


def cross_attention(scores: Rows, values: Rows) -> Rows:
    """Attend to a whole context at once: softmax(s) v."""
    return np.asarray(softmax(scores) @ values)


def rolled(attended: Rows, count: Rows, scores: Rows, values: Rows) -> tuple[Rows, Rows]:
    """Return CA' and c' by the first display, which overflows for large scores."""
    new = count + np.exp(scores).sum(1)
    return (count / new)[:, None] * attended + np.exp(scores) / new[:, None] @ values, new


def rolled_by_logs(
    attended: Rows, log_count: Rows, scores: Rows, values: Rows
) -> tuple[Rows, Rows]:
    """Return CA' and log c' by the second display: log c' = log c + softplus(t)."""
    relative = scores - log_count[:, None]
    top = relative.max(1)
    t = top + np.log(np.exp(relative - top[:, None]).sum(1))  # the log-sum-exp trick
    new = log_count + np.logaddexp(0, t)
    share = np.exp(log_count - new)[:, None]
    return share * attended + np.exp(scores - new[:, None]) @ values, new
