"""The continual attention of the papers as they state it, and the batch forms, as models.

Hedegaard et al. 2023, "Continual Transformers" (eq. 5 to 7 as Carreto Picon et al. repeat them),
and Carreto Picon et al., "Continual Low-Rank Scaled Dot-product Attention", eq. 9 to 26, with the
misprints set right: eq. 19 subtracts the old landmark, the new row of eq. 23 is multiplied by the
pseudo-inverse, and eq. 24 moves phi(Delta), not its inverse. Written from the equations:

    rho(P, W) = exp(P W^T)    queries come scaled; phi(A) = the sums of A's rows

exponentials are not shifted, and what leaves the window is subtracted from the sums. They are what
ours is compared with; nothing in the product uses them.

A token x (B, 3 D) is query, key and value. Before the first one the window holds zeros. A state has
the oldest token first, and is moved by one token a step, as in the published code. `finite` is
always 0: these forms go on with whatever they have computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from benchmarks.attention.attention_cores import Landmarks, Shape, drawn_landmarks
from benchmarks.attention.published_batch import (
    Batch,
    BatchFixed,
    BatchNystrom,
    PublishedCore,
    keep,
    kept,
    moved,
    phi,
    rho,
)
from edgefold.train.contract import State
from edgefold.train.layers.nystrom_attention import pseudo_inverse, segment_lengths

# Continual softmax attention ----------------------------------------------------------------------


class CoSi(PublishedCore):
    """The newest token's attention (eq. 7): a = rho(q_new, K); out = a V / phi(a)."""

    is_single = True

    def start(self, n_streams: int) -> State:
        return {name: self.tokens(n_streams, self.shape.window) for name in "kv"}

    def attend(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        keys, values = moved(state["k"], k), moved(state["v"], v)
        a = rho(q, keys)
        return {"k": keys, "v": values}, a @ values / phi(a)


class CoRe(PublishedCore):
    """The attention of all tokens in the window (eq. 5 and 6), from the sums of the last step."""

    def start(self, n_streams: int) -> State:
        n, h = self.shape.window, self.shape.n_heads
        state = {name: self.tokens(n_streams, n) for name in ("q", "k", "v", "av")}
        return {**state, "phi": self.zeros(n_streams, h, n, 1) + n}

    def attend(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        memory = state["q"][:, :, 1:]
        old, new = rho(memory, state["k"][:, :, :1]), rho(memory, k)
        queries, keys, values = (
            moved(state[name], row) for name, row in zip("qkv", (q, k, v), strict=True)
        )
        row = rho(q, keys)
        sums = torch.cat([state["phi"][:, :, 1:] - old + new, phi(row)], 2)
        attended = state["av"][:, :, 1:] - old * state["v"][:, :, :1] + new * v
        attended = torch.cat([attended, row @ values], 2)
        written = {"q": queries, "k": keys, "v": values, "phi": sums, "av": attended}
        return written, attended / sums


# Continual Nystrom attention to fixed landmarks ---------------------------------------------------


class CoNySiFix(PublishedCore):
    """The newest token's (eq. 26): (beta_phi Gamma_phi^+) (phi(Delta)^-1 * Delta V)."""

    is_single = True

    def __init__(self, shape: Shape, landmarks: Landmarks | None = None):
        super().__init__(shape)
        keep(self, landmarks or drawn_landmarks(shape))

    def start(self, n_streams: int) -> State:
        n, h, m = self.shape.window, self.shape.n_heads, self.shape.n_landmarks
        return {
            **{name: self.tokens(n_streams, n) for name in "kv"},
            "phi": self.zeros(n_streams, h, m, 1) + n,
            "delta_v": self.tokens(n_streams, m),
        }

    def attend(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        queries, keys, inverse = kept(self)
        beta = rho(q, keys)
        row = beta / phi(beta) @ inverse  # (B, H, 1, m)
        written = subtracted(state, queries, k, v)
        written |= {"k": moved(state["k"], k), "v": moved(state["v"], v)}
        means = written["delta_v"] / written["phi"]
        more, rows = self.rows(state, row)
        return {**written, **more}, rows @ means

    def rows(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        """Which rows of B_phi Gamma_phi^+ are answered, (B, H, rows, m), and what is kept."""
        return {}, row


def subtracted(state: State, queries: Tensor, k: Tensor, v: Tensor) -> State:
    """Eq. 24 and 25: the sums without the oldest token of the window and with the new one."""
    old, new = rho(queries, state["k"][:, :, :1]), rho(queries, k)  # (B, H, m, 1)
    return {
        "phi": state["phi"] - old + new,
        "delta_v": state["delta_v"] - old * state["v"][:, :, :1] + new * v,
    }


class CoNyReFix(CoNySiFix):
    """Answers all tokens in the window (eq. 23): a row of B_phi Gamma_phi^+ is appended."""

    is_single = False

    def start(self, n_streams: int) -> State:
        _, _, inverse = kept(self)
        m, n = self.shape.n_landmarks, self.shape.window
        row = self.zeros(n_streams, self.shape.n_heads, n, m) + inverse.mean(-2, keepdim=True)
        return {**super().start(n_streams), "rows": row}

    def rows(self, state: State, row: Tensor) -> tuple[State, Tensor]:
        rows = moved(state["rows"], row)
        return {"rows": rows}, rows


# Continual Nystrom attention to continual landmarks -----------------------------------------------


class CoNySiCont(PublishedCore):
    """The newest token's attention (eq. 22 and 26) to landmarks that follow the stream.

    The landmark of a segment is replaced when its last token comes, before that token's answer. A
    segment keeps its length and its landmark its place, so that n mod m may be anything.

    Every step of an exported graph computes both cases; `attend_one` computes the one that is due.
    """

    is_single = True

    def __init__(self, shape: Shape):
        super().__init__(shape)
        lengths = torch.tensor(segment_lengths(shape.window, shape.n_landmarks))
        self.register_buffer("lengths", lengths)
        self.register_buffer("ends", lengths.cumsum(0) - 1)

    def start(self, n_streams: int) -> State:
        n, h, m = self.shape.window, self.shape.n_heads, self.shape.n_landmarks
        ones = self.zeros(n_streams, h, m, m) + 1
        return {
            **{name: self.tokens(n_streams, n) for name in "kv"},
            **{name: self.tokens(n_streams, 1) for name in ("sum_q", "sum_k")},
            **{name: self.tokens(n_streams, m) for name in ("landmark_q", "landmark_k", "delta_v")},
            "phi": ones[..., :1] * n,
            "gamma": ones,
            "phi_gamma": ones[..., :1] * m,
            "inverse": ones / m,
        }

    def due(self, state: State) -> Tensor:
        """Which landmark this token completes, (B, 1, m, 1); False everywhere for none."""
        place = torch.remainder(state["n_tokens"], self.shape.window)
        return (place[:, None] == self.get_buffer("ends"))[:, None, :, None]

    def attend(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        due = self.due(state)
        is_due = due.any(2, keepdim=True)
        (same, same_found), (new, new_found) = (
            self.unchanged(state, q, k, v),
            self.changed(state, q, k, v, due),
        )
        chosen = {name: torch.where(is_due, new[name], same.get(name, state[name])) for name in new}
        return chosen, torch.where(is_due, new_found, same_found)

    def attend_one(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        """The same of one stream by a decision of Python, as the published code takes it."""
        due = self.due(state)
        if bool(due.any()):
            return self.changed(state, q, k, v, due)
        return self.unchanged(state, q, k, v)

    def window(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> State:
        """Write a token into the window, as every step does."""
        return {
            "k": moved(state["k"], k),
            "v": moved(state["v"], v),
            "sum_q": state["sum_q"] + q,
            "sum_k": state["sum_k"] + k,
        }

    def unchanged(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        """Landmarks stay (section IV-A2)."""
        written = self.window(state, q, k, v) | subtracted(state, state["landmark_q"], k, v)
        beta = rho(q, state["landmark_k"])
        row = beta / phi(beta) @ state["inverse"]
        more, rows = self.rows_unchanged(state, q, beta, row)
        return written | more, rows @ (written["delta_v"] / written["phi"])

    def changed(
        self, state: State, q: Tensor, k: Tensor, v: Tensor, due: Tensor
    ) -> tuple[State, Tensor]:
        """The landmark `due` is replaced (section IV-A1)."""
        window = self.window(state, q, k, v)
        length = (self.get_buffer("lengths")[:, None] * due).sum(2, keepdim=True).clamp_min(1)
        mean_q, mean_k = window["sum_q"] / length, window["sum_k"] / length  # (B, H, 1, d)
        old_k = (state["landmark_k"] * due).sum(2, keepdim=True)
        queries = torch.where(due, mean_q, state["landmark_q"])
        keys = torch.where(due, mean_k, state["landmark_k"])
        column, row = rho(queries, mean_k), rho(mean_q, keys)  # (B, H, m, 1), (B, H, 1, m)
        gamma = torch.where(due, row, torch.where(due.mT, column, state["gamma"]))  # eq. 16
        sums = state["phi_gamma"] - rho(state["landmark_q"], old_k) + column  # eq. 19
        sums = torch.where(due, phi(row), sums)
        inverse = pseudo_inverse(gamma / sums)
        kept = subtracted(state, state["landmark_q"], k, v)
        of_new = rho(mean_q, window["k"])  # (B, H, 1, n)
        written = {
            **window,
            **{name: torch.zeros_like(window[name]) for name in ("sum_q", "sum_k")},
            **{"landmark_q": queries, "landmark_k": keys, "gamma": gamma, "phi_gamma": sums},
            "inverse": inverse,
            "phi": torch.where(due, phi(of_new), kept["phi"]),  # eq. 20
            "delta_v": torch.where(due, of_new @ window["v"], kept["delta_v"]),  # eq. 17
        }
        beta = rho(q, keys)
        more, rows = self.rows_changed(state, q, beta, (old_k, mean_k), due, inverse)
        return written | more, rows @ (written["delta_v"] / written["phi"])

    def rows_unchanged(
        self, state: State, q: Tensor, beta: Tensor, row: Tensor
    ) -> tuple[State, Tensor]:
        """Return the state for the rows, and the rows that are answered, (B, H, rows, m)."""
        return {}, row

    def rows_changed(
        self,
        state: State,
        q: Tensor,
        beta: Tensor,
        means: tuple[Tensor, Tensor],
        due: Tensor,
        inverse: Tensor,
    ) -> tuple[State, Tensor]:
        """The same where a landmark, `means` before and after, was replaced."""
        return {}, beta / phi(beta) @ inverse


class CoNyReCont(CoNySiCont):
    """The attention of all tokens in the window (eq. 21 and 23)."""

    is_single = False

    def start(self, n_streams: int) -> State:
        n, m = self.shape.window, self.shape.n_landmarks
        ones = self.zeros(n_streams, self.shape.n_heads, n, m) + 1
        rows = {"b": ones, "phi_b": ones[..., :1] * m, "rows": ones / m}
        return {**super().start(n_streams), "q": self.tokens(n_streams, n), **rows}

    def rows_unchanged(
        self, state: State, q: Tensor, beta: Tensor, row: Tensor
    ) -> tuple[State, Tensor]:
        rows = moved(state["rows"], row)
        written = {"q": moved(state["q"], q), "b": moved(state["b"], beta), "rows": rows}
        return {**written, "phi_b": moved(state["phi_b"], phi(beta))}, rows

    def rows_changed(
        self,
        state: State,
        q: Tensor,
        beta: Tensor,
        means: tuple[Tensor, Tensor],
        due: Tensor,
        inverse: Tensor,
    ) -> tuple[State, Tensor]:
        memory = state["q"][:, :, 1:]
        old, new = (rho(memory, mean) for mean in means)  # (B, H, n - 1, 1)
        b = torch.cat([torch.where(due.mT, new, state["b"][:, :, 1:]), beta], 2)  # eq. 15
        sums = torch.cat([state["phi_b"][:, :, 1:] - old + new, phi(beta)], 2)  # eq. 18
        rows = b / sums @ inverse
        return {"q": moved(state["q"], q), "b": b, "phi_b": sums, "rows": rows}, rows


PUBLISHED: Mapping[str, Callable[[Shape], PublishedCore]] = {
    **{"Att": Batch, "Ny": BatchNystrom, "NyFix": BatchFixed, "CoRe": CoRe, "CoSi": CoSi},
    **{"CoNyReFix": CoNyReFix, "CoNySiFix": CoNySiFix},
    **{"CoNyReCont": CoNyReCont, "CoNySiCont": CoNySiCont},
}
BATCH_OF = {
    **{"CoRe": "Att", "CoSi": "Att", "CoNyReFix": "NyFix", "CoNySiFix": "NyFix"},
    **{"CoNyReCont": "Ny", "CoNySiCont": "Ny"},
}
"""The batch form that each continual one equals; of Ny at the end of each segment."""
