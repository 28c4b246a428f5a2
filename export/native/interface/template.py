"""Fill in templates of C: text with words to replace, and lines that only some bundles need.

$word, ${word}      is replaced by the value of the word
@if word ... @end   is kept if the word is true; `@if !word ... @end` if it is not
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

FOLDER = Path(__file__).parents[1] / "c"


def fixed(name: str) -> str:
    """Return the text of a C file that is the same for every bundle."""
    return (FOLDER / name).read_text()


def filled(name: str, words: Mapping[str, object]) -> str:
    """Return a template of C with its words replaced; see `filled_text`."""
    return filled_text(fixed(name), words)


def filled_text(text: str, words: Mapping[str, object], form: type[Template] = Template) -> str:
    """Return a template's text with its words replaced.

    Args:
        text: The template.
        words: A value for each word.
        form: How a word is marked in the text; `$word` by default.
    """
    lines: list[str] = []
    visible = [True]
    for line in text.splitlines():
        mark, _, word = line.partition(" ")
        if mark == "@if":
            visible.append(visible[-1] and bool(words[word.lstrip("!")]) != word.startswith("!"))
        elif mark == "@end":
            visible.pop()
        elif visible[-1]:
            full = form(line).substitute(words)
            if full.strip() or not line:  # a line of a word that is "" is dropped
                lines.append(full)
    return "\n".join(lines) + "\n"
