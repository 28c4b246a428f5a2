#!/usr/bin/env python3
"""Run the tests that a change in some files can break, in about a minute.

    make test-near FILE=train/models/neural_processes/grid.py
    make test-near FILE="cnp runtime/stream/stream.py"     files, names of files, models' names
    make test-near                                         what git says is changed
    scripts/test_near.py --list FILE...                    only print the choice

The tests are chosen by the import graph (tests/import_graph.py): the mirror file, test files that
import the changed one directly, and for a model its cases of the suite of all models. A file that
half of the product needs has too many: there the quick tests run, those that start no process,
export nothing and compile nothing. Where nothing imports a file, the modules that do count for it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.import_graph import NAMESPACE, ROOT, exported_names, imported_modules, modules
from tests.near import Choice, write_choices

FOLDERS = ("train", "export", "fleets", "runtime", "devices", "cli")
ALL_MODELS = "tests/export/test_all_models.py"
MOST_FILES = 8
"""Test files that run for one changed file besides its mirror; the others are named."""
MOST_MODELS = 3
"""Models whose cases run where a file is part of many."""
CORE = 12
"""A file that more test files import directly is a core file."""
WORKERS = ("--numprocesses=auto", "--maxprocesses=4", "--dist=loadscope")
BUNDLES_FROM = ("train", "export", "runtime/bundle", "tests/conftest.py", "tests/native_builds.py")
"""What the shared bundles depend on: they are kept until one of these files changes."""


class UnknownFileError(Exception):
    """A name is neither a file that has tests, nor a model."""


@dataclass
class Graph:
    """The product's modules, the test files, and which imports which."""

    product: dict[str, Path] = field(default_factory=lambda: modules(FOLDERS, NAMESPACE))
    tests: dict[str, Path] = field(default_factory=lambda: modules(("tests",), ""))

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Modules that each module imports; a package's name stands for the module it is from."""
        known = {**self.product, **self.tests}
        handed_on: dict[str, str] = {}
        for name, path in self.product.items():
            if path.name == "__init__.py":
                handed_on |= exported_names(name, path)
        return {
            name: {handed_on.get(each, each) for each in imported_modules(path)} & known.keys()
            for name, path in known.items()
        }

    def importers(self, name: str) -> set[str]:
        """Modules and tests that import a module directly; a package's __init__ does not count."""
        return {
            other
            for other, imported in self.imports.items()
            if name in imported and other != name and not name.startswith(f"{other}.")
        }

    def dependents(self, name: str) -> set[str]:
        """Modules and tests that reach a module by imports, over any way."""
        reached, waiting = {name}, [name]
        while waiting:
            new = self.importers(waiting.pop()) - reached
            reached |= new
            waiting += new
        return reached - {name}

    def test_files(self, names: Iterable[str]) -> list[str]:
        """Paths of those names that are test files; of support files, the tests that use them."""
        found = set()
        for name in names:
            if name in self.tests:
                path = self.tests[name]
                if path.name.startswith("test_"):
                    found.add(str(path.relative_to(ROOT)))
        return sorted(found)

    def models(self, path: Path) -> list[str]:
        """Models, by their names, whose class needs a file of models or layers."""
        name = self.name_of(path)
        return [
            model
            for model, place in registered().items()
            if name == place or place in self.dependents(name)
        ]

    def name_of(self, path: Path) -> str:
        """The dotted name of a file."""
        return next(n for n, p in {**self.product, **self.tests}.items() if p == path)


