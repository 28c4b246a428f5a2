"""The tables of the benchmarks of attention alone."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table
from edgefold.cli.text.numbers import format_bytes, format_time

OURS = {
    "single": "single output",
    "retroactive": "all rows, retroactive",
    "nystrom fixed": "Nyström, fixed landmarks",
    "nystrom fixed folded": "Nyström, fixed landmarks, products folded",
    "nystrom means": "Nyström, continual landmarks",
    "nystrom fixed retroactive": "Nyström, fixed landmarks, all rows",
    "nystrom means retroactive": "Nyström, continual landmarks, all rows",
    "hopping": "hopping Nyström",
    "hopping folded": "hopping Nyström, products folded",
}
WAYS = {
    "graph": "Edgefold, graph",
    "step": "Edgefold, Stream.step",
    "eager": "published, PyTorch eager",
    "as graph": "published, as a graph",
}
FORMS = {
    "Att": "softmax, the whole window (Att)",
    "Ny": "Nyström, the whole window (Ny)",
    "NyFix": "Nyström, fixed, the whole window (NyFix)",
}


# Speed --------------------------------------------------------------------------------------------


def attention_speed(data: Record) -> list[Table]:
    """A row for each core and way to run it; a row for each window's length."""
    rows = []
    for key, told in data["times"].items():
        if key == "noise":
            continue
        way, name = key.split(": ")
        spread = f"{format_time(told['p10_s'])} to {format_time(told['p90_s'])}"
        form = data["paper_form"].get(name, name)
        rows.append(
            [
                f"{WAYS[way]}: {OURS.get(name, FORMS.get(name, name))}",
                format_time(told["mean_s"]),
                spread,
                format_time(told["step_s"]),
                f"{format_time(told['worst_s'])}, 1 in {told['period']}" if told["period"] else "",
                format_bytes(told["state_bytes"]) if "state_bytes" in told else "",
                format_bytes(data["paper_bytes"][form]) if way in ("graph", "eager") else "",
            ]
        )
    header = ["a step", "mean", "p10 to p90", "most steps", "worst", "state", "the papers' count"]
    sizes = f"n {data['n']}, d {data['d']}, {data['n_heads']} heads, m {data['m']}"
    note = (
        f"Attention alone, {sizes}; processor time of one thread, medians of {data['rounds']} "
        "rounds in which all took turns. The mean holds what is due only every so many tokens: "
        "consolidation, or a landmark that moves. Stream.step is a mean over 960 tokens. Products "
        "folded: fixed landmarks are a part of the projection on a device, so that the core takes "
        "scores; the row without makes the products itself. The published forms are written here "
        "from their equations, without what the authors' classes do beside; these took 155 µs "
        "(single output) and 260 µs (continual Nyström) when they were measured on a machine of "
        "this kind. State: of ours the manifest's bytes. The papers' count of numbers, times 4: "
        "for fixed landmarks it leaves out the window's keys and values, without which nothing "
        "can be subtracted; their state column is what the equations really need."
    )
    return [Table(header, rows, note), _lengths(data["lengths"]), _nodes(data["nodes"])]


def _nodes(nodes: Record) -> Table:
    """Return a table of a graph's time by kinds of nodes."""
    rows = []
    for key, told in nodes.items():
        kind, step = key.split(", ")[0], key.rsplit(", ", 1)[1]
        most = ", ".join(f"{op} {s / told['nodes_s']:.0%}" for op, s in told["most"].items())
        times = [format_time(told[part]) for part in ("graph_s", "nodes_s", "call_s")]
        rows.append([f"{OURS[kind]}: {step}", str(told["n_nodes"]), *times, most])
    header = ["graph", "nodes", "one call", "its nodes alone", "the call alone", "most of it"]
    note = (
        "The least of some rounds. A node alone finds its operands in the nearest cache: a node of "
        "this size takes half a microsecond to dispatch, whatever it computes."
    )
    return Table(header, rows, note)


def _lengths(lengths: Record) -> Table:
    """Time and state by the window's length."""
    told = {tuple(key.rsplit(", ", 1)): t for key, t in lengths.items() if key != "noise"}
    kinds = list(dict.fromkeys(kind for kind, _ in told))
    rows = []
    for n in dict.fromkeys(n for _, n in told):
        cells = [told[kind, n] for kind in kinds]
        rows.append(
            [
                f"{int(n):,}",
                *(format_time(cell["mean_s"]) for cell in cells),
                *(format_bytes(cell["state_bytes"]) for cell in cells),
            ]
        )
    names = [OURS[kind] for kind in kinds]
    header = ["window n", *names, *(f"state: {name}" for name in names)]
    note = "The newest token's answer in the graph, the mean over a period, consolidation included."
    return Table(header, rows, note)


