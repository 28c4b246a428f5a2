"""Tables of the records of errors: drift of the state, log-likelihoods of checkpoints."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import KERNELS, Table, error

LEGS = {
    "folded": "Edgefold, 32 points a fold",
    "single": "Edgefold, point by point",
    "plain": "plain float32 sums",
    "paper": "the paper's log-count form",
}
PARTS = {
    ("drift", "attended"): "drift",
    ("drift", "count"): "of weights",
    ("scoring", "attended"): "scoring",
    ("error", "attended"): "error",
}


def drift(data: Record) -> list[Table]:
    """Errors by points, every second moment, and the last of each leg."""
    legs = {leg["leg"]: {row["n_points"]: row for row in leg["rows"]} for leg in data["legs"]}
    moments = sorted({n for rows in legs.values() for n in rows})
    ends = {max(rows) for rows in legs.values()}
    shown = [n for i, n in enumerate(moments) if i % 2 == 0 or n in ends]

    def part(leg: str, n: int, kind: str) -> str:
        row = legs[leg].get(n)
        return error(row[kind]["norm"] if row else None)

    titles = {leg: title for leg, title in LEGS.items() if leg in legs}
    errors = [[f"{n:,}", *(part(leg, n, "error") for leg in titles)] for n in shown]
    drifts = []
    for n in (n for n in shown if n in legs["folded"] or n in legs["single"]):
        row = [f"{n:,}"]
        for leg in ("folded", "single"):
            found = legs[leg].get(n)
            for kind, which in PARTS:
                row.append(error(found[kind][which] if found else None))
        found = legs["folded"].get(n)
        drifts.append([*row, error(found["prediction_error"] if found else None)])
    note = (
        "Relative error of the state: the norm of the difference of all attended vectors from "
        f"float64's, over their norm. The model is {data['run']}; after {data['change']:,} points "
        "the stream goes on with other points."
    )
    names = {"folded": "32 a fold", "single": "by point"}
    header = [f"{names[leg]}: {PARTS[part]}" for leg in names for part in PARTS]
    below = (
        "The same by the worst latent: the largest error of any latent's attended vector, relative "
        "to that vector. Drift: against exact sums of the graph's own float32 scores and values, "
        "which is what the length of the stream adds; of the state, and of the sums of weights. "
        "Scoring: those exact sums against float64, which is the rounding of a single look at each "
        "point: it depends on which points come (the second set is scored more coarsely), not on "
        "how many, and takes the worst latent above the 1e-5 that the whole state is held to. Last "
        "column: largest error of mean and standard deviation of 16 predictions, in units of y. "
        "The required figures below are the largest along the stream."
    )
    return [
        Table(["points", *titles.values()], errors, note),
        Table(["points", *header, "32 a fold: prediction"], drifts, below),
    ]


def accuracy(data: Record) -> list[Table]:
    """Log-likelihoods of gp checkpoints, errors of series checkpoints."""
    tables = []
    gp = {name: run for name, run in data["runs"].items() if run["task"] == "gp"}
    rows = [
        [name, "", *_likelihoods(data[key])]
        for key, name in (
            ("exact_joint", "exact posterior, all targets jointly"),
            ("exact", "exact posterior, hyperparameters known"),
        )
        if key in data  # older records lack the joint one
    ]
    for name, run in gp.items():
        of = run["training"]
        trained = f"{of['steps_done']:,} in {of['duration_s'] / 3600:.1f} h"
        trained += ", from an older run" if "--start-from" in of["command"] else ""
        rows.append([f"checkpoints/{name}", trained, *_likelihoods(run["scores"])])
    papers = {name: row for run in gp.values() for name, row in run["published"].items()}
    rows += [[name, "", *(f"{v:.2f}" for v in row)] for name, row in papers.items()]
    header = ["1-D regression, log-likelihood", "training steps", *KERNELS.values()]
    batches = [run["n_batches"] for run in gp.values()]
    n = f"{batches[0]:,} batches of 16 tasks" if batches else "the papers' protocol"
    note = (
        f"Nats a target, plus or minus a standard error; {n}, the exact posterior on "
        f"{data['exact']['rbf']['n_batches']:,} of them. CMANP-AND (gp-and) predicts blocks of 5 "
        "targets jointly, each after the true values of the blocks before it: compare it with the "
        "joint posterior. The other rows predict every target from the context alone."
    )
    tables.append(Table(header, rows, note))
    for name, run in data["runs"].items():
        if run["task"] == "series":
            tables.append(_series(name, run))
    return tables


def _likelihoods(scores: Record) -> list[str]:
    return [
        f"{scores[kernel]['log_likelihood']:.3f} ± {scores[kernel]['standard_error']:.3f}"
        for kernel in KERNELS
    ]


def _series(name: str, run: Record) -> Table:
    ranked = sorted(run["scores"].items(), key=lambda pair: float(pair[1]["rmse"]))
    rows = [
        [
            f"checkpoints/{forecast}" if forecast == name else forecast,
            f"{s['rmse']:.4f}",
            f"{s['mae']:.4f}",
            f"{100 * s['coverage_90']:.1f} %",
            f"{s['log_likelihood']:.3f}",
        ]
        for forecast, s in ranked
    ]
    header = [f"{run['file']}, one step ahead", "RMSE", "MAE", "in 90 % band", "log-likelihood"]
    n = ranked[0][1]["n"]
    return Table(header, rows, f"The last {n:,} rows, which training never saw; best RMSE first.")
