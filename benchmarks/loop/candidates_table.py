"""The table of `benchmarks.loop.candidates`: promotions of pairs, and of one that is better."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def candidates(data: Record) -> list[Table]:
    """Promotions over many pairs, and how soon one that is better is promoted."""
    pairs = Table(
        ["pairs", "rows", "candidate better", "of these promoted", "promoted in all", "wrongly"],
        [
            [
                *(f"{data['n_pairs']}", f"{data['n_rows']:,}", f"{data['n_better']}"),
                *(f"{data['n_better_promoted']}", f"{data['n_promoted']}", f"{data['n_wrong']}"),
            ]
        ],
        f"The stated risk is {data['risk']:g}. A promotion is wrong if the mean of the expected "
        "differences of log scores up to it is not above 0; better is a candidate whose mean over "
        "the whole stream is.",
    )
    names = {
        "noise_known": "the candidate knows the values' noise",
        "noise_unknown": "it is too sure of itself",
    }
    streams = Table(
        [
            *("pair", "streams", "better by", "spread of a row", "promoted", "median rows"),
            "most rows",
        ],
        [
            [
                *(text, f"{data[name]['n_streams']}", f"{data[name]['gain_nats']:.3f} nats"),
                *(f"{data[name]['spread_nats']:.2f} nats", f"{data[name]['n_soon']}"),
                *(
                    "" if n is None else f"{n:,}"
                    for n in (data[name]["median_rows"], data[name]["slowest_rows"])
                ),
            ]
            for name, text in names.items()
        ],
        f"Each stream has {data['noise_known']['n_rows']:,} rows. How soon a gain is seen depends "
        "on how much the differences of single rows spread.",
    )
    return [pairs, streams]
