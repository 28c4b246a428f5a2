"""A loop that would receive its own messages is refused."""

from __future__ import annotations

import pytest

from edgefold.runtime.brokers.own_messages import refuse_own_messages
from edgefold.runtime.errors import OutputError


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("mqtt://h/#", "mqtt://H:1883/out"),
        ("mqtt://h/a/+/b", "mqtt://h/a"),
        ("mqtt://h/x,out/+", "mqtt://h/out"),
        ("mqtt://h/out", "mqtt://h/out"),
        ("nats://h/plant.>", "nats://h/plant.out"),
        ("nats://h/*.out", "nats://h/plant.out"),
    ],
)
def test_an_output_below_an_input_is_refused(source: str, output: str) -> None:
    with pytest.raises(OutputError, match="would learn from its own messages"):
        refuse_own_messages(source, [("--output", None), ("--alarms", output)])


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("mqtt://h/home/#", "mqtt://h/out"),
        ("mqtt://h/#", "mqtt://other/out"),
        ("mqtt://h:1/#", "mqtt://h:2/out"),
        ("mqtt://h/home", "mqtt://h/home/out"),
        ("mqtt://h/#", "nats://h:1883/out"),
        ("mqtt://h/#", "out.csv"),
        ("in.csv", "mqtt://h/out"),
        ("-", None),
    ],
)
def test_other_topics_brokers_and_files_are_taken(source: str, output: str | None) -> None:
    refuse_own_messages(source, [("--output", output)])