# Operations ---------------------------------------------------------------------------------------


def attention_operations(data: Record) -> list[Table]:
    """Counts and formulas, the terms between them, and ours."""
    rows, terms = [], []
    for name, told in data["published"].items():
        rows.append(
            [
                name,
                f"{told['counted']:,}",
                f"{told['formula']:,}",
                f"{told['counted'] - told['formula']:+,}",
                f"{told['mean']:,.0f}",
                f"{told['mean_formula'] / 1e6:.4f}",
                "" if told["table_iii"] is None else f"{told['table_iii']:g}",
                f"{told['mean_all_heads']:,.0f}",
            ]
        )
        terms += [[f"{name}: {why}", f"{by:+,}"] for why, by in told["terms"]]
    header = ["published form", "counted", "formula", "difference", "mean of a step"]
    header += ["mean by formula, M", "Table III, M", f"mean with {data['n_heads']} heads"]
    sizes = f"n {data['n']}, d {data['d']}, m {data['m']}"
    note = (
        f"{sizes}, one head, as the formulas take it. An operation is what the appendix counts: a "
        "multiplication with its addition in a product, an exponential, a division. Of continual "
        "landmarks `counted` is a token that moves one, once in n/m; the mean is over these."
    )
    first = Table(header, rows, note)
    second = Table(["why a count is not its formula", "counted less formula"], terms)
    ours = []
    for kind, told in data["ours"].items():
        counts = told["counts"]
        between = f"{sum(counts['consolidate'].values()):,}" if "consolidate" in counts else ""
        ours.append(
            [
                OURS[kind],
                f"{sum(counts['step'].values()):,}",
                between,
                f"{counts['period'] or ''}",
                f"{told['mean']:,.0f}",
            ]
        )
    header = ["Edgefold", "a step", "consolidation", "every", "mean"]
    note = (
        f"The same count of ours, {data['n_heads']} heads. What keeps sums exact is in it: a "
        "largest score for each sum, and of Nyström attention the sums made anew from the window. "
        "What chooses numbers (`where`) is not counted, here and above."
    )
    return [first, second, Table(header, ours, note)]


# Drift --------------------------------------------------------------------------------------------


def attention_drift(data: Record) -> list[Table]:
    """The error at the end of each leg by case, and along the stream at deviation 4."""
    cases = data["cases"]
    rows = []
    for leg in data["legs"]:
        last = leg["rows"][-1]
        cells = [_pair([row["error"][c] for row in leg["rows"]]) for c in cases]
        batch = [max(row["batch"][c] for row in leg["rows"]) for c in cases]
        rows.append([_name(leg["leg"]), f"{last['n_tokens']:,}", *cells])
        rows.append(["  the batch form in float32", "", *(f"{value:.1e}" for value in batch)])
    header = ["largest error along the stream", "tokens", *(f"deviation {c}" for c in cases)]
    note = (
        "Largest difference of any head's answer from attention over the window's tokens alone in "
        f"float64, over the last {data['checked']:,} answers before each moment (of all rows: each "
        "20th of them); values have standard deviation 1. `nan`: an answer was not finite, or lost "
        "beyond 1e30. Deviation is that of queries and keys; scores have its square. Outliers: one "
        "key in 1,000 is 100 times as large. The row below is the same window computed at once in "
        "float32: its error is the rounding of scores, which reach 60 at deviation 4 and thousands "
        "with outliers, and the length of the stream adds nothing to it."
    )
    moments = sorted({row["n_tokens"] for leg in data["legs"] for row in leg["rows"]})
    along = []
    for leg in data["legs"]:
        by_moment = {row["n_tokens"]: row for row in leg["rows"]}
        for case in ("1", "4, outliers"):
            cells = [_error(by_moment[n]["error"][case]) if n in by_moment else "" for n in moments]
            along.append([f"{_name(leg['leg'])}, {case}", *cells])
    second = Table(["error after tokens", *(f"{n:,}" for n in moments)], along)
    return [Table(header, rows, note), second]


def _name(leg: str) -> str:
    return f"Edgefold: {OURS[leg]}" if leg in OURS else f"published: {leg}"


def _pair(values: list[float | None]) -> str:
    """The largest of errors; nan where one is lost."""
    finite = [value for value in values if value is not None]
    return _error(max(finite)) if len(finite) == len(values) else "nan"


def _error(value: float | None) -> str:
    return "nan" if value is None else f"{value:.1e}"
