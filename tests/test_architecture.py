"""The arrows between folders and modules, and what may be imported on a board."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Set
from pathlib import Path

import pytest
import tomllib  # this test runs where the developers work, on Python 3.11

from edgefold.runtime.backends.registry import BACKENDS
from tests.import_graph import NAMESPACE, ROOT, imported_modules, modules, tree_of

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Which folder may import what of the others, as module prefixes. A new arrow is a design change.
ALLOWED: dict[str, tuple[str, ...]] = {
    "runtime": (),
    "devices": ("runtime",),
    "train": (
        "runtime.arrays",
        "runtime.errors",
        "runtime.files",
        "runtime.lazy",
        "runtime.options",
        "runtime.bundle.manifest",  # names that a state and a bundle share
        "runtime.predictions",
        "runtime.series",
        "runtime.rows",
        "runtime.stop_signal",
    ),
    "export": ("train", "runtime"),
    "fleets": ("runtime",),
    "cli": ("train", "export", "fleets", "runtime", "devices"),
}
CMANP_FILES = {  # the only files that may know this model
    "train/models/constant_memory/__init__.py",
    "train/models/constant_memory/cmanp.py",
    "train/models/constant_memory/cmanp_and.py",
    "train/models/registry.py",
}
PACKAGE_FILES = {  # where a backend's name is a library or a package whose version is recorded
    "cli/doctor/record.py",
    "cli/doctor/remedies.py",
    "cli/records/comparison.py",
    "cli/text/doctor.py",
    "devices/profile/profile.py",
}
ON_DEVICE = ("runtime", "devices")
FRAGMENTS = ("Of", "What", "Whose", "Those", "That", "Likewise")
"""First words of fragments: a docstring names its subject and is read without the name."""
SHARED_NAMES = {  # names that two product classes share, with the reason
    "Sensors": "the public stream of sensors, and the model that it runs",
}
C_FILES = ("*.c", "*.h", "*.ld")  # the generator copies them into what it writes
OFF_DEVICE = {"torch", "onnx", "onnxscript", "safetensors", "tqdm", "matplotlib", "scipy", "pandas"}


def circle(graph: Mapping[str, Set[str]]) -> list[str]:
    """A way along the arrows that comes back to where it began; empty if there is none."""
    finished: set[str] = set()

    def visit(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in finished:
            return []
        for following in sorted(graph[name]):
            if found := visit(following, [*way, name]):
                return found
        finished.add(name)
        return []

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize(
    ("folders", "namespace"), [(tuple(ALLOWED), NAMESPACE), (("benchmarks",), "")]
)
def test_no_module_imports_itself_by_way_of_others(
    folders: tuple[str, ...], namespace: str
) -> None:
    """Imports for type checkers and within functions count too."""
    known = modules(folders, namespace)
    graph = {
        name: (imported_modules(path, for_types=True) & known.keys()) - {name}
        for name, path in known.items()
    }
    assert len(graph) > 20 and sum(map(len, graph.values())) > 40
    assert not circle(graph), " -> ".join(circle(graph))


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_the_table_allows(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in imported_modules(path):
            head, _, inner = name.partition(".")
            if head == NAMESPACE and inner.partition(".")[0] != package:
                assert inner.startswith(ALLOWED[package] or "nothing"), (
                    f"{path.relative_to(ROOT)} imports {name}; "
                    f"{package}/ may import only {ALLOWED[package] or 'itself'}."
                )
            if package in ON_DEVICE:
                assert head not in OFF_DEVICE, f"{path.relative_to(ROOT)} imports {name}."


def distinguished(path: Path) -> Iterator[str]:
    """Strings on which a file's behaviour depends: compared, looked up, or listed."""
    for node in ast.walk(tree_of(path)):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Dict):
            parts = [*node.keys]
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            parts = [*node.elts]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        yield from (
            part.value
            for part in parts
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )


def test_only_the_backends_know_their_names() -> None:
    files = [path for folder in ALLOWED for path in sorted((ROOT / folder).rglob("*.py"))]
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if name not in PACKAGE_FILES and not name.startswith("runtime/backends/"):
            known = BACKENDS.keys() & set(distinguished(path))
            assert not known, f"{name} asks for {known}; let BackendInfo have the fact."


@pytest.mark.parametrize("package", ON_DEVICE)
def test_on_device_packages_load_without_torch(package: str) -> None:
    modules = [
        ".".join((NAMESPACE, *path.relative_to(ROOT).with_suffix("").parts))
        for path in sorted((ROOT / package).rglob("[!_]*.py"))
    ]
    load_without(OFF_DEVICE, modules)


def test_tables_of_the_benchmarks_load_without_torch() -> None:
    """Benchmarks of the device side write their tables on machines that have no torch."""
    load_without({"torch"}, ["benchmarks.tables"])


