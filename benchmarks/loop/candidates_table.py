"""The table of `benchmarks.loop.candidates`: promotions of pairs, and of one that is better."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table


def candidates(data: Record) -> list[Table]:
    """Promotions over many pairs, and how soon one that is better is promoted."""
    close, until = data["close"], data["rows_until_promoted"]
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
    rows = [until["median"], until["slowest"]]
    streams = Table(
        ["streams", "better by", "spread of a row", "promoted", "median rows", "most rows"],
        [
            [
                *(f"{data['n_streams']}", f"{close['gain_nats']:.3f} nats"),
                *(f"{close['spread_nats']:.2f} nats", f"{data['n_soon']}"),
                *("" if n is None else f"{n:,}" for n in rows),
            ]
        ],
    )
    return [pairs, streams]
