"""`edgefold engine --list` and `--inspect`, which need neither TensorRT nor a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.cli.main import main
from edgefold.devices.machine import build_conditions
from edgefold.runtime.backends.tensorrt import variant as tensorrt_variant
from edgefold.runtime.backends.tensorrt.driver import Device
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache
from edgefold.runtime.backends.tensorrt.variant import Variant
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import BackendError
from tests.cli.engine_rig import FACTS, ORIN, Built, Machine, kernels


def in_mode(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    found = {"power_mode": mode, "gpu_min_hz": 306e6, "gpu_max_hz": 1020e6}
    monkeypatch.setattr(build_conditions, "read_build_conditions", lambda: dict(found))


def test_the_list_tells_time_peak_and_the_mode_of_the_build(
    tiny_bundle: Path,
    built: Built,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt", ORIN)
    in_mode(monkeypatch, "25W")
    assert main(["engine", str(tiny_bundle)]) == 0
    in_mode(monkeypatch, "MAXN_SUPER")
    capsys.readouterr()
    assert main(["engine", str(tiny_bundle), "--list"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("built in 25W, running in MAXN_SUPER") == 1
    n_graphs = len(load_manifest(tiny_bundle).graphs)
    assert printed.count("2.5 s   300.0 MB") == n_graphs


def test_engines_for_other_machines_have_no_mode_of_this_one(
    tiny_bundle: Path,
    tmp_path: Path,
    built: Built,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine("tensorrt_rtx", None)
    in_mode(monkeypatch, "25W")
    assert main(["engine", str(tiny_bundle), "--compute-capability", "8.6"]) == 0
    assert all(not entry.facts["conditions"] for entry in EngineCache(tmp_path / "cache").entries())


def test_an_inspection_names_kernels_and_products_that_stayed_wider(
    tiny_bundle: Path,
    built: Built,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt", ORIN)
    in_mode(monkeypatch, "25W")
    assert main(["engine", str(tiny_bundle)]) == 0

    def missing() -> Variant:
        raise BackendError("not installed")

    monkeypatch.setattr(tensorrt_variant, "find_variant", missing)
    capsys.readouterr()
    assert main(["engine", str(tiny_bundle), "--inspect"]) == 0
    printed = capsys.readouterr().out
    n_graphs = len(load_manifest(tiny_bundle).graphs)
    assert printed.count("1 of 2 int8 products run in int8") == n_graphs
    assert printed.count("stayed float32: layernormalization_35_product") == n_graphs
    assert printed.count("__myl_CastMulFc_myl0_8") == n_graphs
    assert "GPU clock 306 to 1020 MHz (not fixed" in printed and "power mode 25W" in printed
    assert "workspace 256 MiB" in printed and "TensorRT-RTX" not in printed
    assert main(["engine", str(tiny_bundle), "--inspect", "--compute-capability", "8.9"]) == 0
    assert "holds no engine of" in capsys.readouterr().out


def test_an_inspection_names_attentions_that_are_one_kernel_of_float16(
    tiny_bundle: Path,
    built: Built,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt_rtx", Device("RTX A2000", "8.6", 6 << 30))
    monkeypatch.setitem(FACTS, "kernels", kernels("float16-query_one"))
    monkeypatch.setitem(FACTS, "products", {"matmul_10": "float16", "gemm_8": "float16"})
    assert main(["engine", str(tiny_bundle)]) == 0
    assert main(["engine", str(tiny_bundle), "--inspect"]) == 0
    printed = capsys.readouterr().out
    n_graphs = len(load_manifest(tiny_bundle).graphs)
    assert printed.count("2 of 2 float16 products run in float16") == n_graphs
    counted = ", ".join(f"{name} 1" for name in load_manifest(tiny_bundle).graphs)
    assert f"attentions in one kernel of float16: {counted};" in printed
    assert "TensorRT-RTX makes the code of gemm" in printed and "tensorrt_rtx" not in printed


def test_an_engine_whose_kernels_were_not_kept_says_so(
    tiny_bundle: Path,
    built: Built,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine("tensorrt", ORIN)
    for name in list(FACTS):
        monkeypatch.delitem(FACTS, name)
    assert main(["engine", str(tiny_bundle)]) == 0
    assert main(["engine", str(tiny_bundle), "--inspect"]) == 0
    assert main(["engine", str(tiny_bundle), "--list"]) == 0
    n_graphs = len(load_manifest(tiny_bundle).graphs)
    assert capsys.readouterr().out.count("--rebuild") == n_graphs
