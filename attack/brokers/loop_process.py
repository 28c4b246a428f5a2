"""Run `edgefold run` in a fork that has everything imported, and let it kill itself at a call.

In the fork the pauses before a new connection are shorter than in a true run, so that a schedule
with many cuts takes seconds.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from attack.brokers.servers import die_with_parent
from edgefold.cli.main import main
from edgefold.runtime.sources import jetstream_feed

PRELOADED = (
    *("edgefold.cli.commands.run", "edgefold.cli.loop.run_progress", "edgefold.cli.faster"),
    *(
        "edgefold.cli.forecasting",
        "edgefold.cli.text.sensor_forecasts",
        "edgefold.cli.text.sensors",
    ),
    *("edgefold.devices.nvidia", "edgefold.runtime.backends.onnxruntime_cpu"),
    *("edgefold.runtime.loop.adapters", "edgefold.runtime.loop.loop"),
    *("edgefold.runtime.rows.detect.columns", "edgefold.runtime.sinks.output_file"),
    *("edgefold.runtime.sources.broker_source", "edgefold.runtime.sources.input_file"),
    *("edgefold.runtime.stream.stream", "importlib.metadata", "numpy.fft", "numpy.ma"),
    *("nats", "nats.errors", "nats.js.api", "nats.js.errors"),
    *("paho.mqtt.client", "paho.mqtt.properties", "paho.mqtt.subscribeoptions"),
)
"""Modules that the command imports when it runs; a fork then has them."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.03, 0.3
STACKS_S = 1.0
CALLS = ("write", "pwrite", "fsync", "fdatasync", "replace", "rename", "ftruncate")
"""Functions of `os` that change the disk or wait for it."""
MOMENTS = ("before", "within", "behind")


@dataclass(frozen=True, slots=True)
class Death:
    """Says at which call a process kills itself.

    Attributes:
        k: The number of the call, among those that change the disk and acknowledgements.
        moment: One of `MOMENTS`; within a write, half of it reaches the file.
    """

    k: int
    moment: str


class LoopProcess:
    """Holds one process of a run.

    Args:
        words: The arguments of `edgefold`.
        errors: The file of its messages, to which it appends.
        death: The call at which it kills itself; None for none.

    Attributes:
        death: The call at which it kills itself, or None.
        code: The exit code; negative for a signal, None while it runs.
    """

    def __init__(self, words: Sequence[str], errors: Path, death: Death | None = None):
        self.death = death
        self.code: int | None = None
        for name in PRELOADED:
            import_module(name)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _run(words, errors, death)

    @property
    def is_running(self) -> bool:
        """Return whether the process runs still."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process runs; SIGKILL is waited for."""
        if self.is_running:
            os.kill(self.pid, number)
            if number == signal.SIGKILL:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def tell_stacks(self) -> None:
        """Let a process that hangs write what its threads do, then kill it."""
        self.signal(signal.SIGUSR2)
        time.sleep(STACKS_S)
        self.signal(signal.SIGKILL)


def _run(words: Sequence[str], errors: Path, death: Death | None) -> None:
    """Run the command in this fork, and end the process."""
    code = 70
    try:
        die_with_parent()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        handle = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.closerange(3, 1024)  # connections of the parent, which must be able to end them
        sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1) for n in (1, 2))
        faulthandler.register(signal.SIGUSR2)
        _quicken()
        if death is not None:
            _die_at(death)
        code = int(main(list(words)))
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _quicken() -> None:
    """Shorten the pauses before new connections."""
    from paho.mqtt.client import Client

    true_set = Client.reconnect_delay_set

    def often(self: Any, *_: Any) -> None:
        true_set(self, FIRST_DELAY_S, LONGEST_DELAY_S)  # type: ignore[arg-type]

    Client.reconnect_delay_set = often  # type: ignore[method-assign, assignment]
    jetstream_feed.AGAIN_S = FIRST_DELAY_S
    jetstream_feed.HEARTBEAT_S, jetstream_feed.SILENCE_S = 0.5, 1.5
    jetstream_feed.REQUEST_S = 3.0


def _die_at(death: Death) -> None:
    """Kill this process at the k-th of the calls that change the disk or acknowledge."""
    from paho.mqtt.client import Client

    count = 0

    def wrapped(true: Callable[..., Any], is_write: bool) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal count
            if is_write and args[0] <= 2:
                return true(*args, **named)
            count += 1
            if count != death.k:
                return true(*args, **named)
            if death.moment == "within" and is_write:
                true(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
            elif death.moment == "behind":
                true(*args, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name), name in ("write", "pwrite")))
    Client.ack = wrapped(Client.ack, False)  # type: ignore[method-assign]
