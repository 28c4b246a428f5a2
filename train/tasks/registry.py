"""The tasks that come with Edgefold, by name; anything else is a user's own `file.py:Class`.

A new task is a file in this folder and a line in `TASKS`.
"""

from __future__ import annotations

from edgefold.runtime.errors import ModelError
from edgefold.train.load import load_class
from edgefold.train.tasks.contract import Task

TASKS = {
    "gp": "edgefold.train.tasks.gp:GpTask",
    "series": "edgefold.train.tasks.series:SeriesTask",
}


def task_class(name: str) -> type[Task]:
    """The class behind a name of `TASKS`, "file.py:Class" or "package.module:Class".

    Raises:
        ModelError: Nothing has this name, or it is not a Task.
    """
    if name not in TASKS and ":" not in name:
        raise ModelError(
            f"no task is called {name!r}; take one of {', '.join(TASKS)}, or your own as "
            "my_task.py:MyTask."
        )
    found = load_class(TASKS.get(name, name))
    if not issubclass(found, Task):
        raise ModelError(f"{name} is not a Task; derive the class from it.")
    return found
