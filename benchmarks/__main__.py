"""Run one benchmark by its name: `python -m benchmarks step_latency`; without a name, list them.

A question is a file in one of the folders here that has a `main`; it is found by listing.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def questions() -> dict[str, tuple[str, str]]:
    """Module and first line of the docstring of each benchmark, by its name."""
    named = {}
    for path in sorted(HERE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        line = (ast.get_docstring(tree) or "").partition("\n")[0]
        runs = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        listed = path.parent != HERE or path.stem in ("tables", "tables_of_papers")
        if runs and listed and not line.startswith("Child"):
            parts = path.relative_to(HERE.parent).with_suffix("").parts
            named[path.stem] = ".".join(parts), line
    return named


def main() -> None:
    """List the benchmarks, or run one with the arguments that follow its name."""
    named = questions()
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print("usage: python -m benchmarks NAME [--help] [options]\n")
        for each, (module, line) in named.items():
            print(f"{each:22} {module.split('.')[1]:10} {line}")
        return
    if name not in named:
        sys.exit(f"There is no benchmark {name!r}; there are: {', '.join(named)}.")
    sys.argv = [name, *sys.argv[2:]]
    runpy.run_module(named[name][0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
