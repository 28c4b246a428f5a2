"""Snapshots that C writes are those of the runtime, and the other way; hostile ones are refused."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.export.native.generator import generate
from edgefold.export.native.interface.snapshot_size import snapshot_bytes
from edgefold.runtime import Piece, Provenance, Stream, load_manifest
from edgefold.runtime.arrays import Array
from edgefold.runtime.stream.snapshot import (
    MOST_POINTS,
    SnapshotRecord,
    read_snapshot,
    write_snapshot,
)
from tests.export.native.c_streams import (
    FLAGS,
    KINDS,
    NAME,
    CStream,
    compiled,
    compiler,
    stubbed_files,
)
from tests.export.native.test_interface import BundleOf, StreamOf, drawn, require_same_state
from tests.pairwise import leave_out

EXTRA: dict[str, Array] = {
    "loop": np.frombuffer(b'{"rows": 3}', np.uint8),
    "series.ring": np.arange(6.0).reshape(2, 3),
    "series.count": np.array(7),
    "days": np.arange(4, dtype=np.int16),
    "empty": np.zeros(0),
}
"""Arrays of a caller's own, not in the order of their names."""
EXPORTED_FOR_THIS = "cmanp-and", "continual-nystrom"
"""Kinds whose export no other test of every day needs."""


def advance(c: CStream, n: int = 5) -> None:
    """Give a stream some points."""
    rng = np.random.default_rng(n)
    for _ in range(n):
        x, y = drawn(c.manifest, rng, 1)
        assert (c.step(x) if c.manifest.is_filter else c.update(x, y)) == "OK"


@pytest.fixture(params=leave_out([*KINDS], EXPORTED_FOR_THIS))
def stream(request: pytest.FixtureRequest, stream_of: StreamOf) -> CStream:
    c = stream_of(request.param)
    advance(c)
    return c


def saved(c: CStream, extra: Any = None) -> bytes:
    status, snapshot = c.save(extra)
    assert status == "OK"
    return snapshot


def rewritten(
    c: CStream, path: Path, tensors: dict[str, Array] | None = None, **facts: Any
) -> bytes:
    """A snapshot of a stream's state with a right digest, but other tensors or facts."""
    at = c.commit
    form = {"bundle_hash": c.manifest.bundle_hash, "n_points": at.n_points}
    record = SnapshotRecord(**{**form, "n_recent": at.n_recent, **facts})
    state = c.state() | (tensors or {})
    write_snapshot(path, record, state, {}, not_finite=state)
    return path.read_bytes()


