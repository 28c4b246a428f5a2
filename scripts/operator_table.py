"""Write the table of ONNX operators that C covers into docs/native.md.

    python scripts/operator_table.py

It is made from the rules and their limits. A test compares the page with what this writes.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from edgefold.export.native.program.coverage import INSTEAD
from edgefold.export.native.program.limits import Limits, limits_of
from edgefold.export.native.rules import RULES, types_of

PAGE = Path(__file__).parents[1] / "docs" / "native.md"
START, END = "<!-- operators:start -->", "<!-- operators:end -->"
OPSET = 21
"""Version of the operators that are listed; older graphs have the same ones or fewer."""
WIDTH = 100


def schemas() -> dict[str, Any]:
    """Return ONNX's description of each operator of its main domain, by name."""
    found: dict[str, Any] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        is_main = schema.domain == "" and schema.since_version <= OPSET
        older = found.get(schema.name)
        if is_main and (older is None or older.since_version < schema.since_version):
            found[schema.name] = schema
    return {name: found[name] for name in sorted(found) if not found[name].deprecated}


def limit_words(limits: Limits, inputs: list[str]) -> Iterator[str]:
    """Yield what a node must be like, in words; `inputs` are the names of the operator's inputs."""
    for name, values in limits.attributes.items():
        shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        yield f"no `{name}`" if values == ([],) else f"`{name}` = {' or '.join(shown)}"
    names = [f"`{inputs[k]}`" for k in limits.constants if k < len(inputs)]
    if names:
        yield f"constant {', '.join(names)}"
    names = [f"`{inputs[k]}`" for k in limits.absent]
    if names:
        yield f"no {', '.join(names)}"
    if limits.n_outputs == 1:
        yield "one output"
    yield from limits.others


def table() -> str:
    """Return the table, and the names of the operators that are not covered."""
    rows = ["| operator | C | element types | limits, or what to write instead |"]
    rows.append("| --- | --- | --- | --- |")
    bare = []
    for name, schema in schemas().items():
        if name in RULES:
            words = limit_words(limits_of(RULES[name]), [given.name for given in schema.inputs])
            rows.append(f"| {name} | yes | {types_of(name)} | {'; '.join(words)} |")
        elif name in INSTEAD:
            advice = re.sub(
                r"([*_])", r"\\\1", INSTEAD[name]
            )  # these letters are marks of Markdown
            rows.append(f"| {name} | no | | {advice} |")
        else:
            bare.append(name)
    others = textwrap.fill(f"No: {', '.join(bare)}.", WIDTH)
    return "\n".join([*rows, "", others, ""])


def with_table(page: str) -> str:
    """Return the page with the table of now between its marks."""
    head, rest = page.split(START)
    return f"{head}{START}\n{table()}{END}{rest.split(END)[1]}"


def main() -> int:
    """Write the page again."""
    PAGE.write_text(with_table(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
