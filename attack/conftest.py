"""The subjects of a whole run, exported once, and the table at its end."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from attack.subjects import export_subjects
from attack.summary import RECORD, table


@pytest.fixture(scope="session")
def subjects() -> Iterator[Path]:
    """A folder of bundles, in memory where that is possible: every case writes some files."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="edgefold-attack-", dir=memory) as folder:
        export_subjects(Path(folder))
        yield Path(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts of all kinds that the record holds."""
    if RECORD.exists():
        terminalreporter.write_line(f"{table(json.loads(RECORD.read_text()))}\n\nin {RECORD}")
