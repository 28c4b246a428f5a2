"""Say which nodes of graphs generated C does not cover, and what to write instead of them.

The rules decide what is covered: lowering a graph calls them, and collects each node that one of
them refuses, or that has none. Only the advice is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgefold.runtime.errors import ExportError

NAMED = 3
"""Largest number of nodes of one operator that a text names."""
WAYS_OUT = (
    "Run the bundle on onnxruntime, write the model without {}, or add a rule (CONTRIBUTING.md)."
)
"""Text that ends each refusal, for the operators' names."""


@dataclass(frozen=True, slots=True)
class UncoveredNode:
    """Describes a node that generated C does not cover.

    Attributes:
        operator: The ONNX operator.
        node: The node's name, or the name of its first output.
        reason: A clause, such as "there is no rule for this operator".
        graph: Name of its graph; "" where only one is lowered.
    """

    operator: str
    node: str
    reason: str
    graph: str = ""


class UncoveredError(ExportError):
    """The graphs have nodes that generated C does not cover; `nodes` describes each."""

    def __init__(self, nodes: Sequence[UncoveredNode]):
        operators = _operators(nodes)
        advice = "".join(f"{INSTEAD[name]}. " for name in operators if name in INSTEAD)
        clauses = "; ".join(_groups(nodes))
        ways_out = WAYS_OUT.format(" and ".join(operators))
        super().__init__(f"native code does not cover {clauses}. {advice}{ways_out}")
        self.nodes = tuple(nodes)

    def lines(self) -> tuple[str, ...]:
        """Return the message as lines: what is not covered, and what to write instead."""
        lines: list[str] = []
        operators = _operators(self.nodes)
        for operator in operators:
            lines += _groups(node for node in self.nodes if node.operator == operator)
            lines += [f"  {INSTEAD[operator]}."] if operator in INSTEAD else []
        return (*lines, WAYS_OUT.format(" and ".join(operators)))


def _operators(nodes: Iterable[UncoveredNode]) -> list[str]:
    """Return the operators of some nodes, each once, in the order of the nodes."""
    return list(dict.fromkeys(node.operator for node in nodes))


def _groups(nodes: Iterable[UncoveredNode]) -> list[str]:
    """Return a clause for each operator and reason, with the nodes and graphs that have them."""
    groups: dict[tuple[str, str], list[UncoveredNode]] = {}
    for node in nodes:
        groups.setdefault((node.operator, node.reason), []).append(node)
    clauses = []
    for (operator, reason), alike in groups.items():
        names = list(dict.fromkeys(repr(node.node) for node in alike))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        graphs = list(dict.fromkeys(node.graph for node in alike if node.graph))
        where = f" in {', '.join(graphs)}" if graphs else ""
        word = "node" if len(names) == 1 else "nodes"
        named = ", ".join(names[:NAMED])
        clauses.append(f"{operator} of {word} {named}{more}{where}: {reason}")
    return clauses


INSTEAD: dict[str, str] = {
    "Acos": "Instead of torch.acos(x), let the model keep x, which is the cosine",
    "Acosh": "Instead of torch.acosh(x), write torch.log(x + torch.sqrt(x * x - 1))",
    "Asin": "Instead of torch.asin(x), let the model keep x, which is the sine",
    "Asinh": "Instead of torch.asinh(x), write x.sign() * torch.log(x.abs() + torch.sqrt(x * x "
    "+ 1))",
    "Atan": "Instead of torch.atan and torch.atan2, let the model take and keep the sine and the "
    "cosine of an angle",
    "Atanh": "Instead of torch.atanh(x), write 0.5 * torch.log((1 + x) / (1 - x))",
    "AveragePool": "Instead of nn.AvgPool1d(n) in a form that is not covered, write "
    "x.unfold(-1, n, step).mean(-1)",
    "BatchNormalization": "Call eval() on the model before its export: with constant statistics "
    "the export writes nn.BatchNorm1d as a product and a sum",
    "Cosh": "Instead of torch.cosh(x), write (torch.exp(x) + torch.exp(-x)) / 2",
    "DFT": "Instead of torch.fft, multiply by matrices of cosines and sines, made in __init__",
    "Det": "Instead of torch.det, write the formula for a matrix of this size, as a * d - b * c",
    "Einsum": "Instead of torch.einsum, write torch.matmul and transpose, or (a * b).sum(dim)",
    "GRU": "Instead of nn.GRU in a form that is not covered, call an nn.GRUCell for each time",
    "GridSample": "Instead of grid_sample, write torch.gather at computed places",
    "If": "Instead of torch.cond, compute both and write torch.where(condition, a, b)",
    "LSTM": "Instead of nn.LSTM in a form that is not covered, call an nn.LSTMCell for each time",
    "Loop": "Write the loop over a fixed number of times in Python: the export unrolls it",
    "MaxPool": "Instead of nn.MaxPool1d(n) in a form that is not covered, write "
    "x.unfold(-1, n, step).amax(-1)",
    "RNN": "Instead of nn.RNN in a form that is not covered, call an nn.RNNCell for each time",
    "ReduceProd": "Instead of x.prod(dim), multiply slices one by one",
    "Resize": "Instead of interpolate in mode nearest by a whole factor n, write "
    "x[..., None].expand(*x.shape, n).flatten(-2); in another mode, multiply by a matrix of "
    "weights that __init__ makes",
    "Scan": "Write the loop over a fixed number of times in Python: the export unrolls it",
    "ScatterElements": "Instead of scatter and scatter_add, write torch.where(places == "
    "torch.arange(n), value, x), or a sum over torch.nn.functional.one_hot(places, n)",
    "ScatterND": "Instead of x[places] = value, write "
    "torch.where(places == torch.arange(n), value, x)",
    "Sinh": "Instead of torch.sinh(x), write (torch.exp(x) - torch.exp(-x)) / 2",
    "Tan": "Instead of torch.tan(x), write torch.sin(x) / torch.cos(x)",
    "Trilu": "Instead of torch.tril and torch.triu, write torch.where(mask, x, 0.0) with a mask "
    "that __init__ makes by torch.ones(n, n).tril() > 0",
}
"""Advice by operator, in terms of PyTorch: a sentence without its full stop."""
