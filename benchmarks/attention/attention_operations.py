"""How many floating-point operations does a step of attention take, counted and by the formulas?

The published forms and ours run once in PyTorch, and every operation that reaches a kernel is
counted as the appendix of Carreto Picon et al. counts:

    a product of matrices    one for each pair of numbers multiplied and added
    exp, + - * / , mean      one for each number of the result
    a sum                    one for each number summed
    a softmax                one for each number and one for each row

What moves, compares or chooses numbers counts nothing. The formulas take one head of width d; the
forms are counted so, and again with 16 heads of 12, which is what runs. A continual form with
continual landmarks does two things: at most tokens nothing moves, at every n/m-th one a landmark
does; the mean is told. Where a count is not the formula's, the table says term by term why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.attention.attention_cores import KINDS, Core, HoppingCore, Shape, our_core
from benchmarks.attention.published_cores import PUBLISHED, CoNySiCont
from benchmarks.record import Requirement, arguments, conditions, finish
from benchmarks.tables import as_text
from edgefold.train.contract import advance

QUESTION = "How many operations does a step of attention take, counted and by the formulas?"
ONE_HEAD = Shape(n_heads=1)
N_TOKENS = 130
"""After these, every window is full."""

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
BY_RESULT = (
    *("exp", "add", "sub", "rsub", "mul", "div", "neg", "reciprocal", "abs"),
    *("maximum", "clamp_min", "clamp"),
)
BY_OPERAND = ("sum", "mean", "amax")
FREE = (
    *("view", "_unsafe_view", "slice", "select", "split", "split_with_sizes", "unbind", "cat"),
    *("expand", "t", "transpose", "permute", "unsqueeze", "squeeze", "clone", "where", "eye"),
    *("remainder", "floor_divide", "arange", "any", "eq", "lt", "le", "gt", "ge", "bitwise_and"),
    *(
        "zeros_like",
        "zeros",
        "full_like",
        "full",
        "scalar_tensor",
        "index_select",
        "gather",
        "copy_",
    ),
    *("constant_pad_nd", "alias", "detach", "_to_copy", "lift_fresh", "is_same_size", "new_zeros"),
    *("_local_scalar_dense", "item", "embedding", "index", "fill_", "empty", "logical_not"),
    *("diagonal_copy", "ones_like", "fill", "new_empty", "empty_strided", "scatter", "argmax"),
)


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs inside it; an operation that it does not know is an error.

    Attributes:
        counts: By kind: products, exp, softmax, sums, element-wise.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        floats = isinstance(found, Tensor) and found.is_floating_point()
        if name in PRODUCTS:
            left = args[1] if name.startswith(("addmm", "baddbmm")) else args[0]
            self.counts["products"] += found.numel() * left.shape[-1]
        elif name == "_softmax":
            self.counts["softmax"] += found.numel() + found.numel() // found.shape[args[1]]
        elif name in BY_RESULT:
            kind = "exp" if name == "exp" else "element-wise"
            self.counts[kind] += found.numel() if floats else 0
        elif name in BY_OPERAND:
            self.counts["sums"] += args[0].numel() if floats else 0
        elif name not in FREE:
            raise NotImplementedError(f"{func} is neither counted nor known to be free")
        return found


def counted(call: Callable[[], Any]) -> dict[str, int]:
    """Operations of a call, by kind."""
    mode = Operations()
    with torch.no_grad(), mode:
        call()
    return {kind: n for kind, n in sorted(mode.counts.items()) if n}


# The formulas -------------------------------------------------------------------------------------

FORMULAS: dict[str, Callable[[int, int, int], int]] = {
    "Att": lambda n, d, m: 2 * n**2 * d + n**2 + n * d + n,
    "Ny": lambda n, d, m: (
        4 * n * d * m + 2 * n * d + n + n * m**2 + 2 * n * m + d * m**2
        + 24 * m**3 + 22 * m**2 + 2 * m
    ),
    "NyFix": lambda n, d, m: 4 * n * d * m + n * m**2 + 2 * n * m + n + m,
    "CoRe": lambda n, d, m: 7 * n * d + 4 * n - 2 * d - 2,
    "CoSi": lambda n, d, m: 3 * n * d + 2 * n,
    "CoNyReFix": lambda n, d, m: n * d * m + 6 * d * m + m**2 + 6 * m,
    "CoNySiFix": lambda n, d, m: 7 * d * m + m**2 + 6 * m,
    "CoNyReCont": lambda n, d, m: (
        n * d * m + 8 * n * d + n * m**2 + n * m + 11 * n + 15 * d * m + 2 * d
        + 24 * m**3 + 22 * m**2 + 22 * m
    ),
    "CoNySiCont": lambda n, d, m: (
        n * d * m + 3 * n * d + n + 9 * d * m + 2 * d + 24 * m**3 + 22 * m**2 + 13 * m
    ),
}  # fmt: skip
"""Appendix A; of the last two: of a token that moves a landmark."""

TABLE_III = {
    **{"Att": 5.57, "CoSi": 0.07, "Ny": 0.42, "NyFix": 0.37},
    **{"CoNySiCont": 0.01, "CoNySiFix": 0.005},
}
"""MFLOP of one layer; a published continual model answers for the newest token alone."""


@dataclass(frozen=True, slots=True)
class Term:
    """A reason why a count differs from its formula, and by how much: counted less formula."""

    why: str
    difference: Callable[[int, int, int], int]


SCALED = Term("queries come scaled", lambda n, d, m: -n * d)
UPDATE = Term(
    "phi(Delta) takes 2 m, the formula says m: one is subtracted and one added", lambda n, d, m: m
)
UPDATE_V = Term(
    "Delta V takes 4 d m, the formula says 3 d m: two products, one subtracted and one added",
    lambda n, d, m: d * m,
)
DIVIDE = Term("Delta V is divided by phi(Delta): d m, not in the formula", lambda n, d, m: d * m)
INVERSE = Term(
    "the pseudo-inverse takes 60 element-wise steps, sums and norms of m^2, the formula says 21 "
    "m^2",
    lambda n, d, m: inverse_counts(m)["rest"] - 21 * m**2,
)
TERMS: dict[str, tuple[Term, ...]] = {
    "Att": (SCALED,),
    "Ny": (INVERSE,),
    "NyFix": (),
    "CoSi": (
        Term(
            "a V has d numbers to divide, the formula says n d", lambda n, d, m: d - n * d
        ),
    ),
    "CoRe": (
        Term(
            "rho(Q, k_old) and rho(Q, k_new) are both computed, the formula counts one",
            lambda n, d, m: 2 * (n - 1) * (d + 1) - (n * d + n - 1),
        ),
        Term("phi(A) takes 2 (n - 1), the formula says n - 1", lambda n, d, m: n - 1),
        Term(
            "A V takes 4 (n - 1) d, the formula says 3 n d - 2 d",
            lambda n, d, m: 4 * (n - 1) * d - (3 * n * d - 2 * d),
        ),
    ),
    "CoNyReFix": (UPDATE, UPDATE_V, DIVIDE),
    "CoNySiFix": (UPDATE, UPDATE_V, DIVIDE),
    "CoNyReCont": (
        INVERSE,
        Term(
            "exponentials of new rows and columns, and Delta V's, take 4 n d - 2 d, the formula "
            "says 8 n d",
            lambda n, d, m: -4 * n * d - 2 * d,
        ),
        Term("their sums take 6 n - 4, the formula says 11 n", lambda n, d, m: -5 * n - 4),
        Term(
            "the rest takes 13 d m + 4 d + m^2 + 12 m, the formula says 15 d m + 2 d + m^2 + 22 m",
            lambda n, d, m: -2 * d * m + 2 * d - 10 * m,
        ),
    ),
    "CoNySiCont": (
        INVERSE,
        Term("one row is answered: d m, the formula says n d m", lambda n, d, m: d * m - n * d * m),
        Term(
            "a row of Delta V takes 2 n d, the formula says 3 n d", lambda n, d, m: -n * d
        ),
        Term("its exponentials and their sum take 2 n, the formula says n", lambda n, d, m: n),
        Term(
            "the rest takes 13 d m + 4 d + 2 m^2 + 13 m, the formula says 9 d m + 2 d + m^2 + 13 m",
            lambda n, d, m: 4 * d * m + 2 * d + m**2,
        ),
    ),
}  # fmt: skip


def inverse_counts(m: int) -> dict[str, int]:
    """Operations of the iterated pseudo-inverse of (m, m): products, and the rest."""
    from edgefold.train.layers.nystrom_attention import pseudo_inverse

    found = counted(lambda: pseudo_inverse(torch.eye(m)[None, None]))
    return {"products": found["products"], "rest": sum(found.values()) - found["products"]}


# Counts -------------------------------------------------------------------------------------------


def published_counts(name: str, shape: Shape) -> dict[str, Any]:
    """Count a published form with a full window: a step, and one that moves a landmark."""
    torch.manual_seed(0)
    model = PUBLISHED[name](shape)
    state = model.initial_state(1)
    tokens = 0.3 * torch.randn(N_TOKENS, 1, model.n_inputs)
    for x in tokens:
        state = advance(model, state, model.step(state, x)[0])
    q, k, v = tokens[0].view(1, 3, shape.n_heads, 1, shape.head_width).unbind(1)
    if not isinstance(model, CoNySiCont):
        return {"step": counted(lambda: model.attend(state, q, k, v))}
    due = model.get_buffer("ends")[None, None, :, None] == shape.window - 1
    return {
        "step": counted(lambda: model.unchanged(state, q, k, v)),
        "moving": counted(lambda: model.changed(state, q, k, v, due)),
    }


def our_counts(kind: str, shape: Shape) -> dict[str, Any]:
    """Count one of our cores: a step, and `consolidate`, which runs every `period` steps."""
    torch.manual_seed(0)
    core: Core | HoppingCore = our_core(kind, shape)
    state, x = core.initial_state(1), torch.ones(1, core.n_inputs)
    found: dict[str, Any] = {"step": counted(lambda: core.step(state, x)), "period": 0}
    if core.consolidate_every:
        found["consolidate"] = counted(lambda: core.consolidate(state))
        found["period"] = core.consolidate_every
    return found


def mean_of(found: dict[str, Any], period: int) -> float:
    """Operations of a step on average over a period.

    `moving` replaces one step of it, `consolidate` comes beside one.
    """
    step, moving, consolidation = (
        float(sum(found.get(part, {}).values())) for part in ("step", "moving", "consolidate")
    )
    if "moving" in found:
        return (step * (period - 1) + moving) / period
    return step + consolidation / max(1, int(found.get("period", 0)))


def measure(shape: Shape) -> dict[str, Any]:
    """All forms, published and ours."""
    n, d, m = shape.window, shape.width, shape.n_landmarks
    one = Shape(n, d, 1, m)
    period = n // m
    published = {}
    for name, formula in FORMULAS.items():
        counts = published_counts(name, one)
        of_moving = "moving" in counts
        total = sum(counts["moving" if of_moving else "step"].values())
        terms = [[t.why, t.difference(n, d, m)] for t in TERMS[name]]
        mean_formula = formula(n, d, m)
        if of_moving:
            still = FORMULAS[name.replace("Cont", "Fix")](n, d, m)
            mean_formula = (still * (period - 1) + mean_formula) / period  # type: ignore[assignment]
        published[name] = {
            "counts": counts,
            "counted": total,
            "formula": formula(n, d, m),
            "terms": terms,
            "mean": mean_of(counts, period),
            "mean_formula": mean_formula,
            "mean_all_heads": mean_of(published_counts(name, shape), period),
            "table_iii": TABLE_III.get(name),
        }
    ours = {}
    for kind in KINDS:
        counts = our_counts(kind, shape)
        ours[kind] = {"counts": counts, "mean": mean_of(counts, 0)}
    return {"n": n, "d": d, "m": m, "n_heads": shape.n_heads, "published": published, "ours": ours}


def requirements(published: dict[str, Any]) -> list[Requirement]:
    """Counts are the formulas' once the differences are told; means are those of Table III."""
    found = []
    for name, told in published.items():
        rest = told["counted"] - told["formula"] - sum(by for _, by in told["terms"])
        what = f"{name}: counted, less formula and differences told"
        found.append(Requirement(what, f"{rest:,}", "0", rest == 0))
        if told["table_iii"] is not None:
            millions = told["mean_formula"] / 1e6
            digits = 3 if told["table_iii"] < 0.01 else 2
            shown = round(millions, digits)
            found.append(
                Requirement(
                    f"{name}: formula, MFLOP, beside Table III",
                    f"{shown:g}",
                    f"{told['table_iii']:g}",
                    math.isclose(shown, told["table_iii"]),
                )
            )
    return found


def main() -> None:
    """Count, and record."""
    parser = arguments(__doc__ or "", "attention_operations")
    args = parser.parse_args()
    before = conditions()
    data = measure(Shape())
    finish(
        args,
        "attention_operations",
        QUESTION,
        before,
        data,
        requirements(data["published"]),
        as_text,
    )


if __name__ == "__main__":
    main()