@pytest.mark.one_case
def test_the_runtime_takes_what_c_saved(stream: CStream, tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    path.write_bytes(saved(stream, EXTRA))
    with Stream.open(stream.manifest.path, "onnxruntime") as other:
        found = other.restore(path)
        require_same_state(stream, other)
    assert found.keys() == EXTRA.keys()
    for name, array in EXTRA.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.one_case
def test_c_takes_what_the_runtime_saved(stream: CStream, tmp_path: Path) -> None:
    path = tmp_path / "python.npz"
    rng = np.random.default_rng(8)
    with Stream.open(stream.manifest.path, "onnxruntime") as other:
        for _ in range(7):
            x, y = drawn(stream.manifest, rng, 1)
            rows = [r if r is None or other.manifest.n_streams > 1 else r[0] for r in (x, y)]
            if other.manifest.is_filter:
                other.step(rows[0])
            else:
                other.update(*rows)
        other.save(path, extra=EXTRA)
        wanted: dict[str, Array] = {name: np.zeros_like(a) for name, a in EXTRA.items()}
        wanted["loop"] = np.zeros(100, np.uint8)
        del wanted["days"]  # nobody asks for it
        wanted["absent"] = np.zeros(3)
        assert stream.load(path.read_bytes(), wanted) == "OK"
        require_same_state(stream, other)
    n_bytes = {array.name.decode(): array.n_bytes for array in stream.found}
    assert n_bytes["absent"] == 0 and n_bytes["loop"] == EXTRA["loop"].nbytes
    assert wanted["loop"].tobytes().startswith(EXTRA["loop"].tobytes() + b"\0")
    for name in ("series.ring", "series.count"):
        np.testing.assert_array_equal(wanted[name], EXTRA[name])


@pytest.mark.one_case
def test_c_skips_the_rows_that_a_snapshot_states_and_saves_none(
    stream: CStream, tmp_path: Path
) -> None:
    """Points of a state that C has saved are of unknown rows: they may be others' too."""
    path = tmp_path / "python.npz"
    with Stream.open(stream.manifest.path, "onnxruntime", source="roof") as other:
        path.write_bytes(saved(stream))
        other.restore(path)
        n_points = other.n_points
        row = np.zeros((other.manifest.n_streams, 1, other.manifest.n_inputs))
        y = np.zeros((other.manifest.n_streams, 1, other.manifest.n_outputs))
        if other.manifest.n_streams == 1:
            row, y = row[0], y[0]
        if other.manifest.is_filter:
            other.step(row)
        else:
            other.update(row, y)
        other.save(path)
        assert other.provenance.pieces == (Piece("roof", 0, 1, 1),)
        assert stream.load(path.read_bytes()) == "OK"
        require_same_state(stream, other)
        path.write_bytes(saved(stream))
        other.restore(path)
        assert other.n_points == n_points + 1 and other.provenance == Provenance()


@pytest.mark.one_case
def test_both_write_the_same_record_and_digest(stream: CStream, tmp_path: Path) -> None:
    path = tmp_path / "python.npz"
    at = stream.commit
    record = SnapshotRecord(stream.manifest.bundle_hash, at.n_points, at.n_recent)
    write_snapshot(path, record, stream.state(), EXTRA, not_finite=stream.state())
    with np.load(path) as ours, np.load(io.BytesIO(saved(stream, EXTRA))) as theirs:
        assert theirs["record"].tobytes() == ours["record"].tobytes()
        assert set(theirs.files) == set(ours.files)
    with zipfile.ZipFile(io.BytesIO(saved(stream, EXTRA))) as archive:
        assert archive.testzip() is None


def test_extra_arrays_of_another_form_are_refused(stream_of: StreamOf) -> None:
    c = stream_of("tiny")
    snapshot = saved(c, EXTRA)
    wrong: list[dict[str, Array]] = [
        {"loop": np.zeros(100, np.int8)},
        {"loop": np.zeros(10, np.uint8)},  # no room
        {"series.ring": np.zeros((3, 2))},
        {"series.ring": np.zeros(6)},
        {"series.count": np.zeros(1, np.int64)},
    ]
    assert [c.load(snapshot, wanted) for wanted in wrong] == ["BAD_SNAPSHOT"] * len(wrong)
    assert c.load(snapshot, {"loop": np.zeros(11, np.uint8)}) == "OK"


def test_what_is_no_snapshot_of_the_bundle_is_told_apart(
    stream_of: StreamOf, tmp_path: Path
) -> None:
    c, other = stream_of("streams"), stream_of("anp")
    advance(c)
    before = c.state()
    path = tmp_path / "s.npz"
    infinite = {next(iter(before)): np.full_like(next(iter(before.values())), np.inf)}
    renamed = io.BytesIO()
    np.savez(renamed, allow_pickle=False, **{"record": np.zeros(230, np.uint8)})
    packed = io.BytesIO()
    with np.load(io.BytesIO(saved(c))) as arrays:
        np.savez_compressed(packed, allow_pickle=False, **dict(arrays))
    cases = {
        b"": "NO_SNAPSHOT",
        b"\xff" * 4096: "NO_SNAPSHOT",  # flash that was never written
        saved(other): "FOREIGN_SNAPSHOT",
        rewritten(c, path, infinite): "BAD_SNAPSHOT",
        rewritten(c, path, n_recent=6): "BAD_SNAPSHOT",
        rewritten(c, path, n_points=1 << 62): "BAD_SNAPSHOT",
        rewritten(c, path, n_points=-1, n_recent=-1): "BAD_SNAPSHOT",
        rewritten(c, path, schema=2): "BAD_SNAPSHOT",
        rewritten(c, path, {"more": np.zeros(1)}): "BAD_SNAPSHOT",
        renamed.getvalue(): "BAD_SNAPSHOT",
        packed.getvalue(): "BAD_SNAPSHOT",
        rewritten(c, path): "OK",
    }
    assert [c.load(snapshot) for snapshot in cases] == list(cases.values())
    for name, array in c.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_c_resumes_the_snapshots_of_the_bundles_that_the_manifest_lists(
    bundle_of: BundleOf, tmp_path: Path
) -> None:
    earlier, other = ("a" * 64, "b" * 64), "c" * 64
    bundle = bundle_of("tiny")
    manifest = replace(load_manifest(bundle), resumes=earlier)
    c = CStream(bundle, compiled(stubbed_files(manifest), tmp_path / "c"))
    path = tmp_path / "s.npz"
    first = next(name for name, array in c.state().items() if array.dtype.kind == "f")
    seven = {first: np.full_like(c.state()[first], 7)}
    found = [c.load(rewritten(c, path, seven, bundle_hash=h)) for h in (*earlier, other)]
    assert found == ["OK", "OK", "FOREIGN_SNAPSHOT"]
    np.testing.assert_array_equal(c.state()[first], seven[first])
    path.write_bytes(saved(c))
    assert read_snapshot(path, c.manifest)[0].bundle_hash == c.manifest.bundle_hash


def test_a_snapshot_of_more_points_than_fit_is_refused(stream_of: StreamOf, tmp_path: Path) -> None:
    c = stream_of("anp")
    advance(c)
    assert c.manifest.room == 12
    found = [c.load(rewritten(c, tmp_path / "s.npz", n_points=n)) for n in (12, 13)]
    assert found == ["OK", "BAD_SNAPSHOT"]


def test_a_state_that_is_not_finite_is_not_saved(stream_of: StreamOf) -> None:
    c = stream_of("streams")
    assert c.load(saved(c)) == "OK"
    member = c.struct.state["base_sums"].name
    np.frombuffer(getattr(c.memory, member), np.float32)[-1] = np.nan
    np.frombuffer(getattr(c.memory, member), np.float32)[0] = np.nan
    assert c.save() == ("NOT_FINITE", b"")


def test_the_header_tells_how_long_a_snapshot_becomes(stream: CStream) -> None:
    told = snapshot_bytes(stream.manifest)
    header = stubbed_files(stream.manifest)[f"edgefold_{NAME}.h"]
    assert f"#define EDGEFOLD_{NAME.upper()}_SNAPSHOT_BYTES {told} " in header
    assert told - 2 * 19 <= len(saved(stream)) <= told  # of two counts the digits vary
    most = MOST_POINTS - 1 if stream.manifest.room is None else stream.manifest.room
    stream.commit.n_points = stream.commit.n_recent = most
    assert len(saved(stream)) == told


def test_a_callback_that_writes_less_is_told(stream_of: StreamOf) -> None:
    c = stream_of("anp")
    n = len(saved(c, EXTRA))
    for most in (0, 29, 100, n // 2, n - 23, n - 1):
        status, written = c.save(EXTRA, most)
        assert status == "IO" and len(written) <= most
    assert c.save(EXTRA, n)[0] == "OK"


def test_the_record_is_the_json_that_python_writes(stream_of: StreamOf) -> None:
    c = stream_of("tiny")
    with np.load(io.BytesIO(saved(c))) as arrays:
        text = arrays["record"].tobytes().decode()
    assert json.dumps(json.loads(text), sort_keys=True) == text


def sanitized(driver: str, folder: Path, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Run a driver of this folder with the model of another one; any wrong access ends it."""
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1"]
    sources = [*map(str, folder.glob("*.c")), str(Path(__file__).with_name(driver))]
    options = [*FLAGS, *sanitizers, "-I", str(folder), *sources, "-lm"]
    subprocess.run([compiler(), *options, "-o", str(folder / "driver")], check=True)
    command = [str(folder / "driver"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    "kind", ["shelves", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("anp", "cmhp"))]
)
def test_no_damaged_snapshot_changes_the_state(
    stream_of: StreamOf, bundle_of: BundleOf, kind: str, tmp_path: Path
) -> None:
    """Each byte three ways, each length, and four bytes at once, under the sanitizers."""
    c = stream_of(kind)
    (tmp_path / "present.npz").write_bytes(saved(c, {"loop": np.zeros(2, np.uint8)}))
    advance(c)
    (tmp_path / "intact.npz").write_bytes(saved(c, {"loop": np.arange(9, dtype=np.uint8)}))
    for name, text in stubbed_files(load_manifest(bundle_of(kind)), "(void)0;").items():
        (tmp_path / name).write_text(text)
    files = (tmp_path / "intact.npz", tmp_path / "present.npz")
    done = sanitized("damage.c", tmp_path, *files)
    assert done.returncode == 0, done.stderr[-2000:]
    n_taken, n_refused = map(int, done.stdout.split())
    # What means nothing to C: dates and versions, and the directory behind the members.
    assert n_refused > 2 * n_taken > 0


ODD = (0, 1, -1, 9, 10, 11, 12, 2**31, -(2**31), 2**63 - 1, -(2**63))
"""Whole numbers that index something, or just not."""


@pytest.mark.parametrize(
    "kind", ["shelves", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("anp", "cmhp"))]
)
def test_no_state_of_finite_numbers_makes_the_generated_c_leave_its_arrays(
    bundle_of: BundleOf, kind: str, tmp_path: Path
) -> None:
    manifest, rng = load_manifest(bundle_of(kind)), np.random.default_rng(6)
    for name, text in generate(manifest.path, "model").files.items():
        (tmp_path / name).write_text(text)
    paths = []
    for i in range(60):
        state = {
            t.name: np.ldexp(rng.normal(size=t.shape), rng.integers(-9, 120)).astype(t.dtype)
            if t.dtype == "float32"
            else rng.choice(ODD, t.shape).astype(t.dtype)
            for t in manifest.state
        }
        n_points = int(rng.choice([0, 3, 11, 2**62 - 1 if manifest.room is None else 12]))
        record = SnapshotRecord(manifest.bundle_hash, n_points, n_points // 2)
        paths.append(tmp_path / f"{i}.npz")
        write_snapshot(paths[-1], record, state, {})
    done = sanitized("hostile.c", tmp_path, *paths)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == len(paths)
