"""The tasks that come with Edgefold, by name; anything else is a user's own `file.py:Class`.

A new task is a file in this folder and a line in `TASKS`.
"""

from __future__ import annotations

from typing import Any

from edgefold.runtime.errors import CheckpointError
from edgefold.train.load import blamed, load_registered
from edgefold.train.tasks.contract import Task

TASKS = {
    "copy": "edgefold.train.tasks.copy:CopyTask",
    "events": "edgefold.train.tasks.events.events:EventsTask",
    "gp": "edgefold.train.tasks.gp:GpTask",
    "hawkes": "edgefold.train.tasks.events.hawkes:HawkesTask",
    "images": "edgefold.train.tasks.images.images:ImageTask",
    "human-activity": "edgefold.train.tasks.sequences.human_activity:HumanActivityTask",
    "sensors": "edgefold.train.tasks.sensors.sensors:SensorsTask",
    "series": "edgefold.train.tasks.series:SeriesTask",
    "sequences": "edgefold.train.tasks.sequences.sequences:SequenceTask",
    "wheel": "edgefold.train.tasks.wheel:WheelTask",
}


def task_class(name: str) -> type[Task]:
    """The class behind a name of `TASKS`, or a user's own: see `load_registered`."""
    return load_registered("task", name, TASKS, Task)


def create_task(name: str, args: Any, kept: dict[str, Any] | None = None) -> Task:
    """The task that a name and its options ask for; see `Task.from_options`.

    Raises:
        ModelError: There is no such class, or a file of the user's own fails; with its line.
        CheckpointError: The kept description lacks what the task needs.
    """
    cls = task_class(name)
    try:
        with blamed(f"making the task {name}", name):
            return cls.from_options(args, kept)
    except KeyError as error:
        if kept is None:
            raise
        raise CheckpointError(
            f"the run's description of its task {name} lacks {error}; restore its config.json "
            "from a copy."
        ) from error
