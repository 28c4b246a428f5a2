"""The names that programs may rely on: exactly these, documented, and free of heavy imports."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="half of the surface needs the train extra")

ROOT = Path(__file__).parents[1]
ERRORS = (
    "BackendError BoardError BoardFailedError BundleError BusyError CapacityError CheckpointError "
    "ClosedError DataError EdgefoldError ExportError KeyFileError MemoryLimitError MeterError "
    "ModelError OutputError OverlapError PaceError ShapeError "
    "SnapshotError StepRefusedError TrainingError ValueRefusedError WorkError"
)
SURFACE = {
    "runtime": ERRORS
    + " Categorical CheckReport EngineOptions Gaussian GaussianMixture JointGaussian Manifest"
    " NextEvent Piece Prediction PredictionKind Provenance Quantiles Raw Remedy RowFormat"
    " SensorForecast Sensors SeriesFeatures SeriesSpec StateSlots Stream check_bundle"
    " load_manifest read_series series_points",
    "devices": "Board Budget Demand EnergyFigure EnergyMeter Machine Measurement MemoryMonitor"
    " MemoryReading MemorySurvey ProcessMemory ProfileOptions Sampler board_names choose_sensor"
    " judge load_board monitor_memory probe_sensors read_machine",
    "train": "Batch Cache Episode EventModel FitConfig Prediction Ring Score State StreamingModel"
    " Task TaskStreams advance create_model fit load_class load_model load_weights",
    "fleets": "ConditionOptions Conditioned ConditionedState Lake LakeBatch LakeFile condition"
    " open_lake read_batches",
    "export": "ExportConfig ExportReport ImportConfig ParityRow Sizes Verdict VerifyReport"
    " export_bundle import_bundle verify",
}
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("package", SURFACE)
def test_a_package_offers_exactly_the_names_that_are_pinned_here(package: str) -> None:
    assert import_module(f"edgefold.{package}").__all__ == sorted(SURFACE[package].split())


@pytest.mark.parametrize("package", SURFACE)
def test_every_name_loads_and_no_module_hides_it(package: str) -> None:
    module = import_module(f"edgefold.{package}")
    modules = {path.stem for path in (ROOT / package).iterdir()}
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name not in modules


@pytest.mark.parametrize("package", SURFACE)
def test_type_checkers_see_the_names_that_programs_see(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    shown = {
        alias.asname: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    module = import_module(f"edgefold.{package}")
    assert sorted(shown) == module.__all__
    for public, (source, name) in shown.items():
        assert source and public == name
        assert getattr(import_module(source), name) is getattr(module, name)


@pytest.mark.parametrize("package", SURFACE)
def test_an_unknown_name_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="Missing"):
        import_module(f"edgefold.{package}").Missing  # noqa: B018


def test_meters_and_errors_load_without_numpy() -> None:
    code = (
        "import sys, edgefold.devices, edgefold.runtime\n"
        "from edgefold.devices import load_board, read_machine, ProcessMemory\n"
        "from edgefold.runtime import EdgefoldError\n"
        "load_board('raspberry-pi-5'), read_machine()\n"
        "assert 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_documents_import_nothing_but_the_surface() -> None:
    found = 0
    for path in DOCUMENTS:
        for code in BLOCK.findall(path.read_text()):
            for node in ast.walk(ast.parse(code)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                assert not any(name.startswith("edgefold") for name in names), path.name
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edgefold"):
                    _, _, package = (node.module or "").partition(".")
                    public = SURFACE.get(package, "").split()
                    for alias in node.names:
                        assert alias.name in public, f"{path.name}: {node.module}.{alias.name}"
                        found += 1
    assert found > 5


def test_the_page_of_the_surface_is_that_of_the_docstrings() -> None:
    """`make docs` writes it again."""
    written = runpy.run_path(str(ROOT / "scripts/api_page.py"))["page"]()
    assert (ROOT / "docs" / "api.md").read_text() == written
