"""Predict the length of the file that a loop replaces with each snapshot, from a bundle's manifest.

    snapshot = the state's tensors + the sensors' histories + a record as JSON

Tensors and histories have the same length in every snapshot of a bundle, so this part is exact. The
record holds counts, places and names, whose length is estimated from those of a loop that has run
for some time. No stream is opened.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.loop.adapters import adapter_for
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.output_columns import OutputColumns
from edgefold.runtime.loop.record import RECORD, LoopRecord
from edgefold.runtime.loop.sensor_rows import SensorColumns
from edgefold.runtime.npz import npz_bytes
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.rows.csv_columns import Layout
from edgefold.runtime.stream.provenance import PROVENANCE, Piece, Provenance, as_array
from edgefold.runtime.stream.snapshot import STREAMS, SnapshotRecord
from edgefold.runtime.stream.state_slots import PIECES

N_ROWS = 10_000_000
"""Number of rows behind a loop of which the counts in a record have the length: months at 1 Hz."""
NAME_BYTES = 24
"""Assumed length of a sensor's name, such as a topic with a key."""
START_BYTES = 1000
"""A record keeps so many of an input file's first bytes."""
NUMBER_BYTES = 10.4
"""Mean length of a number of nine digits in the output: a point, at times a sign or zeros."""

Columns = OutputColumns | SensorColumns


def columns_of(manifest: Manifest, adapter: RowAdapter) -> Columns:
    """Return the columns in which a loop's output shows predictions of this bundle."""
    if isinstance(manifest.prediction, SensorForecast):
        return SensorColumns(manifest.prediction)
    return OutputColumns(manifest, adapter, 4.0)


def snapshot_bytes(
    manifest: Manifest,
    n_named: int = 0,
    source: str = "file",
    loop_bytes: int | None = None,
    n_points: int = N_ROWS,
) -> int:
    """Return the length of a snapshot of `edgefold run`, in bytes.

    Args:
        manifest: The bundle's manifest.
        n_named: Number of sensors that have come; 0 for one sensor that the rows do not name.
        source: Kind of input, "file" for a file; others keep less in the record.
        loop_bytes: Length of the loop's record; None estimates it.
        n_points: Number of points in the state, whose digits the file holds.

    With a length of the record, that of a loop is returned which states no source of its rows.

    Raises:
        DataError: `edgefold run` does not run this bundle.
    """
    adapter = adapter_for(manifest)
    pieces: dict[str, tuple[tuple[int, ...], str]] = {}
    if loop_bytes is None:
        loop_bytes = _record_bytes(manifest, adapter, n_named, source)
        if manifest.of_step("merge"):
            pieces = _piece_arrays(n_named)
    record = json.dumps(
        {**asdict(SnapshotRecord(manifest.bundle_hash, n_points, n_points)), "sha256": "0" * 64}
    )
    arrays: dict[str, tuple[tuple[int, ...], str]] = {"record": ((len(record),), "uint8")}
    arrays |= {f"state.{tensor.name}": (tensor.shape, tensor.dtype) for tensor in manifest.state}
    own = {name: (array.shape, array.dtype.name) for name, array in adapter.arrays().items()}
    if n_named:
        own |= {f"state.{tensor.name}": (tensor.shape, tensor.dtype) for tensor in manifest.state}
        own |= {name: ((), "int64") for name in ("n_points", "n_recent")}
        own = {f"{STREAMS}{name}": ((n_named, *shape), kind) for name, (shape, kind) in own.items()}
    own |= {**pieces, RECORD: ((loop_bytes,), "uint8")}
    return npz_bytes(arrays | {f"extra.{name}": array for name, array in own.items()})


def _piece_arrays(n_named: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the arrays that state which rows were learned, of a loop with one source of rows."""
    where = (("column", "0" * NAME_BYTES),) if n_named else ()
    one = Provenance([Piece("0" * NAME_BYTES, 0, N_ROWS, N_ROWS, where)]).to_form()
    names = {PROVENANCE: 1, **({f"{STREAMS}{PIECES}": n_named} if n_named else {})}
    return {name: ((as_array([one] * n).size,), "uint8") for name, n in names.items()}


def _record_bytes(manifest: Manifest, adapter: RowAdapter, n_named: int, source: str) -> int:
    """Estimate the length of a loop's record as JSON text."""
    columns, read = columns_of(manifest, adapter), adapter.columns.defaults
    settings = {
        "input": list(read),
        "columns": f"line,{','.join([*adapter.header, *columns.names])}\n",
        "anomaly_z": 4.0,
        **adapter.settings,
    }
    mark = {"position": N_ROWS, "lines": 0, "journal": "0" * 16}
    if source == "file":
        hashes = {"head": "0" * 64, "seam": "0" * 64}
        mark = {"position": 100 * N_ROWS, "start": "0" * START_BYTES, **hashes, "at_end": False}
    output = {"name": "0" * NAME_BYTES, "part": 1, "day": None, "ahead": None}
    counters = Counters(
        N_ROWS, N_ROWS, N_ROWS, anomalies=1000, within_90=N_ROWS,
        squared_error=[1234567.1234567891] * columns.n_errors,
    )  # fmt: skip
    layout = Layout(tuple(read), tuple(range(len(read))), len(read), ",", tuple(read))
    is_found = isinstance(manifest.prediction, SensorForecast) and source in ("file", "pipe")
    record = LoopRecord(
        settings,
        mark,
        layout,
        {**output, "length": 100 * N_ROWS, "seam": "0" * 64},
        counters,
        tuple(f"{number:0{NAME_BYTES}}" for number in range(n_named)),
        (counters,) * n_named,
        {"choice": "0" * 140, "format": asdict(layout), "layout": asdict(layout)}
        if is_found
        else None,
        row=N_ROWS if manifest.of_step("merge") else None,
    )
    return len(record.to_array())


def output_row_bytes(manifest: Manifest, n_named: int = 0, text_bytes: int = 0) -> float:
    """Return the mean length of a line of the output, as far as it does not depend on the input.

    Args:
        manifest: The bundle's manifest.
        n_named: Number of sensors that the rows name; 0 for one that they do not name.
        text_bytes: Length of a row's own fields in the input, which the output repeats.
    """
    adapter = adapter_for(manifest)
    columns = columns_of(manifest, adapter)
    n_flags = sum(name in ("anomaly", "alarm") for name in columns.names)
    n_empty = sum(name == "event" for name in columns.names)
    words = [word for each in adapter.words.values() for word in each]
    n_words = sum(name in adapter.words for name in columns.names)
    n_numbers = len(columns.names) - n_flags - n_empty - n_words
    fields = text_bytes + n_numbers * NUMBER_BYTES + n_flags
    fields += n_words * sum(map(len, words)) / max(len(words), 1)
    fields += len(str(N_ROWS)) + 1 if adapter.has_line else 0
    return fields + len(columns.names) + 1 + (NAME_BYTES + 1 if n_named else 0)
