"""The manifests of libraries, judged by the tools and the published rules of their ecosystems."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edgefold.cli.generated_files import MARK
from edgefold.export.native.packages.layout import CLibrary, package_files
from edgefold.runtime import load_manifest
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native.packages.library_tools import python_of, run, stubbed_library, write

ARDUINO_FIELDS = (
    *("name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url"),
    *("architectures", "includes"),
)
"""Fields of the specification of Arduino's libraries, revision 2.2, of which all but the last must
be there: https://docs.arduino.cc/arduino-cli/library-specification."""
CATEGORIES = (
    *("Display", "Communication", "Signal Input/Output", "Sensors", "Device Control", "Timing"),
    *("Data Storage", "Data Processing", "Other"),
)
TEXT, FLAG = {"type": "string"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
ZEPHYR_MODULE = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "build": {
            "type": "object",
            "properties": {
                **dict.fromkeys(("cmake", "kconfig", "sysbuild-cmake", "sysbuild-kconfig"), TEXT),
                "cmake-ext": FLAG,
                "kconfig-ext": FLAG,
                "depends": TEXTS,
                "settings": {"type": "object"},
            },
            "additionalProperties": False,
        },
        **dict.fromkeys(("tests", "samples", "boards"), TEXTS),
        "blobs": {"type": "array"},
    },
    "additionalProperties": False,
}
"""METADATA_SCHEMA of scripts/zephyr_module.py in the repository zephyrproject-rtos/zephyr, as a
JSON schema."""
PLATFORMIO = """
import sys
from platformio.package.manifest.parser import ManifestParserFactory
from platformio.package.manifest.schema import ManifestSchema
ManifestSchema.load_spdx_licenses = staticmethod(  # it is fetched else
    lambda version=None: {"licenses": [{"licenseId": "Apache-2.0"}]}
)
manifest = ManifestSchema().load_manifest(ManifestParserFactory.new_from_dir(".").as_dict())
print(manifest["name"], manifest["version"], manifest["license"], manifest["headers"])
"""
ESP_IDF = """
import sys
from idf_component_tools.manager import ManifestManager
for folder in sys.argv[1:]:
    manager = ManifestManager(folder, "component").validate()
    print(manager.manifest.version, sorted(manager.manifest.dependencies))
"""
KCONFIG = """
import sys
import kconfiglib
kconfig = kconfiglib.Kconfig("Kconfig.all", warn_to_stderr=False)
kconfig.load_config(sys.argv[1])
print({name: symbol.str_value for name, symbol in kconfig.syms.items() if symbol.nodes})
print(kconfig.warnings)
"""
ZEPHYRS_SYMBOLS = """
config CPU_HAS_FPU
\tbool
\tdefault y
config FPU
\tbool "FPU"
\tdepends on CPU_HAS_FPU
config REQUIRES_FULL_LIBC
\tbool
config CBPRINTF_FP_SUPPORT
\tbool "floats"
config MAIN_STACK_SIZE
\tint "stack"
source "Kconfig"
"""


@pytest.fixture(scope="module")
def library() -> CLibrary:
    return stubbed_library(load_manifest(shipped_bundle()))


def test_arduinos_properties_have_all_fields_of_the_specification(library: CLibrary) -> None:
    text = package_files("arduino", library)["library.properties"]
    pairs = [line.partition("=") for line in text.splitlines() if not line.startswith("#")]
    fields = {name: value for name, _, value in pairs}
    assert tuple(fields) == ARDUINO_FIELDS and all(fields.values())
    assert re.fullmatch(r"[A-Za-z0-9][\w .-]{0,62}", fields["name"], re.ASCII)
    assert not fields["name"].lower().startswith("arduino")
    assert re.fullmatch(r"\d+\.\d+\.\d+", fields["version"])
    assert fields["category"] in CATEGORIES
    assert f"src/{fields['includes']}" in package_files("arduino", library)


