"""A server with rows, the aggregates of two bundles, and the same rows as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefold.runtime import Stream
from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.stream.snapshot import read_snapshot
from tests.postgres_server import PostgresServer

N_ROWS, N_MANY = 4000, 60_000


@dataclass(frozen=True)
class Learned:
    """A server with rows and the extensions `cmanp` and `scaled`, and the same rows as arrays."""

    server: PostgresServer
    bundles: dict[str, Path]
    engines: dict[str, EngineOptions]
    x: Array
    y: Array

    def stream(self, name: str = "cmanp") -> Stream:
        """A new stream of the bundle from which an extension was made, in the same compiled C."""
        return Stream.open(self.bundles[name], "native", engine=self.engines[name])

    def state_of(self, snapshot: bytes, folder: Path, name: str = "cmanp") -> dict[str, Array]:
        """The tensors of a snapshot from SQL, and its count of points."""
        path = folder / "from_sql.npz"
        path.write_bytes(snapshot)
        record, state, extra = read_snapshot(path, load_manifest(self.bundles[name]))
        assert not extra
        return {**state, "n_points": np.array(record.n_points)}


def equal(one: dict[str, Array], other: dict[str, Array]) -> bool:
    """Whether all tensors have the same bytes."""
    return one.keys() == other.keys() and all(
        one[name].tobytes() == other[name].tobytes() for name in one
    )
