"""What the documents show works: Python blocks run, commands parse, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from edgefold.cli.main import COMMANDS, build_parser

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("checkpoints/README.md", "data/README.md")),
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(rf"\bedgefold ((?:{'|'.join(COMMANDS)})\b[^|'\"`#&;>\n]*)")


def documents() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def python_blocks() -> list[tuple[str, str]]:
    return [
        (name, code)
        for name in documents()
        for language, code in BLOCK.findall(text_of(name))
        if language == "python"
    ]


def commands() -> list[tuple[str, str]]:
    """Every command with arguments, in blocks and between backticks; a bare name is prose."""
    found = []
    for name in documents():
        text = text_of(name)
        shown = [code.replace("\\\n", " ") for _, code in BLOCK.findall(text)]
        shown += re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
        words = [match for part in shown for match in COMMAND.findall(part)]
        found += [(name, command.strip()) for command in words if " " in command.strip()]
    return found


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bundles/co2, exported from the shipped checkpoint, and data/."""
    pytest.importorskip("torch")
    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.checkpoints import load_model

    folder = tmp_path_factory.mktemp("readme")
    model, config = load_model(ROOT / "checkpoints" / "series-co2")
    export_bundle(model, config["task"], folder / "bundles" / "co2", ExportConfig(parity_steps=128))
    (folder / "data").symlink_to(ROOT / "data")
    return folder


@pytest.mark.parametrize(("name", "code"), python_blocks(), ids=lambda text: text[:24])
def test_python_in_the_documents_runs(name: str, code: str, demo_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=demo_folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{name}: {done.stderr}"
    assert "passed over" not in done.stdout


def test_the_readme_shows_python_and_commands() -> None:
    assert any(name == "README.md" for name, _ in python_blocks())
    shown = {command.split()[0] for name, command in commands() if name == "README.md"}
    assert shown == set(COMMANDS)


@pytest.mark.parametrize(("name", "command"), sorted(set(commands())))
def test_commands_in_the_documents_parse(name: str, command: str) -> None:
    argv = shlex.split(command)
    build_parser(argv).parse_args(argv)


@pytest.mark.parametrize("name", documents())
def test_links_lead_somewhere(name: str) -> None:
    text = BLOCK.sub("", text_of(name))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path = (ROOT / name).parent / target.partition("#")[0]
        assert path.exists(), f"{name} links to {target}, which is not there"
