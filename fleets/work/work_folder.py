"""Keep the results of units in a folder, from which the same command goes on after any stop.

OUT/.work/plan.json        what the results belong to
OUT/.work/lock             held by the process that works
OUT/.work/read-000001      results of units
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefold.runtime.errors import OutputError
from edgefold.runtime.files import lock_file, write_atomic

PLAN, LOCK = "plan.json", "lock"


@contextmanager
def work_folder(
    path: Path, plan: Mapping[str, str], restart: bool = False, option: str = "--restart"
) -> Iterator[Path]:
    """Make or open the folder for the results of a plan, and hold it for a block.

    Args:
        path: The folder.
        plan: What the results depend on: a text for each subject, such as a hash of the files.
        restart: Remove the results of another plan instead of refusing.
        option: The command's option that does so, for messages.

    Yields:
        The folder of the results.

    Raises:
        OutputError: The folder belongs to another plan or holds other files, or another process
            works in it.
    """
    path.mkdir(parents=True, exist_ok=True)
    is_new = not (path / LOCK).exists()
    with lock_file(path / LOCK) as held:
        if not held:
            raise OutputError(f"another process works in {path}; wait for it, or end it.")
        # Only now: between two starts at the same moment the other one's files lie here.
        if not (path / PLAN).exists() and any(entry.name != LOCK for entry in path.iterdir()):
            if is_new:
                (path / LOCK).unlink()
            raise OutputError(f"{path} holds files that are not of this command; move them away.")
        earlier = _plan_of(path)
        if restart or not earlier:
            _empty(path)
        elif earlier != plan:
            changed = [name for name in plan if earlier.get(name) != plan[name]] or ["version"]
            raise OutputError(
                f"{path} holds unfinished work of another plan: it differs in "
                f"{', '.join(changed)}. Give the same command as before to go on, or add {option} "
                "to this one: it drops that work and starts over."
            )
        write_atomic(path / PLAN, json.dumps(dict(plan), indent=1).encode())
        for left in path.glob("*.tmp"):
            left.unlink(missing_ok=True)
        yield path


def missing_folders(path: Path) -> list[Path]:
    """Return the folders above a path that do not exist, the inner ones first."""
    return [folder for folder in path.parents if not folder.exists()]


def remove_work(path: Path, above: Sequence[Path] = ()) -> None:
    """Remove the folder and all in it, and those of the folders above it that are empty."""
    shutil.rmtree(path, ignore_errors=True)
    for folder in above:
        with suppress(OSError):  # it holds something
            folder.rmdir()


def _plan_of(path: Path) -> dict[str, str]:
    """Return the plan of what lies in the folder; {} if there is none, or it is damaged."""
    try:
        plan = json.loads((path / PLAN).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(text) for name, text in plan.items()} if isinstance(plan, dict) else {}


def _empty(path: Path) -> None:
    for left in path.iterdir():
        if left.name == LOCK:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()
