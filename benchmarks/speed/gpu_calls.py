"""Which calls of TensorRT and CUDA does a bundle make, at open and at each step? Needs no GPU.

The TensorRT backend runs over the host's stand-in for a GPU (`tests.runtime.backends.host_driver`),
which counts. Times are none: only a GPU has them (`gpu_latency`). The scratch memory of
engines is TensorRT's to tell, so it is left out.

    python -m benchmarks gpu_calls BUNDLE
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.table import Table
from edgefold.devices.profile.calls import ProfilePoints
from edgefold.runtime import EngineOptions, Stream
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.bundle.manifest_file import load_manifest
from tests.runtime.backends.host_driver import HostDriver

KINDS = ("discrete", "integrated")


class CountingDriver(HostDriver):
    """Counts bytes beside calls, and the work of a launched CUDA graph."""

    def __init__(self, is_integrated: bool) -> None:
        super().__init__()
        self.is_integrated = is_integrated
        self.n_bytes: Counter[str] = Counter()
        self.n_nodes = 0

    def allocate(self, n_bytes: int) -> int:
        """Count device memory."""
        self.n_bytes["device"] += n_bytes
        return super().allocate(n_bytes)

    def allocate_pinned(self, n_bytes: int) -> Any:
        """Count pinned memory."""
        self.n_bytes["pinned"] += n_bytes
        return super().allocate_pinned(n_bytes)

    def launch(self, graph: Any, stream: Any) -> None:
        """Count what the graph holds: engines and copies."""
        self.n_nodes = len(graph.work)
        super().launch(graph, stream)


def count(bundle: Path, kind: str, cuda_graphs: bool) -> dict[str, int]:
    """Open a bundle, learn some points, predict; returns what was asked for, by name."""
    manifest = load_manifest(bundle)
    seam = CountingDriver(kind == "integrated")
    with tempfile.TemporaryDirectory(prefix="edgefold-") as cache:
        options = EngineOptions(Path(cache), cuda_graphs=cuda_graphs)
        TensorRtBackend(manifest, seam, options).close()  # builds
        seam.calls.clear()
        seam.n_bytes.clear()
        backend = TensorRtBackend(manifest, seam, options)
    scratch = seam.n_bytes["device"]
    with Stream(manifest, backend, backend.report(), False) as stream:
        calls = Counter(seam.calls)
        found = {
            "open: contexts": calls["context"],
            "open: CUDA graphs": calls["end_capture"],
            "open: blocks of device memory, scratch left out": calls["allocate"] - 1,
            "open: bytes of device memory, scratch left out": seam.n_bytes["device"] - scratch,
            "open: blocks of pinned memory": calls["allocate_pinned"],
            "open: bytes of pinned memory": seam.n_bytes["pinned"],
            "open: addresses set": calls["set_address"],
            "open: runs and launches": calls["enqueue"] - calls["end_capture"] + calls["launch"],
            "open: calls of the driver": len(seam.calls),
        }
        given = ProfilePoints(manifest)
        steps: dict[str, Callable[[], Any]] = {
            "update": lambda: stream.update(given.x, given.y),
            "refresh": stream.refresh,
            "query": lambda: stream.query(given.x),
        }
        for run in (*steps.values(), *steps.values()):  # until no side is new
            run()
        for name, run in steps.items():
            start = len(seam.calls)
            run()
            found[f"{name}: calls of the driver"] = len(seam.calls) - start
            found[f"{name}: copies"] = sum(
                call in ("to_device", "to_host") for call in seam.calls[start:]
            )
            if cuda_graphs:
                found[f"{name}: copies"] = seam.n_nodes - 1
    return found


def table(bundle: Path) -> Table:
    """A column for each kind of GPU, with and without CUDA graphs."""
    columns = {
        f"{kind}, {'CUDA graphs' if graphs else 'kernel by kernel'}": count(bundle, kind, graphs)
        for kind in KINDS
        for graphs in (True, False)
    }
    counted = list(columns.values())
    rows = [[name, *(f"{each[name]:,}" for each in counted)] for name in counted[0]]
    return Table([bundle.name, *columns], rows, "Counted over the host's stand-in for a GPU.")


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gpu_calls",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="as `edgefold export` wrote it")
    print(table(parser.parse_args().bundle).markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
