"""The tasks that come with Edgefold, by name; anything else is a user's own `file.py:Class`.

A new task is a file in this folder and a line in `TASKS`.
"""

from __future__ import annotations

from edgefold.train.load import load_registered
from edgefold.train.tasks.contract import Task

TASKS = {
    "gp": "edgefold.train.tasks.gp:GpTask",
    "series": "edgefold.train.tasks.series:SeriesTask",
}


def task_class(name: str) -> type[Task]:
    """The class behind a name of `TASKS`, or a user's own: see `load_registered`."""
    return load_registered("task", name, TASKS, Task)
