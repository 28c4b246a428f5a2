"""Predict how many bytes a loop writes to flash storage each day, and when that wears it out.

    snapshots, rows of the output ──> pages ───┐ what /proc/self/io counts as write_bytes
    messages ──> groups of the journal ────────┘
                                      + blocks of the file system's own (ext4)
                                      * write amplification inside the storage
                                      ──> years until every cell has had its cycles

Pages follow from how files are written: a snapshot is a new file of whole pages, a group of the
journal has whole blocks, and the last page of the output is written again each time the output is
forced to the disk, or the kernel writes it by itself.

The file system's own blocks are written by the kernel (jbd2 and the flusher) and count for no
process. They were counted at a device of their own: an ext4 with blocks of 4096 bytes behind a loop
device (Linux 6.18), by the sectors written in /sys/block/loop0/stat. With the file system synced
after each file, a replaced file of 133 kB took 21 blocks above its pages, and rows appended and
synced took 8. Between syncs, a file whose inode changes each second costs a commit of 3 blocks
(descriptor, inode, commit) every 6 s: a journal with a group of 4096 bytes a second wrote 6,144
bytes a second; an output that got a row of 141 bytes a second wrote 2,901 bytes, of which 273
counted for the process, and 2,871 are predicted. A file system with larger blocks, or without a
journal of its own, has others.

Years are JEDEC's terabytes written (JESD218), capacity * cycles / write amplification, over the
bytes of a year. Nothing else that writes to the storage is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from edgefold.devices.budget.snapshot_size import output_row_bytes, snapshot_bytes
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.record_fields import Bytes, Count, Hertz, Seconds, one_of, unit
from edgefold.runtime.sources.journal import BLOCK, FILE_BYTES, group_bytes
from edgefold.runtime.sources.message import HEAD

DAY_S, YEAR_DAYS = 86400, 365.25
FILE, PIPE, MQTT, JETSTREAM = "file", "pipe", "mqtt", "jetstream"
SOURCES, BROKERS = (FILE, PIPE, MQTT, JETSTREAM), (MQTT, JETSTREAM)
REPLACED_BLOCKS, SYNCED_BLOCKS, COMMIT_BLOCKS, WRITE_BACK_BLOCKS = 21, 8, 3, 4
"""Blocks of ext4's own for a replaced file, for rows that are synced, for a commit of an inode that
changed in between, and for blocks that the kernel allocates when it writes rows by itself (bitmap
and group descriptor, in the journal and at their place); see the module."""
COMMIT_S, WRITE_BACK_S = 5.0, 30.0
"""Seconds after which ext4 commits a changed inode (mount option commit=), and the kernel writes a
page that a program changed (vm.dirty_expire_centisecs); both are defaults."""
ENDURANCE_CYCLES = 3000
"""Assumed number of times that a cell may be written: 3D TLC flash; vendors of cards state none."""
AMPLIFICATION = 4.0
"""Assumed write amplification: a page of 16 KiB is written for a block of 4 KiB. No card reports
its own."""

BytesPerDay = Annotated[float, unit("B/day")]
Years = Annotated[float, unit("years")]


@dataclass(frozen=True, slots=True)
class FlashDemand:
    """Holds the storage and how the loop is fed, as far as both decide on the bytes written."""

    flash_bytes: Annotated[Bytes, "Capacity of the storage."]
    rate_hz: Annotated[Hertz, "Rows a second, of all sensors together."]
    endurance_cycles: Annotated[Count, "Times that each cell may be written."] = ENDURANCE_CYCLES
    write_amplification: Annotated[
        float, "Bytes that the storage writes inside for each byte that it gets.", unit("ratio")
    ] = AMPLIFICATION
    source: Annotated[str, one_of(*SOURCES), "Kind of the loop's input."] = PIPE
    n_streams: Annotated[Count, "Sensors of the loop."] = 1
    rows_per_message: Annotated[Count, "Rows that a broker's message holds."] = 1
    message_bytes: Annotated[Bytes, "Topic and content of a message."] = 64
    row_bytes: Annotated[Bytes, "Fields of a row that the output repeats, as time and value."] = 26
    has_output: Annotated[bool, "Whether predictions are written to a file."] = True
    window: Annotated[Count, "Messages that the broker sends before they are acknowledged."] = 20
    journal_bytes: Annotated[Bytes, "Size of the journal's two files together."] = 2 * FILE_BYTES
    processes: Annotated[Count, "Loops that write to the storage, all alike."] = 1


@dataclass(frozen=True, slots=True)
class FlashSetting:
    """Holds what a loop writes with one choice of --every and --sync, and how long flash lasts."""

    every: Annotated[Count, "Rows between two snapshots."]
    sync_s: Annotated[
        Seconds | None, "Seconds after which messages are forced to the disk; null without journal."
    ]
    group: Annotated[Count | None, "Messages that are forced to the disk together; null likewise."]
    snapshot_bytes: Annotated[BytesPerDay, "Pages of snapshots."]
    output_bytes: Annotated[BytesPerDay, "Pages of the output."]
    journal_bytes: Annotated[BytesPerDay, "Blocks of the journal of messages."]
    file_system_bytes: Annotated[BytesPerDay, "Blocks of the file system's own, as ext4 has them."]
    process_bytes: Annotated[BytesPerDay, "Pages that /proc/self/io counts for the process."]
    device_bytes: Annotated[BytesPerDay, "All that the storage gets."]
    flash_years: Annotated[Years, "Until each cell was written as often as it may be."]
    is_asked: Annotated[bool, "Whether it is the setting that was asked, which gates judge."]


@dataclass(frozen=True, slots=True)
class FlashBudget:
    """Holds what loops with several settings write to flash, and how long it lasts."""

    demand: FlashDemand
    snapshot_file_bytes: Annotated[Bytes, "Length of a snapshot."]
    output_row_bytes: Annotated[float, "Mean length of a line of the output.", unit("B")]
    settings: Annotated[tuple[FlashSetting, ...], "The settings, those with most bytes first."]

    @property
    def asked(self) -> FlashSetting:
        """Return the setting that was asked."""
        return next(setting for setting in self.settings if setting.is_asked)


def judge_flash(
    manifest: Manifest, demand: FlashDemand, asked: tuple[int, float], others: tuple[int, ...],
    syncs: tuple[float, ...],
) -> FlashBudget:  # fmt: skip
    """Predict the wear of flash for one choice of --every and --sync, and for others beside it.

    Args:
        manifest: Manifest of the bundle.
        demand: The storage, and how the loop is fed.
        asked: Rows between two snapshots and seconds of --sync that are asked.
        others: Further numbers of rows between two snapshots.
        syncs: Further seconds of --sync, which count with a journal only.

    Raises:
        DataError: `edgefold run` does not run this bundle.
    """
    is_journaled = demand.source == MQTT
    by_topic = isinstance(manifest.prediction, SensorForecast) and demand.source in BROKERS
    is_named = demand.n_streams > 1 or by_topic
    n_named = demand.n_streams if is_named else 0
    file_bytes = snapshot_bytes(manifest, n_named, demand.source)
    row_bytes = output_row_bytes(manifest, n_named, demand.row_bytes) if demand.has_output else 0.0
    pairs = sorted(
        {
            (every, sync_s)
            for every in (asked[0], *others)
            for sync_s in (asked[1], *(syncs if is_journaled else ()))
        }
    )
    settings = tuple(_setting(demand, pair, file_bytes, row_bytes, pair == asked) for pair in pairs)
    return FlashBudget(demand, file_bytes, row_bytes, settings)


def _setting(
    demand: FlashDemand, pair: tuple[int, float], file_bytes: int, row_bytes: float, is_asked: bool
) -> FlashSetting:
    every, sync_s = pair
    group = _group(demand, sync_s) if demand.source == MQTT else None
    rows = every if group is None else rows_per_snapshot(demand, every, group)
    period_s = rows / demand.rate_hz
    snapshots = _padded(file_bytes) / period_s
    output = output_bytes(demand, row_bytes, rows) / period_s
    journal = 0.0 if group is None else journal_bytes(demand, rows, group) / period_s
    own = file_system_bytes(demand, rows, group) / period_s
    process = snapshots + output + journal
    a_day = DAY_S * demand.processes
    written_bytes = (process + own) * a_day * YEAR_DAYS
    capacity = demand.flash_bytes * demand.endurance_cycles / demand.write_amplification
    return FlashSetting(
        every=every,
        sync_s=None if group is None else sync_s,
        group=group,
        snapshot_bytes=snapshots * a_day,
        output_bytes=output * a_day,
        journal_bytes=journal * a_day,
        file_system_bytes=own * a_day,
        process_bytes=process * a_day,
        device_bytes=(process + own) * a_day,
        flash_years=capacity / written_bytes,
        is_asked=is_asked,
    )


def output_bytes(demand: FlashDemand, row_bytes: float, rows: float) -> float:
    """Return the bytes of pages that the output takes between two snapshots.

    The last page is written again after each sync, and, where each row is flushed as it comes,
    after each time that the kernel wrote it by itself.
    """
    if not row_bytes:
        return 0.0
    return rows * row_bytes + _n_written(demand, rows) * (BLOCK - 1)


def _n_written(demand: FlashDemand, rows: float) -> float:
    """Return how often the output's last page is written between two snapshots, at least once."""
    if demand.source == FILE:
        return 1.0
    return max(1.0, min(rows, rows / demand.rate_hz / WRITE_BACK_S))


