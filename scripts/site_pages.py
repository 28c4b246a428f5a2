"""Lay out the pages of `make docs-site` in a folder, as they lie in the repository.

mkdocs takes pages from one folder below its configuration. README, docs/ and the pages of other
folders link to each other by their paths in the repository, so these paths are kept. Files that a
page links to, such as pictures and sources, come along. A folder that a page links to becomes its
README if it has one; otherwise only the link's text remains.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def pages() -> list[str]:
    """Paths of all pages, relative to the repository."""
    found = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    found += [ROOT / name / "README.md" for name in ("checkpoints", "data")]
    found += (ROOT / "docs").rglob("*.md")
    found += (ROOT / "examples").rglob("*.md")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def without_folders(page: str, text: str) -> str:
    """The text of a page whose links to folders lead to pages, or are plain text."""

    def mended(link: re.Match[str]) -> str:
        label, target = link[1], link[2]
        path = (ROOT / page).parent / target
        if ":" in target or not path.is_dir():
            return link[0]
        readme = f"{target.rstrip('/')}/README.md"
        return f"[{label}]({readme})" if (path / "README.md").exists() else label

    return LINK.sub(mended, text)


def lay_out(folder: Path) -> None:
    """Write all pages, and the files that they link to, into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages():
        text = without_folders(page, (ROOT / page).read_text())
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text)
        for _, target, _ in LINK.findall(text):
            path = ((ROOT / page).parent / target).resolve()
            if ":" in target or path.suffix == ".md" or not path.is_file():
                continue
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    site = folder / "docs" / "site"
    shutil.copytree(ROOT / "docs" / "site", site, ignore=lambda _, names: {"requirements.txt"})


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]).resolve())
