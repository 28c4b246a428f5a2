"""Find a task by its name in `TASKS`, or as a user's own `file.py:Class`.

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
    """Return the class of the task that has a name in `TASKS`, or of a user's own `file.py:Class`.

    See `load_registered`.
    """
    return load_registered("task", name, TASKS, Task)


def create_task(name: str, args: Any, kept: dict[str, Any] | None = None) -> Task:
    """Make a task from its name and its options; see `Task.from_options`.

    Args:
        name: A name of `TASKS`, or `file.py:Class`.
        args: Options of the task.
        kept: Description of the task that the resumed run stores, if there is one.

    Raises:
        ModelError: There is no such class, or the user's own file fails; the error names its line.
        CheckpointError: The kept description lacks an entry that the task needs.
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