def load_without(packages: Collection[str], modules: Collection[str]) -> None:
    """Assert that modules are imported in a process where some packages are missing."""
    code = (
        "import importlib, sys\n"
        f"for name in {sorted(packages)}: sys.modules[name] = None\n"
        f"for name in {sorted(modules)}: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_the_command_line_reads_a_command_line() -> None:
    """Options elsewhere are dataclasses, which a program fills without a parser."""
    for package in ALLOWED.keys() - {"cli"}:
        for path in sorted((ROOT / package).rglob("*.py")):
            assert "argparse" not in imported_modules(path, for_types=True), path


def test_onnxruntime_is_imported_in_one_place() -> None:
    """Elsewhere it would come with its telemetry."""
    for folder in (*ALLOWED, "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            named = any(n.partition(".")[0] == "onnxruntime" for n in imported_modules(path))
            # The child of a benchmark is the contender that feeds onnxruntime by hand.
            assert named == (path.name in ("onnxruntime_session.py", "silero_child.py")), path


def test_a_stream_neither_phones_home_nor_leaves_files_in_the_home(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    code = (
        "import threading, os\n"
        "from edgefold.runtime import Stream\n"
        f"with Stream.open({str(tiny_bundle)!r}) as stream:\n"
        "    stream.update([[0.1, 0.2]], [[0.3]])\n"
        "print(len(os.listdir('/proc/self/task')))\n"
    )
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    threads = int(done.stdout)
    # numpy's OpenBLAS keeps one thread a core; onnxruntime adds none with one thread a step.
    assert threads <= (os.cpu_count() or 1)


def test_every_folder_with_code_or_data_is_shipped() -> None:
    listed = set(PYPROJECT["tool"]["setuptools"]["packages"])
    data = PYPROJECT["tool"]["setuptools"]["package-data"]
    whole = [  # folders that are shipped as they are, with all in them
        ROOT.joinpath(*name.split(".")[1:], pattern.partition("/")[0])
        for name, patterns in data.items()
        for pattern in patterns
        if pattern.endswith("/**/*")
    ]
    assert all(folder.is_dir() for folder in whole)
    found = {
        ".".join((NAMESPACE, *path.parent.relative_to(ROOT).parts))
        for package in ALLOWED
        for pattern in ("*.py", "*.json", *C_FILES)
        for path in (ROOT / package).rglob(pattern)
        if not any(path.is_relative_to(folder) for folder in whole)
    }
    assert found == listed
    assert set(C_FILES) <= set(PYPROJECT["tool"]["setuptools"]["package-data"]["*"])


def test_the_links_for_static_tools_match_the_mapping() -> None:
    mapping = PYPROJECT["tool"]["setuptools"]["package-dir"]
    for dotted, folder in mapping.items():
        assert (ROOT / "typings" / Path(*dotted.split("."))).resolve() == ROOT / folder


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield docstrings of modules, classes and functions, and texts below assignments."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for i, statement in enumerate(node.body):
            below = i == 0 or isinstance(node.body[i - 1], ast.Assign | ast.AnnAssign)
            text = statement.value if below and isinstance(statement, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text


def test_no_docstring_begins_as_a_fragment() -> None:
    for folder in (*ALLOWED, "benchmarks", "attack"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            for text in docstrings(tree_of(path)):
                words = str(text.value).split()
                assert not words or words[0].strip("`,:.") not in FRAGMENTS, (
                    f"{place}:{text.lineno}: {' '.join(words[:8])} ...; name the subject."
                )


def test_no_two_classes_share_a_name() -> None:
    """A stranger who searches for a class finds one."""
    places: dict[str, set[str]] = {}
    for folder in ALLOWED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, set()).add(place)
    for name, files in places.items():
        is_alone = len(files) == 1 or name in SHARED_NAMES
        assert is_alone, f"{name} is a class of {sorted(files)}; rename one."


def test_no_file_grows_past_500_lines() -> None:
    for package in (*ALLOWED, "tests", "benchmarks"):
        for path in (ROOT / package).rglob("*.py"):
            lines = len(path.read_text().splitlines())
            assert lines <= 500, f"{path.relative_to(ROOT)} has {lines} lines; split it."


def test_no_folder_grows_past_16_files() -> None:
    for package in ALLOWED:
        for folder in (ROOT / package, *(p for p in (ROOT / package).rglob("*") if p.is_dir())):
            n = len(list(folder.glob("*.py")))
            assert n <= 16, f"{folder.relative_to(ROOT)} has {n} Python files; split it."


@pytest.mark.parametrize("package", ALLOWED)
def test_no_general_file_knows_cmanp(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        place = str(path.relative_to(ROOT))
        assert place in CMANP_FILES or "cmanp" not in path.read_text().lower(), place


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from edgefold.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'onnxruntime', 'torch', 'onnx', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "in the order you need them" in done.stdout


def test_a_stream_runs_with_torch_and_onnx_blocked(tiny_bundle: Path) -> None:
    code = (
        "import sys\n"
        f"for name in {sorted(OFF_DEVICE)}: sys.modules[name] = None\n"
        "from edgefold.runtime import Stream\n"
        f"with Stream.open({str(tiny_bundle)!r}) as stream:\n"
        "    stream.update([[0.1, 0.2]], [[0.3]])\n"
        "    print(stream.query([[0.1, 0.2]]).mean.item())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    float(done.stdout)
