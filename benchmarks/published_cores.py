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

from benchmarks.attention_cores import Landmarks, Shape, drawn_landmarks
from edgefold.runtime.predictions import Raw
from edgefold.train.models.contract import Prediction, State, StreamingModel
from edgefold.train.models.nystrom_attention import pseudo_inverse, segment_lengths


class PublishedCore(StreamingModel):
    """What all have: sizes, the split of a token by head, windows that move by a token.

    Subclasses give `start` and `attend`. A single output is (B, H, d), the others (B, H, n, d), the
    oldest token's first.
    """

    name, n_outputs = "published-core", 0
    is_single = False

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape, self.n_inputs = shape, 3 * shape.width
        rows = () if self.is_single else (shape.window,)
        self.prediction = Raw({"found": (shape.n_heads, *rows, shape.head_width)})
        self.register_buffer("like", torch.zeros(1))

    def zeros(self, *size: int) -> Tensor:
        """Of the type of the model, (*size)."""
        return self.get_buffer("like").new_zeros(size)

    def tokens(self, n_streams: int, length: int) -> Tensor:
        """A window of zeros, (B, H, length, d)."""
        return self.zeros(n_streams, self.shape.n_heads, length, self.shape.head_width)

    def initial_state(self, n_streams: int = 1) -> State:
        counter = {"n_tokens": torch.zeros(n_streams, dtype=torch.int64)}
        return {**self.start(n_streams), **counter}

    def start(self, n_streams: int) -> State:
        """The state over a window of zeros."""
        raise NotImplementedError

    def attend(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        """Take a token, each (B, H, 1, d): what changes of the state, and what is found."""
        raise NotImplementedError

    def step(self, state: State, x: Tensor) -> tuple[State, Prediction]:
        q, k, v = x.view(len(x), 3, self.shape.n_heads, 1, self.shape.head_width).unbind(1)
        written, found = self.attend(state, q, k, v)
        written["n_tokens"] = state["n_tokens"] + 1
        written["finite"] = torch.zeros_like(x[:, 0])
        return written, {"found": found[:, :, 0] if self.is_single else found}


def rho(p: Tensor, w: Tensor) -> Tensor:
    """exp(P W^T), (..., rows of P, rows of W)."""
    return torch.exp(p @ w.mT)


def phi(a: Tensor) -> Tensor:
    """Sums of rows, (..., rows, 1)."""
    return a.sum(-1, keepdim=True)


def moved(window: Tensor, new: Tensor) -> Tensor:
    """A window of rows without its oldest one and with a new one."""
    return torch.cat([window[:, :, 1:], new], 2)


# The window computed anew at each token -----------------------------------------------------------


class Batch(PublishedCore):
    """Softmax attention of the whole window (Att)."""

    def start(self, n_streams: int) -> State:
        return {name: self.tokens(n_streams, self.shape.window) for name in "qkv"}

    def attend(self, state: State, q: Tensor, k: Tensor, v: Tensor) -> tuple[State, Tensor]:
        window = {name: moved(state[name], row) for name, row in zip("qkv", (q, k, v), strict=True)}
        return {**window}, self.found(window["q"], window["k"], window["v"])

    def found(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What windows (B, H, n, d) of queries, keys and values find."""
        return torch.softmax(q @ k.mT, -1) @ v


class BatchNystrom(Batch):
    """Nystrom attention to means over segments of the window (Ny, eq. 8)."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        self.lengths = segment_lengths(shape.window, shape.n_landmarks)

    def found(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        landmarks = (
            torch.cat(
                [part.mean(2, keepdim=True) for part in torch.split(rows, self.lengths, 2)], 2
            )
            for rows in (q, k)
        )
        queries, keys = landmarks
        inverse = pseudo_inverse(torch.softmax(queries @ keys.mT, -1))
        return nystrom(q, k, v, queries, keys, inverse)


class BatchFixed(Batch):
    """Nystrom attention to fixed landmarks (NyFix)."""

    def __init__(self, shape: Shape, landmarks: Landmarks | None = None):
        super().__init__(shape)
        keep(self, landmarks or drawn_landmarks(shape))

    def found(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nystrom(q, k, v, *kept(self))


def nystrom(
    q: Tensor, k: Tensor, v: Tensor, queries: Tensor, keys: Tensor, inverse: Tensor
) -> Tensor:
    """Eq. 8, multiplied in the order of the appendix: (n x m)(m x m), (m x n)(n x d), both."""
    left = torch.softmax(q @ keys.mT, -1) @ inverse
    return left @ (torch.softmax(queries @ k.mT, -1) @ v)


def keep(model: StreamingModel, landmarks: Landmarks) -> None:
    """Constant landmarks as buffers."""
    model.register_buffer("landmark_queries", landmarks.queries)
    model.register_buffer("landmark_keys", landmarks.keys)
    model.register_buffer("inverse", landmarks.inverse)


def kept(model: StreamingModel) -> tuple[Tensor, Tensor, Tensor]:
    """What `keep` kept."""
    queries, keys, inverse = (
        model.get_buffer(name) for name in ("landmark_queries", "landmark_keys", "inverse")
    )
    return queries, keys, inverse


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
    """That of all tokens in the window (eq. 23): a row of B_phi Gamma_phi^+ is appended."""

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
        """What every step writes of its token."""
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
        """What is kept for the rows, and which are answered, (B, H, rows, m)."""
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
