"""Names of sensors in tables and messages are cut where they differ least."""

from __future__ import annotations

from edgefold.cli.text.streams import NAME_WIDTH, short


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    assert short("zigbee2mqtt/living room/temperature") == "zigbee2mqtt/living room/temperature"
    cut = short("factory/hall 7/line 12/press 3/hydraulics/pressure")
    assert len(cut) == NAME_WIDTH
    assert cut.startswith("factory/hall 7/") and cut.endswith("/pressure") and "..." in cut
