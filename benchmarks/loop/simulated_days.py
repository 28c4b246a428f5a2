"""Does a loop hold for simulated months, with faults of its rows, its process and its disk?

    rows of 30 days, as fast as they are taken ──> pipe ──> `edgefold run sensors` ──> output, ...
         ^ sent again from the row that the snapshot does not know          killed, stopped, paused,
                                                                            disk full, power cut

    python -m benchmarks simulated_days [--days 30] [--hz 10] [--folder DIR]

The real command learns every row of the days; times in the rows advance as on a device. On
most days it is killed twice, stopped and paused, its input ends and falls silent, and its disk
fills up, is read-only, or loses its power with everything that was not forced to it. In the middle
third of the days its process stays, so that memory could grow with the rows. What each row must
become is known (`simulated_rows`), and is compared exactly: counts by kind, and each line of the
output. On some days the rows between two ends are learned again by a loop without an interruption,
from a copy of the snapshot, without the lines that cannot be read: state, output and alarms are
compared bit for bit.

The disk is an ext4 of its own behind a loop device. Without root, the size of files is limited
where the disk would be full, and its other faults are left out, which the table says. After
Ctrl-C the day is finished, and what was measured is recorded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.loop.simulated_rows import START_S
from benchmarks.loop.simulated_run import DAYS, HZ, QUICK, Plan, SimulatedRun
from benchmarks.loop.small_disk import small_disk
from benchmarks.record import Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.tables import as_text
from edgefold.devices.budget.flash import PIPE, FlashBudget, FlashDemand, judge_flash
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.stop_signal import StopSignal

QUESTION = "Does a loop hold for weeks of rows, with faults of its rows, process and disk?"
DISK_BYTES = 96 << 20
GROWTH_BYTES = 256 * 1024
FLASH_PERCENT = 10.0


def predicted(plan: Plan, hz: float) -> FlashBudget:
    """Return what `edgefold budget --flash` predicts of the storage, at this rate."""
    row = b"%.2f,%.3f" % (START_S, 20.0)
    demand = FlashDemand(32 * 10**9, hz, source=PIPE, row_bytes=len(row))
    return judge_flash(load_manifest(shipped_bundle("sensors")), demand, (plan.every, 60.0), (), ())


def measure(plan: Plan, folder: Path, stop: Callable[[], bool]) -> dict[str, Any]:
    """Run all days, or until the end of the day in which `stop` returns True."""
    with (
        tempfile.TemporaryDirectory(prefix="edgefold-days-") as memory,
        small_disk(folder, DISK_BYTES) as disk,
    ):
        place = disk.place / "loop" if disk else folder / "loop"
        place.mkdir()
        run = SimulatedRun(plan, place, Path(memory), disk)
        try:
            for number in range(plan.n_days):
                if stop():
                    break
                run.go(number)
                day = run.days[-1]
                progress(
                    f"day {number + 1} of {plan.n_days}: {day['n_rows']:,} rows in "
                    f"{day['taken_s']:.0f} s, {day['anonymous_bytes'] / 1e6:.2f} MB"
                )
            run.conclude()
        finally:
            run.close()
    return {
        **{name: getattr(plan, name) for name in ("hz", "day_s", "every", "part_bytes")},
        "n_planned": plan.n_days,
        "has_disk": disk is not None,
        "days": run.days,
        **asdict(run.totals),
        "n_output_lines": run.n_output_lines,
        "predicted": flash_figures(plan, run.days),
    }


def flash_figures(plan: Plan, days: list[dict[str, Any]]) -> dict[str, float]:
    """Return the predicted bytes of these rows, and of a day at the rate of a device."""
    rate = sum(day["n_rows"] for day in days) / sum(day["taken_s"] for day in days)
    fast, slow = predicted(plan, rate).asked, predicted(plan, plan.hz).asked
    return {
        "bytes_per_row": fast.process_bytes / (rate * 86_400),
        "process_bytes_per_day": slow.process_bytes,
        "device_bytes_per_day": slow.device_bytes,
        "flash_years": slow.flash_years,
    }


def growth_bytes(days: list[dict[str, Any]]) -> int:
    """Return the growth of memory from the second to the last of the days of one process."""
    name = "anonymous_bytes"
    calm = [day[name] for day in days if day["is_calm"]] or [days[-1][name]]
    return int(calm[-1] - calm[min(1, len(calm) - 1)])


def off_by(data: Mapping[str, Any], days: list[dict[str, Any]]) -> float:
    """Return how far the prediction is from what was written in these days, as a share of it."""
    n_rows, written = (sum(day[name] for day in days) for name in ("n_rows", "written_bytes"))
    return float(data["predicted"]["bytes_per_row"] * n_rows / written - 1) if written else 0.0


def requirements(data: Mapping[str, Any]) -> list[Requirement]:
    """Return the project's demands."""
    days, totals = data["days"], data
    calm = [day for day in days if day["is_calm"]]
    spread = {
        name: max(day[name] for day in days) - min(day[name] for day in days)
        for name in ("n_descriptors", "n_threads")
    }
    parts = {"all days": days, **({"days without restarts": calm} if calm else {})}
    stated = 100 * abs(totals["stated_bytes"] / max(totals["counted_bytes"], 1) - 1)
    return [
        at_most("counts that differ from what was sent", totals["n_wrong_counts"], 0, ""),
        at_most("lives with another end than due", totals["n_wrong_ends"], 0, ""),
        at_most(
            "stretches that differ from a loop without interruption",
            *(totals["n_differing"], 0, ""),
        ),
        at_most(
            "growth of memory, from the second day of the process that stays on",
            *(growth_bytes(days) / 1024, GROWTH_BYTES / 1024, "KiB"),
        ),
        at_most("spread of open descriptors at the ends of days", spread["n_descriptors"], 0, ""),
        at_most("spread of threads at the ends of days", spread["n_threads"], 0, ""),
        *(
            at_most(f"{name}: flash prediction off by", 100 * abs(off_by(data, own)),
                    FLASH_PERCENT, "%")
            for name, own in parts.items()
        ),
        at_most("written bytes by the loop's own metrics off by", stated, 1, "%"),
    ]  # fmt: skip


def main() -> None:
    """Run, print, record."""
    parser = arguments(__doc__ or "", "simulated_days")
    parser.add_argument("--days", type=int, default=DAYS, help=f"default {DAYS}")
    parser.add_argument("--hz", type=float, default=HZ, help=f"rows a second; default {HZ:g}")
    parser.add_argument("--folder", type=Path, help="on a disk; default that of temporary files")
    args = parser.parse_args()
    before = conditions()
    plan = QUICK if args.quick else Plan(args.days, args.hz)
    with (
        tempfile.TemporaryDirectory(prefix="edgefold-days-", dir=args.folder) as folder,
        StopSignal() as stop,
    ):
        data = measure(plan, Path(folder), stop)
    finish(args, "simulated_days", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
