"""Let a bundle resume the snapshots of an earlier one that holds the same state.

A snapshot carries the hash of its bundle. A bundle that is exported again, with other graphs of the
same model, has another hash, though its state means the same. So its manifest may list the hashes
of earlier bundles under "resumes". Of a tensor that was longer in the earlier state the beginning
goes on, and one that was not there begins anew. Each bundle is listed only after this check:

    both manifests: the same model, counts, scalings and kind of prediction; tensors that fit
    earlier bundle: learn half of its golden stream ──> snapshot ──> learn the other half
    new bundle:                                     restore it   ──> learn the other half
    both predict the same at every point of the other half, wherever shapes are equal
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import FILE_NAME, Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest, with_checksum
from edgefold.runtime.checking.golden import Golden, distances, query_all, rows_of
from edgefold.runtime.errors import ExportError
from edgefold.runtime.stream.stream import Stream

BACKEND = "onnxruntime"
MOST_COMPARED = 500
"""The most points that both bundles learn after the snapshot."""


def add_resumed(bundle: Path, earlier: Sequence[Path]) -> None:
    """Add earlier bundles, and those that they resume, to the list in a bundle's manifest.

    Args:
        bundle: The new bundle's folder; its manifest is written again if `earlier` is not empty.
        earlier: Folders of the earlier bundles.

    Raises:
        BundleError: A folder is not a bundle.
        ExportError: A state is another one, or other predictions follow from it; the new bundle
            must not be used then.
    """
    if not earlier:
        return
    new, olds = load_manifest(bundle), [load_manifest(folder) for folder in earlier]
    for old in olds:
        _require_same_state(old, new)
    hashes = [*new.resumes, *(h for old in olds for h in (old.bundle_hash, *old.resumes))]
    form = json.loads((bundle / FILE_NAME).read_text())
    form["resumes"] = list(dict.fromkeys(hashes))
    (bundle / FILE_NAME).write_text(json.dumps(with_checksum(form), indent=1) + "\n")
    for old in olds:
        _require_same_predictions(old, bundle)


def _require_same_state(old: Manifest, new: Manifest) -> None:
    """Raise ExportError if two manifests differ in what gives the numbers of a state a meaning."""
    shapes = {t.name: t.shape for t in old.state}
    both = shapes.keys() & {t.name for t in new.state}
    facts: dict[str, Callable[[Manifest], Any]] = {
        "model": lambda m: (m.model.get("name"), m.model.get("settings")),
        "streams": lambda m: m.n_streams,
        "scaling of points": lambda m: (m.scaling_x, m.scaling_y),
        "prediction": lambda m: type(m.prediction),
        "consolidate_every": lambda m: m.consolidate_every,
        "capacity": lambda m: (m.capacity, m.when_full),
        "state": lambda m: {
            t.name: (len(t.shape), t.dtype, t.ring, t.slot) for t in m.state if t.name in both
        },
    }
    for name, fact in facts.items():
        if (here := fact(new)) != (there := fact(old)):
            raise ExportError(
                f"--resumes {old.path}: its {name} differs from the new bundle's ({there!s:.300} "
                f"there, {here!s:.300} here), so that its snapshots would mean something else. "
                "Export with the sizes and settings of that bundle, or without --resumes."
            )
    for tensor in new.state:
        if any(n < m for n, m in zip(shapes.get(tensor.name, ()), tensor.shape, strict=False)):
            raise ExportError(
                f"--resumes {old.path}: its state's {tensor.name} is of shape "
                f"{shapes[tensor.name]}, and the new bundle's is longer, {tensor.shape}, so that "
                "its end would be unknown. Export without --resumes."
            )


def _require_same_predictions(old: Manifest, bundle: Path) -> None:
    """Raise ExportError if predictions differ along a stream that the new bundle resumes.

    Each bundle's predictions may differ from the model's by its own tolerance, so the two may
    differ by the sum of both.
    """
    golden = Golden.load(old)
    half = golden.x.shape[1] // 2
    with Stream.open(old.path, BACKEND) as before, Stream.open(bundle, BACKEND) as after:
        allowed = golden.tolerance + Golden.load(after.manifest).tolerance
        for _ in _learn(before, golden, 0, half):
            pass
        with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
            before.save(Path(folder) / "snapshot.npz")
            after.restore(Path(folder) / "snapshot.npz")
        stop = min(golden.x.shape[1], half + MOST_COMPARED)
        pairs = zip(
            _learn(before, golden, half, stop), _learn(after, golden, half, stop), strict=True
        )
        for number, (expected, found) in enumerate(pairs, 1):
            alike = {n: found[n] if found[n].shape == a.shape else a for n, a in expected.items()}
            worst = max(distances(old, alike, expected).values())
            if not worst <= allowed:
                raise ExportError(
                    f"--resumes {old.path}: {number} points after a snapshot of that bundle, the "
                    f"new bundle's predictions differ by {worst:.2g}, at most {allowed:.2g} is "
                    "allowed. It has other weights or another rule: export without --resumes."
                )


def _learn(stream: Stream, golden: Golden, start: int, stop: int) -> Iterator[dict[str, Array]]:
    """Learn golden points one by one, and yield the predictions at each, by name of the tensor."""
    one = stream.manifest.n_streams == 1
    for place in range(start, stop):
        x = rows_of(golden.x, place, place + 1, one)
        if stream.manifest.is_filter:
            tensors = stream.step(x).tensors.items()
            yield {name: (array[None] if one else array).copy() for name, array in tensors}
        else:
            stream.update(x, rows_of(golden.y, place, place + 1, one))
            yield query_all(stream, golden.targets)
