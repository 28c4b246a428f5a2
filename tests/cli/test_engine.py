"""The command around a stand-in for the builder; where TensorRT-RTX is installed, also the real."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.options.bundle_options import byte_size
from edgefold.devices.memory.process import SystemMemory
from edgefold.runtime.backends import code_cache
from edgefold.runtime.backends.tensorrt import variant as tensorrt_variant
from edgefold.runtime.backends.tensorrt.backend import engine_key
from edgefold.runtime.backends.tensorrt.driver import Device
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, TimingKey
from edgefold.runtime.backends.tensorrt.variant import Variant
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError, MeterError
from tests.cli.engine_rig import BOARD, ORIN, Built, Machine


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    return lines[0]


def test_a_board_builds_each_graph_once_for_its_own_gpu(
    tiny_bundle: Path, built: Built, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine("tensorrt", ORIN)
    options = ["--workspace", "256MiB", "--optimization-level", "0", "--build-timeout", "90"]
    assert main(["engine", str(tiny_bundle), *options]) == 0
    graphs = list(load_manifest(tiny_bundle).graphs)
    assert [name for name, _, _ in built] == graphs
    assert all((u.workspace_bytes, u.optimization_level) == (1 << 28, 0) for _, u, _ in built)
    assert all(used.build_timeout_s == 90 for _, used, _ in built)
    assert [timing for _, _, timing in built] == [b"." * n for n in range(len(graphs))]
    assert EngineCache().load(TimingKey("tensorrt", "10.3.0", ORIN.kind)) == b"." * len(graphs)
    printed = capsys.readouterr()
    assert "TensorRT 10.3.0, compute capability 8.7, Orin" in printed.out
    assert printed.err.count("building") == len(graphs)
    assert main(["engine", str(tiny_bundle)]) == 0
    assert len(built) == len(graphs)
    printed = capsys.readouterr()
    assert printed.out.count(" cache ") == len(graphs) and not printed.err
    assert main(["engine", str(tiny_bundle), "--rebuild"]) == 0
    assert len(built) == 2 * len(graphs)


def test_a_stream_finds_what_was_built_ahead(
    tiny_bundle: Path, tmp_path: Path, built: Built, machine: Machine
) -> None:
    machine("tensorrt", ORIN)
    assert main(["engine", str(tiny_bundle), "--cache", str(tmp_path / "own")]) == 0
    manifest, cache = load_manifest(tiny_bundle), EngineCache(tmp_path / "own")
    for graph in manifest.graphs.values():
        key = engine_key(graph, manifest, "tensorrt", "10.3.0", ORIN)
        assert cache.load(key) == b"plan of " + graph.name.encode()
    assert not (tmp_path / "cache").exists()


def test_rtx_builds_for_others_without_a_gpu(
    tiny_bundle: Path, built: Built, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine("tensorrt_rtx", None)
    asked = ["--compute-capability", "8.6", "--compute-capability", "8.9", "8.6"]
    assert main(["engine", str(tiny_bundle), *asked]) == 0
    n_graphs = len(load_manifest(tiny_bundle).graphs)
    targets = [options.compute_capabilities for _, options, _ in built]
    assert targets == [("8.6",)] * n_graphs + [("8.9",)] * n_graphs
    printed = capsys.readouterr().out
    assert "compute capability 8.6\n" in printed and "compute capability 8.9\n" in printed


def test_rtx_without_a_gpu_asks_for_a_compute_capability(
    tiny_bundle: Path, built: Built, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine("tensorrt_rtx", None)
    assert main(["engine", str(tiny_bundle)]) == ExitCode.MACHINE
    message = error_line(capsys)
    assert "no NVIDIA driver" in message and "--compute-capability" in message
    assert "8.6, 8.9" in message and not built


def test_rtx_with_a_gpu_builds_for_it(tiny_bundle: Path, built: Built, machine: Machine) -> None:
    machine("tensorrt_rtx", Device("RTX A2000", "8.6", 6 << 30))
    assert main(["engine", str(tiny_bundle)]) == 0
    assert {options.compute_capabilities for _, options, _ in built} == {("8.6",)}


def test_tensorrt_builds_for_no_other_gpu_than_the_boards(
    tiny_bundle: Path, built: Built, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine("tensorrt", ORIN)
    assert main(["engine", str(tiny_bundle), "--compute-capability", "8.9"]) == ExitCode.MACHINE
    assert "builds for the GPU it runs on" in error_line(capsys)
    assert main(["engine", str(tiny_bundle), "--compute-capability", "8.7"]) == 0
    machine("tensorrt", None)
    capsys.readouterr()
    assert main(["engine", str(tiny_bundle)]) == ExitCode.MACHINE
    assert "no NVIDIA driver" in error_line(capsys)


def test_the_cache_is_listed_and_cleared_for_one_bundle_without_tensorrt(
    bundles: Path,
    built: Built,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt", ORIN)
    for name in ("tiny", "foreign"):
        assert main(["engine", str(bundles / name)]) == 0

    def missing() -> Variant:
        raise BackendError("not installed")

    monkeypatch.setattr(tensorrt_variant, "find_variant", missing)
    capsys.readouterr()
    n_graphs = len(load_manifest(bundles / "tiny").graphs)
    assert main(["engine", str(bundles / "tiny"), "--list"]) == 0
    printed = capsys.readouterr().out
    assert printed.count(".engine") == n_graphs and printed.count("8.7, Orin") == 1
    assert main(["engine", str(bundles / "tiny"), "--clear"]) == 0
    assert f"{n_graphs} engines of" in capsys.readouterr().out
    assert main(["engine", str(bundles / "tiny"), "--list"]) == 0
    assert "holds no engine of" in capsys.readouterr().out
    assert main(["engine", str(bundles / "foreign"), "--list"]) == 0
    assert capsys.readouterr().out.count(".engine") == n_graphs


def test_a_board_builds_within_a_default_workspace_and_says_so(
    tiny_bundle: Path, built: Built, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine("tensorrt", BOARD)
    assert main(["engine", str(tiny_bundle)]) == 0
    assert {options.workspace_bytes for _, options, _ in built} == {256 << 20}
    assert "workspace: 256 MiB" in capsys.readouterr().err
    assert main(["engine", str(tiny_bundle), "--rebuild", "--workspace", "64MiB"]) == 0
    assert built[-1][1].workspace_bytes == 64 << 20
    assert "workspace:" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "available", "free", "words"),
    [
        (BOARD, 4_000_000_000, 3_000_000_000, ""),
        (BOARD, 4_000_000_000, 900_000_000, "drop_caches"),
        (BOARD, 1_100_000_000, 900_000_000, "close other programs"),
        (BOARD, None, 900_000_000, ""),
        (ORIN, 4_000_000_000, 900_000_000, ""),
        (ORIN, 1_100_000_000, 900_000_000, "close other programs"),
    ],
)
def test_too_little_memory_for_the_builder_is_told_before_the_build(
    tiny_bundle: Path,
    built: Built,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    device: Device,
    available: int | None,
    free: int,
    words: str,
) -> None:
    def read(meter: SystemMemory) -> int:
        if available is None:
            raise MeterError("no such line")
        return available

    machine("tensorrt", device)
    monkeypatch.setattr(SystemMemory, "available_bytes", read)
    monkeypatch.setattr(SystemMemory, "free_bytes", lambda meter: free)
    assert main(["engine", str(tiny_bundle)]) == 0
    told = capsys.readouterr().err
    assert words in told and told.count("warning") == bool(words)
    assert built


def test_a_damaged_engine_is_listed_with_its_reason(
    tiny_bundle: Path,
    tmp_path: Path,
    built: Built,
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt", ORIN)
    assert main(["engine", str(tiny_bundle)]) == 0
    one = min((tmp_path / "cache").glob("*.engine"))
    one.write_bytes(one.read_bytes()[:-1])
    assert main(["engine", str(tiny_bundle), "--list"]) == 0
    assert capsys.readouterr().out.count("not used: it holds") == 1


def test_a_cache_that_cannot_be_written_is_told_before_anything_is_built(
    tiny_bundle: Path,
    tmp_path: Path,
    built: Built,
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt", ORIN)
    (tmp_path / "file").write_text("in the way")
    assert main(["engine", str(tiny_bundle), "--cache", str(tmp_path / "file" / "c")]) == 1
    assert "no engine can be kept" in error_line(capsys)
    assert not built


def test_an_engine_that_cannot_be_kept_is_an_error(
    tiny_bundle: Path,
    tmp_path: Path,
    built: Built,
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt", ORIN)
    assert main(["engine", str(tiny_bundle)]) == 0
    one = min((tmp_path / "cache").glob("*.engine"))
    one.unlink()
    one.mkdir()  # in the engine's place: a file cannot be renamed to it
    capsys.readouterr()
    assert main(["engine", str(tiny_bundle)]) == 1
    assert f"was built but cannot be kept ({one}: Is a directory)" in error_line(capsys)


@pytest.mark.parametrize("action", [[], ["--list"], ["--clear"]])
def test_without_a_home_a_cache_is_asked_for(
    action: list[str],
    tiny_bundle: Path,
    built: Built,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt", ORIN)
    monkeypatch.setattr(code_cache, "default_folder", lambda environment: None)
    assert main(["engine", str(tiny_bundle), *action]) == 1
    assert "or give --cache" in error_line(capsys)
    assert not built


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--compute-capability", "sm_86"], "not a compute capability"),
        (["--compute-capability", "8.6", "bundle"], "'bundle' is not a compute capability"),
        (["--workspace", "lots"], "'lots' is not a size"),
        (["--workspace", "9" * 400], "is not a size"),
        (["--optimization-level", "6"], "invalid choice"),
        (["--list", "--clear"], "not allowed with"),
        (["--list", "--rebuild"], "not allowed with"),
    ],
)
def test_wrong_usage_is_told(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["engine", "bundle", *arguments])
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("256MiB", 1 << 28), ("1.5 GB", 1_500_000_000), ("64kib", 1 << 16), ("96000000", 96_000_000)],
)
def test_sizes_are_read_with_their_units(text: str, n_bytes: int) -> None:
    assert byte_size(text) == n_bytes


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt_rtx is not installed"
)
def test_the_real_builder_fills_the_cache(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["engine", str(tiny_bundle), "--cache", str(tmp_path), "--compute-capability"]
    assert main([*arguments, "8.6"]) == 0
    assert "TensorRT-RTX" in capsys.readouterr().out
    n_graphs = len(load_manifest(tiny_bundle).graphs)
    entries = list(EngineCache(tmp_path).entries())
    assert len(entries) == n_graphs and not any(entry.reason for entry in entries)
    assert main([*arguments, "8.6"]) == 0
    assert capsys.readouterr().out.count(" cache ") == n_graphs
    assert main([*arguments, "8.7"]) == ExitCode.MACHINE
    assert "it knows 8.0, " in error_line(capsys)