def _group(demand: FlashDemand, sync_s: float) -> int:
    """Return how many messages are forced to the disk together, between two snapshots."""
    arriving = math.ceil(demand.rate_hz / demand.rows_per_message * sync_s - 1e-9)
    return min(max(1, demand.window // 2), max(1, arriving))


def journal_bytes(demand: FlashDemand, rows: float, group: int) -> float:
    """Return the bytes of blocks that the journal takes between two snapshots, `rows` apart.

    A snapshot forces the messages to the disk that have come, so the last group may be smaller.
    """
    whole, rest = divmod(max(1, round(rows / demand.rows_per_message)), group)
    record = HEAD.size + demand.message_bytes
    return whole * group_bytes([record] * group) + (group_bytes([record] * rest) if rest else 0)


def rows_per_snapshot(demand: FlashDemand, every: int, group: int) -> float:
    """Return how many rows lie between two snapshots on average, `every` at most.

    A journal asks for a snapshot from the middle of a file on, if the other file holds messages
    that no snapshot knows.
    """
    bytes_per_row = journal_bytes(demand, every, group) / every
    rows_per_file = demand.journal_bytes // 2 / bytes_per_row
    last, n = 0.0, 1000
    for _ in range(n):
        following_file = math.floor(last / rows_per_file) + 1
        last = min(last + every, (following_file + 0.5) * rows_per_file)
    return last / n


def file_system_bytes(demand: FlashDemand, rows: float, group: int | None) -> float:
    """Return the bytes of blocks of ext4's own between two snapshots; see the module."""
    n_blocks: float = REPLACED_BLOCKS + SYNCED_BLOCKS * demand.has_output
    period_s = rows / demand.rate_hz
    n_changes = 0.0  # of an inode, between two snapshots
    if demand.has_output and demand.source != FILE:  # each row is flushed
        n_changes = rows
    elif group is not None:
        n_changes = rows / demand.rows_per_message / group
    if n_changes:  # a commit follows COMMIT_S after the first change since the one before
        n_blocks += COMMIT_BLOCKS * period_s / (COMMIT_S + period_s / n_changes)
    if demand.has_output and demand.source != FILE:
        n_blocks += WRITE_BACK_BLOCKS * (_n_written(demand, rows) - 1)
    return BLOCK * n_blocks


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // BLOCK) * BLOCK
