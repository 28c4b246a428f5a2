"""The table of `benchmarks.usage.silero`."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table, megabytes, ranged


def silero(data: Record) -> list[Table]:
    """Time, memory and difference of each form."""
    probabilities = data["probabilities"]
    rows = []
    for name, times in data["times"].items():
        memory, own = data["memory"].get(name), probabilities["forms"].get(name)
        row = [name, ranged(times), f"{times['ratio']:.2f}"]
        row += [megabytes(memory[f"{m}_bytes"]) if memory else "" for m in ("anonymous", "peak")]
        rows.append([*row, f"{own['largest_difference']:.1e}" if own else ""])
    others = sum(own["decisions_that_differ"] for own in probabilities["forms"].values())
    note = (
        "Medians of blocks, p10 to p90 in brackets; ratios within a round. Difference: the largest "
        f"of the probability of speech in {probabilities['n_steps']:,} steps "
        f"({probabilities['seconds'] / 60:g} minutes, {probabilities['share_of_speech']:.0%} of "
        f"them speech), in which {others} decisions at {data['threshold']} differ."
    )
    header = [f"Silero VAD {data['silero_vad']}", "a step", "ratio", "anonymous memory", "peak"]
    return [Table([*header, "difference"], rows, note)]
