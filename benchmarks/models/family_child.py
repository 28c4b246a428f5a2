"""Children of `benchmarks.models.family`: one writes a bundle, one times steps, one is watched.

    export MODEL PRESET N OUT      an untrained model whose buffer, if it has one, holds N points
    time BUNDLE=N ...              every kind of call on each bundle after N points, in turns
    memory BUNDLE N                N points, some arrivals and the widest query

Each prints one line of JSON. Only `export` imports PyTorch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import spread
from edgefold.devices.profile.calls import spread_evenly
from edgefold.runtime import Stream

CHUNK = 32
TARGETS = 50
BLOCK_S = 0.04
"""One block of calls of one kind takes about this long, or one call."""
ROUNDS = 11
MOST_S = 100.0
"""Seconds at most for one kind of call on one bundle; a long call is repeated less often."""


def export(model_name: str, preset: str, n_points: int, out: Path) -> dict[str, Any]:
    """Write a bundle and tell its sizes."""
    import torch

    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.models.registry import accepts, create_model

    torch.manual_seed(0)
    torch.set_num_threads(2)
    settings: dict[str, Any] = {}
    if accepts(model_name, "capacity"):  # at N points a further one must still be learned
        settings = {"capacity": n_points, "when_full": "overwrite"}
    model = create_model(model_name, settings, preset)
    began_s = time.perf_counter()
    config = ExportConfig(chunk=CHUNK, targets=TARGETS, parity_steps=4 * CHUNK)
    report = export_bundle(model, {"name": "gp"}, out, config)
    return {
        "grows": model.capacity > 0,
        "summary": model.summary,
        "n_parameters": sum(p.numel() for p in model.parameters()),
        "export_s": time.perf_counter() - began_s,
        "bundle_bytes": report.n_bytes,
        "state_bytes": _state_bytes(out),
    }


def _state_bytes(bundle: Path) -> int:
    """Bytes of the state's tensors, each once."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    tensors = manifest["state"]
    return sum(
        int(np.prod(t["shape"], dtype=np.int64)) * np.dtype(t["dtype"]).itemsize for t in tensors
    )


def points(stream: Stream, n: int) -> tuple[Any, Any]:
    """x over [-2, 2] and y, a smooth function of it."""
    x = spread_evenly((n, stream.manifest.n_inputs)) * 4 - 2
    y = np.sin(2 * x.sum(1, keepdims=True)) * np.ones(stream.manifest.n_outputs)
    return x, y


class Filled:
    """A stream after N points, and the kinds of calls that are timed on it."""

    def __init__(self, bundle: str, n_points: int):
        self.n_points = n_points
        self.stream = Stream.open(bundle, backend="onnxruntime")
        x, y = points(self.stream, n_points)
        self.stream.condition(x[: 2 * CHUNK], y[: 2 * CHUNK])  # the first calls touch new pages
        self.stream.reset()
        began_s = time.perf_counter()
        self.stream.condition(x, y)
        self.condition_s = time.perf_counter() - began_s
        self._row = x[:1].copy(), y[:1].copy()
        self._many = points(self.stream, TARGETS)[0]
        self.taken_ns: dict[str, list[int]] = {name: [] for name in self.calls()}
        self._spent_s = dict.fromkeys(self.taken_ns, 0.0)

    def calls(self) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
        """By kind: what comes before each call, untimed, and the call."""
        stream = self.stream

        def update() -> None:
            stream.update(*self._row)

        def nothing() -> None:
            pass

        def arrive() -> None:
            stream.query(self._row[0])
            stream.update(*self._row)

        return {
            "update": (nothing, update),
            "refresh": (update, stream.refresh),
            "query_1": (stream.refresh, lambda: stream.query(self._row[0])),
            "query_50": (stream.refresh, lambda: stream.query(self._many)),
            "arrival": (nothing, arrive),
        }

    def time_block(self, kind: str) -> None:
        """Time calls of one kind for about a block, or one call if it takes longer."""
        before, call = self.calls()[kind]
        taken, began_s = self.taken_ns[kind], time.perf_counter()
        if self._spent_s[kind] > MOST_S:
            return
        if not taken or taken[-1] < 1e7:  # caches are cold after another stream's work
            for _ in range(3 if taken else 1):
                before()
                call()
        spent_ns = 0
        while not spent_ns or (
            spent_ns < BLOCK_S * 1e9 and time.perf_counter() - began_s < 20 * BLOCK_S
        ):
            before()
            start_ns = time.perf_counter_ns()
            call()
            taken.append(time.perf_counter_ns() - start_ns)
            spent_ns += taken[-1]
        self._spent_s[kind] += time.perf_counter() - began_s


def timed(bundles: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Time all kinds of calls on all bundles in turns: the machine's drift meets all alike."""
    filled = [Filled(bundle, n) for bundle, n in bundles]
    for turn in range(ROUNDS):
        for kind in filled[0].taken_ns:
            shift = turn % len(filled)
            for one in filled[shift:] + filled[:shift]:
                one.time_block(kind)
    return [
        {
            "n_points": one.n_points,
            "condition_s": one.condition_s,
            **{kind: spread(taken) for kind, taken in one.taken_ns.items()},
        }
        for one in filled
    ]


def used(bundle: str, n_points: int) -> dict[str, Any]:
    """Do what a device does; the parent watches the memory."""
    one = Filled(bundle, n_points)
    for before, call in one.calls().values():
        before()
        call()
    return {"buffer_bytes": one.stream.buffer_bytes}


def main() -> None:
    """Do what the first argument says."""
    what, *words = sys.argv[1:]
    found: Any
    if what == "export":
        found = export(words[0], words[1], int(words[2]), Path(words[3]))
    elif what == "memory":
        found = used(words[0], int(words[1]))
    else:
        pairs = [word.rpartition("=") for word in words]
        found = timed([(bundle, int(n)) for bundle, _, n in pairs])
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
