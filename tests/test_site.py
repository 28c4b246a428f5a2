"""Every page stands in mkdocs.yml, and the folder of pages that mkdocs gets has no dead link."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from scripts.site_pages import LINK, ROOT, lay_out, pages, without_folders

CONFIGURATION = (ROOT / "mkdocs.yml").read_text()


def named_pages() -> list[str]:
    """The pages of the navigation, in order."""
    return re.findall(r"^ +- .*: (\S+\.md)$", CONFIGURATION.partition("\nnav:\n")[2], re.MULTILINE)


def test_every_page_stands_in_the_navigation_once() -> None:
    assert Counter(named_pages()) == Counter(pages())


def test_every_file_of_docs_is_a_page() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert len(files) > 20 and files <= set(pages())


def test_the_folder_of_pages_has_no_dead_link(tmp_path: Path) -> None:
    lay_out(tmp_path / "pages")
    for page in pages():
        for _, target, _ in LINK.findall((tmp_path / "pages" / page).read_text()):
            if ":" not in target:
                path = (tmp_path / "pages" / page).parent / target
                assert path.is_file(), f"{page} links to {target}, which is not there"


def test_a_link_to_a_folder_leads_to_its_page_or_is_text() -> None:
    text = "[two](../runtime/) [three](https://example.org/a) [four](faq.md#x)"
    mended = "two [three](https://example.org/a) [four](faq.md#x)"
    assert without_folders("docs/faq.md", text) == mended
    assert without_folders("docs/x.md", "[a](examples)") == "[a](examples/README.md)"


def test_the_pages_need_no_network() -> None:
    assert "font: false" in CONFIGURATION
    assert "docs/site/iframe-worker.js" in CONFIGURATION  # else the plugin loads unpkg.com's
    assert "http" not in (ROOT / "docs" / "site" / "iframe-worker.js").read_text()


def test_every_version_of_the_builder_is_pinned() -> None:
    lines = (ROOT / "docs" / "site" / "requirements.txt").read_text().splitlines()
    versions = [line for line in lines if not line.startswith("#")]
    assert versions and all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in versions)


@pytest.mark.long
def test_mkdocs_builds_the_pages_without_a_warning(tmp_path: Path) -> None:
    mkdocs = ROOT / ".venv-site" / "bin" / "mkdocs"
    if not mkdocs.exists():
        pytest.skip("mkdocs is not installed; `make docs-site` installs it")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    lay_out(tmp_path / "build" / "site-pages")
    done = subprocess.run(
        [mkdocs, "build", "--strict"],
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    html = [path.read_text() for path in (tmp_path / "site").rglob("*.html")]
    assert len(html) > len(pages())
    loads = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"?(https?:[^\"> ]+)")
    assert [found for text in html for found in loads.findall(text)] == []