def test_arduinos_keywords_are_the_headers_names(library: CLibrary) -> None:
    text = package_files("arduino", library)["keywords.txt"]
    words = dict(line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    assert words["edgefold_model"] == words["edgefold_status"] == "KEYWORD1"
    assert words["edgefold_model_push"] == words["edgefold_model_save_sensor"] == "KEYWORD2"
    constants = ("EDGEFOLD_OK", "EDGEFOLD_IO", "EDGEFOLD_MODEL_RAM_BYTES", "EDGEFOLD_MODEL_ROOM")
    assert {words[name] for name in constants} == {"LITERAL1"}
    assert "EDGEFOLD_MODEL_H" not in words and "EDGEFOLD_TYPES" not in words


def test_platformios_manifest_passes_its_own_check(library: CLibrary, tmp_path: Path) -> None:
    files = package_files("platformio", library, MARK)
    form = json.loads(files["library.json"])
    assert form["description"].endswith(MARK)
    base = form["examples"][0]["base"]
    assert {f"{base}/{name}" for name in form["examples"][0]["files"]} < set(files)
    folder = write(files, tmp_path)
    printed = run(python_of("pio"), "-c", PLATFORMIO, folder=folder)
    version = library.words["version"]
    assert printed.split() == ["edgefold_model", version, "Apache-2.0", "['edgefold_model.h']"]


def test_esp_idfs_manifests_pass_its_own_check(library: CLibrary, tmp_path: Path) -> None:
    folder = write(package_files("esp-idf", library), tmp_path)
    main = folder / "examples" / library.name / "main"
    printed = run(python_of("compote"), "-c", ESP_IDF, folder, main)
    version = library.words["version"]
    assert printed.splitlines() == [f"{version} ['idf']", "None ['edgefold_model', 'idf']"]
    assert (main / "../../..").resolve() == folder.resolve()  # which the manifest names


def test_zephyrs_module_has_only_keys_of_its_schema(library: CLibrary) -> None:
    yaml = pytest.importorskip("yaml")
    jsonschema = pytest.importorskip("jsonschema")
    files = package_files("zephyr", library)
    form = yaml.safe_load(files["zephyr/module.yml"])
    jsonschema.validate(form, ZEPHYR_MODULE)
    assert form["name"] == library.name
    assert form["build"] == {"cmake": ".", "kconfig": "Kconfig"}
    assert {"CMakeLists.txt", "Kconfig"} < set(files)
    sample = yaml.safe_load(files[f"samples/{library.name}/sample.yaml"])
    assert set(sample) == {"sample", "tests"}


@pytest.mark.parametrize(
    ("off", "value"), [("", "y"), ("CONFIG_EDGEFOLD_MODEL_SNAPSHOTS=n\n", "n")]
)
def test_zephyrs_kconfig_takes_the_samples_configuration(
    library: CLibrary, tmp_path: Path, off: str, value: str
) -> None:
    files = package_files("zephyr", library)
    folder = write(files, tmp_path)
    sample = folder / "samples" / library.name / "prj.conf"
    sample.write_text(sample.read_text() + off)
    (folder / "Kconfig.all").write_text(ZEPHYRS_SYMBOLS)
    symbols, warnings = run(
        python_of("menuconfig"), "-c", KCONFIG, sample, folder=folder
    ).splitlines()
    assert warnings == "[]"
    found = dict(re.findall(r"'(\w+)': '(\w+)'", symbols))
    assert found["EDGEFOLD_MODEL"] == found["REQUIRES_FULL_LIBC"] == found["FPU"] == "y"
    assert found["EDGEFOLD_MODEL_SNAPSHOTS"] == value


def test_esp_idfs_kconfig_has_the_snapshots(library: CLibrary, tmp_path: Path) -> None:
    folder = write(package_files("esp-idf", library), tmp_path)
    (folder / "Kconfig.all").write_text('source "Kconfig"\n')
    (folder / "empty").write_text("")
    printed = run(python_of("menuconfig"), "-c", KCONFIG, "empty", folder=folder)
    assert "'EDGEFOLD_MODEL_SNAPSHOTS': 'y'" in printed
