"""How much does opening a stream cost, and does closing give everything back?

The paper's size, untrained, float32, one thread, in one process without PyTorch:

    open, update, query, close ── 20 times ──┬── 100 times ──┬── ... ──┬─> time
                                             └─ memory       └─ memory └─ memory

What the process needs is read after a query, while the stream is open: whether the hundredth stream
makes the process larger than the first did. The heap finds its shape over the first hundreds; a
stream that stayed behind would be megabytes.
"""

from __future__ import annotations

import time

from benchmarks.record import arguments, at_most, conditions, finish, progress, spread
from benchmarks.subjects import points, untrained
from benchmarks.tables import as_text
from edgefold.devices.memory.process import ProcessMemory
from edgefold.runtime import Stream

QUESTION = "Does closing a stream give everything back?"
WARM_UP = 20


def main() -> None:
    """Measure, print, record."""
    parser = arguments(__doc__ or "", "reopen")
    args = parser.parse_args()
    before = conditions()
    marks = [100] if args.quick else [100, 300, 1000, 2000]
    with untrained("paper") as subject:
        bundle = subject.bundle
        x, y = points(1)
        memory = ProcessMemory()
        opened_ns: list[int] = []

        def cycle() -> int:
            """Return the bytes that the process needed while the stream was open."""
            start = time.perf_counter_ns()
            stream = Stream.open(bundle)
            opened_ns.append(time.perf_counter_ns() - start)
            with stream:
                stream.update(x, y)
                stream.query(x)
                return memory.read().needed_bytes

        for _ in range(WARM_UP):
            cycle()
        start_bytes, done, rows = cycle(), 0, []
        opened_ns.clear()
        with Stream.open(bundle) as stream:
            one_bytes = stream.buffer_bytes + stream.manifest.memory_plan["weights_bytes"]
        for mark in marks:
            while done < mark:
                now_bytes = cycle()
                done += 1
            rows.append({"n_cycles": mark, "growth_bytes": now_bytes - start_bytes})
            progress(f"{mark:,} cycles: {rows[-1]['growth_bytes'] / 1024:,.0f} KiB more", True)
    share = rows[0]["growth_bytes"] / 100 / one_bytes
    finish(
        args,
        "reopen",
        QUESTION,
        before,
        {"stream_bytes": one_bytes, "rows": rows, "open": spread(opened_ns)},
        [at_most("left by each of 100 cycles, of a stream's size", 100 * share, 1.0, "%")],
        as_text,
    )


if __name__ == "__main__":
    main()
