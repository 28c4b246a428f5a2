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
FILE_NAME = re.compile(r"# (\w+\.py)\n")
COMMAND = re.compile(  # up to a pipe or a redirection; quoted words may hold anything
    rf"\bedgefold ((?:{'|'.join(COMMANDS)})\b(?:'[^'\n]*'|[^|'\"`#&;>\n])*)"
)


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


def shown_files() -> dict[str, str]:
    """Python blocks that are files: their first line is a comment with the name."""
    named = [(FILE_NAME.match(code), code) for _, code in python_blocks()]
    return {match[1]: code for match, code in named if match}


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data/, the files that the documents show, and bundles of their models."""
    pytest.importorskip("torch")
    from edgefold.export import ExportConfig, export_bundle
    from edgefold.train import create_model, load_model

    folder = tmp_path_factory.mktemp("readme")
    (folder / "data").symlink_to(ROOT / "data")
    for file, code in shown_files().items():
        (folder / file).write_text(code)
    config = ExportConfig(parity_steps=128)
    model, run = load_model(ROOT / "checkpoints" / "series-co2")
    export_bundle(model, run["task"], folder / "bundles" / "co2", config)
    for name, spec in (("mine", "my_model.py:MyModel"), ("level", "level.py:Level")):
        model = create_model(f"{folder}/{spec}")
        export_bundle(model, {"name": "untrained"}, folder / "bundles" / name, config)
    return folder


@pytest.mark.one_case
@pytest.mark.parametrize(("name", "code"), python_blocks(), ids=lambda text: text[:24])
def test_python_in_the_documents_runs(name: str, code: str, demo_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=demo_folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{name}: {done.stderr}"
    assert "skipped" not in done.stdout


def test_the_readme_shows_python_and_commands() -> None:
    assert any(name == "README.md" for name, _ in python_blocks())
    shown = {command.split()[0] for name, command in commands() if name == "README.md"}
    assert shown == set(COMMANDS)


def test_the_readmes_table_and_the_help_have_one_order() -> None:
    table = re.findall(r"^\| `(\w+)` \|", text_of("README.md"), re.MULTILINE)
    assert [name for name in table if name in COMMANDS] == list(COMMANDS)


@pytest.mark.parametrize("spec", ["running_mean.py:RunningMean", "my_model.py:MyModel"])
def test_the_documents_models_keep_the_contract(spec: str, demo_folder: Path) -> None:
    from edgefold.export import Sizes, verify
    from edgefold.train import create_model

    model = create_model(f"{demo_folder}/{spec}")
    assert verify(model, Sizes(chunk=8, targets=4, streams=2), n_steps=100).passed


def test_the_documents_model_takes_the_documents_task(demo_folder: Path) -> None:
    import torch

    from edgefold.train import create_model, load_class

    model = create_model(f"{demo_folder}/my_model.py:MyModel")
    task = load_class(f"{demo_folder}/my_task.py:MyTask")()
    batch = task.training_batch(3, torch.Generator())
    found = model(batch.x_context, batch.y_context, batch.x_target)
    assert found["mean"].shape == batch.y_target.shape


@pytest.mark.parametrize(("name", "command"), sorted(set(commands())))
def test_commands_in_the_documents_parse(
    name: str,
    command: str,
    demo_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(demo_folder)  # `train` reads the options of a user's task from its file
    argv = shlex.split(command)
    if not {"-h", "--help"} & set(argv):
        build_parser(argv).parse_args(argv)
        return
    with pytest.raises(SystemExit) as stop:  # argparse prints the help and exits
        build_parser(argv).parse_args(argv)
    assert stop.value.code == 0, capsys.readouterr().err
    assert capsys.readouterr().out.startswith(f"usage: edgefold {argv[0]}")


@pytest.mark.parametrize("name", documents())
def test_links_lead_somewhere(name: str) -> None:
    text = BLOCK.sub("", text_of(name))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path = (ROOT / name).parent / target.partition("#")[0]
        assert path.exists(), f"{name} links to {target}, which is not there"