def registered() -> dict[str, str]:
    """Modules of the models that come with Edgefold, by the models' names."""
    for node in ast.parse((ROOT / "train/models/registry.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "MODELS":
            places: dict[str, str] = ast.literal_eval(node.value)
            return {name: place.partition(":")[0] for name, place in places.items()}
    raise AssertionError("train/models/registry.py has no MODELS")


def resolve(name: str, graph: Graph) -> tuple[Path, list[str]]:
    """Find the file that a word names, and the models if it names one.

    Args:
        name: A path from the root or from here, the name of a file that occurs once, or a model's.
        graph: Knows the files.

    Raises:
        UnknownFileError: No file is called so, or several are.
    """
    for path in (ROOT / name, Path(name).absolute()):
        if path.is_file() and path.is_relative_to(ROOT):
            return path, []
    stem = Path(name).name.removesuffix(".py")
    places = registered()
    if stem in places and "/" not in name:
        return graph.product[places[stem]], [stem]
    files = [*graph.product.values(), *graph.tests.values()]
    matches = sorted({path for path in files if path.name == f"{stem}.py" and "/" not in name})
    if len(matches) == 1:
        return matches[0], []
    if matches:
        several = ", ".join(str(path.relative_to(ROOT)) for path in matches)
        raise UnknownFileError(f"several files are called {name}: {several}. Name one by its path.")
    raise UnknownFileError(
        f"{name!r} is neither a file of this repository nor a model. Give a path from the root, "
        "such as FILE=runtime/stream/stream.py, or a model's name, such as FILE=cnp."
    )


def mirrors(path: Path) -> list[str]:
    """Test files that stand for a file by their names: its own, or the folder's that it is in."""
    relative = path.relative_to(ROOT)
    stem = relative.stem.strip("_")
    candidates = [ROOT / "tests" / relative.parent / f"test_{stem}.py"]
    candidates += [
        ROOT / "tests" / parent.parent / f"test_{parent.name}.py"
        for parent in relative.parents
        if parent.name
    ]
    if relative.parts[:2] == ("cli", "commands"):  # the folder of commands has no mirror
        candidates = [ROOT / "tests/cli" / f"test_{stem}.py"]
        if not candidates[0].is_file():
            candidates = sorted((ROOT / "tests/cli").glob(f"test_*{stem}*.py"))
        candidates.append(ROOT / "tests/cli/test_main.py")
    return [str(found.relative_to(ROOT)) for found in candidates if found.is_file()]


def choose(path: Path, graph: Graph, models: Sequence[str] = ()) -> list[Choice]:
    """Choose the tests for one changed file.

    Raises:
        UnknownFileError: Nothing says which tests the file has.
    """
    relative = path.relative_to(ROOT)
    if path.suffix != ".py" or path not in {*graph.product.values(), *graph.tests.values()}:
        return choose_other(relative)
    name = graph.name_of(path)
    if relative.parts[0] == "tests":
        if path.name.startswith("test_"):
            return [Choice((str(relative),), "it is a test file")]
        users = graph.test_files(graph.importers(name))
        if path.name == "conftest.py":
            users = sorted(str(p.relative_to(ROOT)) for p in path.parent.glob("test_*.py"))
        return with_limit([], users, "tests that use it") or nothing(relative)
    importers = graph.test_files(graph.importers(name))
    if len(importers) > CORE:
        reason = f"a core file, which {len(importers)} test files import: the quick tests"
        choices = [Choice((f"tests/{relative.parts[0]}",), reason, quick=True, one_case=True)]
        if own := mirrors(path):
            choices.insert(0, Choice(tuple(own), "named after it or its folder"))
    else:
        choices = with_limit(mirrors(path), importers, "tests that import it")
    if relative.parts[:2] in (("train", "models"), ("train", "layers")):
        names = list(models) or graph.models(path)
        chosen = names[:MOST_MODELS]
        forms = tuple(f"[{name}{form}]" for name in chosen for form in ("", "-1", "-3"))
        rest = f"; part of {len(names) - len(chosen)} others, too" if names != chosen else ""
        if chosen:
            reason = f"the laws of every model, for {', '.join(chosen)}{rest}"
            choices.append(Choice((ALL_MODELS,), reason, cases=forms))
    return choices or by_way_of(name, graph) or nothing(relative)


def by_way_of(name: str, graph: Graph) -> list[Choice]:
    """Choose the tests of the nearest modules that import a module and have tests."""
    steps, visited = [name], {name}
    while steps:
        steps = sorted({each for step in steps for each in graph.importers(step)} - visited)
        steps = [step for step in steps if step in graph.product]
        visited.update(steps)
        files: dict[str, None] = {}
        for step in steps:
            files |= dict.fromkeys(mirrors(graph.product[step]))
            files |= dict.fromkeys(graph.test_files(graph.importers(step)))
        if files:
            return with_limit([], [*files], f"no test imports it, but {', '.join(steps)}")
    return []


def choose_other(relative: Path) -> list[Choice]:
    """Choose the tests for a file that is not a module of the product or of the tests."""
    text = f"{relative}"
    if relative.suffix == ".md":
        return [Choice(("tests/test_readme.py",), "it is a document")]
    if text in ("scripts/test_near.py", "Makefile"):
        return [Choice(("tests/test_near.py",), "it chooses tests")]
    if relative.parts[0] in ("attack", "benchmarks"):
        tests = {"attack": "tests/test_attack_quick.py", "benchmarks": "tests/benchmarks"}
        return [Choice((tests[relative.parts[0]],), f"it belongs to {relative.parts[0]}/")]
    for parent in relative.parents:
        folder = ROOT / "tests" / parent
        if parent.name and relative.parts[0] in FOLDERS and folder.is_dir():
            return [Choice((f"tests/{parent}",), "the folder of its tests", one_case=True)]
    return nothing(relative)


def nothing(relative: Path) -> list[Choice]:
    """Refuse a file for which no test can be named."""
    raise UnknownFileError(f"no test is known for {relative}: run `make test`.")


def with_limit(mirror: list[str], others: list[str], reason: str) -> list[Choice]:
    """Choices for a mirror and other test files, of which only the first ones run.

    Of many the smallest run, since these have one subject.
    """
    others = sorted(set(others) - set(mirror), key=lambda name: (ROOT / name).stat().st_size)
    choices = [Choice(tuple(mirror), "named after it or its folder")] if mirror else []
    if others:
        left_out = others[MOST_FILES:]
        more = f"; left out: {' '.join(left_out)}" if left_out else ""
        kept = tuple(others[:MOST_FILES])
        choices.append(Choice(kept, reason + more, quick=bool(left_out), one_case=True))
    return choices


def changed_files() -> list[str]:
    """Files that git says are changed or new."""
    words = ["git", "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [entry[3:] for entry in done.stdout.split("\0") if entry]
    return [name for name in names if (ROOT / name).is_file()]


def kept_bundles() -> Path:
    """The folder of shared bundles for the present state of what they are exported from."""
    digest = sha256()
    for place in BUNDLES_FROM:
        path = ROOT / place
        for each in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(each.read_bytes())
    return Path(tempfile.gettempdir()) / f"edgefold-bundles-{os.getuid()}-{digest.hexdigest()[:16]}"


def run(choices: Sequence[Choice]) -> int:
    """Run all choices by one pytest, on the workers of `make test`; returns its code."""
    folder = kept_bundles()
    if not folder.exists():
        from tests.conftest import make_bundles  # imports PyTorch, which takes seconds

        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            make_bundles(Path(work) / "bundles")
            (Path(work) / "bundles").rename(folder)
    environment = {**os.environ, "EDGEFOLD_TEST_BUNDLES": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    paths = dict.fromkeys(path for choice in choices for path in choice.paths)
    with tempfile.TemporaryDirectory() as work:
        near = write_choices(choices, Path(work) / "choices.json")
        options = ["-q", *WORKERS, "--everyday", f"--near={near}"]
        words = [sys.executable, "-m", "pytest", *options, *paths]
        code = subprocess.run(words, cwd=ROOT, env=environment).returncode
    return 0 if code == 5 else code  # 5: every test was left out


def main() -> int:
    """Choose for the named files, or for the changed ones; print the choice and run it."""
    words = [word for word in sys.argv[1:] if word not in ("--list", "-h", "--help")]
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return 0
    graph, choices = Graph(), list[tuple[str, Choice]]()
    for word in words or changed_files():
        try:
            path, models = resolve(word, graph)
            choices += [(word, choice) for choice in choose(path, graph, models)]
        except UnknownFileError as error:
            print(f"test-near: {error}", file=sys.stderr)
            if words:
                return 2
    if not choices:
        print("test-near: no changed file has tests; name one: FILE=...", file=sys.stderr)
        return 2
    for word, choice in choices:
        print(f"{word}: {choice}\n    {choice.reason}", flush=True)
    if "--list" in sys.argv[1:]:
        return 0
    return run(list(dict.fromkeys(choice for _, choice in choices)))


if __name__ == "__main__":
    sys.exit(main())
