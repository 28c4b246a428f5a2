"""Child of `memory_states`: run every step of a bundle, then measure pages of files.

Usage: python benchmarks/memory/memory_child.py BUNDLE

It prints `steps` when every step was run, and waits for its parent to have read its memory; then
JSON: the pages of files that some hundred steps bring back after a drop, by
`edgefold.devices.memory.reclaim`. Only what a user's program would import is imported before that.
"""

from __future__ import annotations

import sys
import time

from edgefold.runtime import Stream

WAIT_S = 0.05  # the parent reads every 3 ms


def arrivals(stream: Stream, n: int) -> None:
    """Predict and learn, or filter, n rows."""
    manifest = stream.manifest
    row, y = [[0.25] * manifest.n_inputs], [[0.5] * manifest.n_outputs]
    for _ in range(n):
        if manifest.is_filter:
            stream.step(row)
        else:
            stream.query(row)
            stream.update(row, y)


def every_step(stream: Stream) -> None:
    """The wide steps as well, if the bundle has them."""
    manifest = stream.manifest
    if manifest.of_step("condition"):
        row, y = [0.25] * manifest.n_inputs, [0.5] * manifest.n_outputs
        stream.condition([row] * 2 * manifest.chunk, [y] * 2 * manifest.chunk)
    if manifest.n_inputs and not manifest.is_filter:
        stream.query([[0.25] * manifest.n_inputs] * manifest.targets)
    arrivals(stream, 150)  # consolidates as well


def main() -> None:
    """Run, wait, drop, run."""
    with Stream.open(sys.argv[1], backend="onnxruntime") as stream:
        arrivals(stream, 1)
        every_step(stream)
        print("steps", flush=True)
        time.sleep(WAIT_S)
        import json
        from dataclasses import asdict

        from edgefold.devices.memory.reclaim import working_files

        print(json.dumps(asdict(working_files(lambda: arrivals(stream, 150)))))


if __name__ == "__main__":
    main()
