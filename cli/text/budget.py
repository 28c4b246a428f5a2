"""Write answers of `edgefold budget` as text, and give each verdict its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.text.numbers import format_bytes, format_energy, format_time
from edgefold.devices.budget.flash import AMPLIFICATION, ENDURANCE_CYCLES
from edgefold.devices.budget.microcontroller import SEARCH
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.sensors.clock.seasons import LOOK_EVERY

if TYPE_CHECKING:
    from edgefold.devices.budget.budget import Budget
    from edgefold.devices.budget.checks import Demand
    from edgefold.devices.budget.flash import FlashBudget
    from edgefold.devices.budget.microcontroller import MicrocontrollerBudget
    from edgefold.devices.budget.roofline import Range

    Answers = dict[str, dict[str, Budget | MicrocontrollerBudget]]

EXIT_CODES = {
    "FITS": ExitCode.DONE,
    "DOES NOT FIT": ExitCode.MISFIT,
    "UNSURE": ExitCode.UNSURE,
}
SOURCE_WORDS = {
    "file": "file",
    "pipe": "pipe",
    "mqtt": "broker (MQTT)",
    "jetstream": "broker (JetStream)",
}
FLASH_COLUMNS = {
    "every": 8,
    "sync": 8,
    "group": 7,
    "snapshots": 11,
    "output": 11,
    "journal": 11,
    "file system": 13,
    "in all": 11,
    "years": 8,
}
"""Columns of the table on flash, with their widths."""
WIDTH = 12  # of the checks' names


def board_table() -> str:
    """Return a table with a line for each board and microcontroller; unknown figures are dashes."""
    from edgefold.devices.boards.board import (
        board_names,
        load_board,
        load_microcontroller,
        microcontroller_names,
    )

    on_gpu = {info.board_key for info in BACKENDS.values() if info.device == "gpu"}
    lines = [f"{'name':<28}{'memory':>8}  {'bandwidth':>10}  {'a core':>12}  {'GPU':>12}  TensorRT"]
    for name in board_names():
        board = load_board(name)
        memory, bandwidth = board.memory.total_bytes.value, board.memory.bandwidth_bytes_per_s.value
        rate = board.cpu.rate()
        gpu = board.gpu.dense_operations_per_s["float32"].value if board.gpu else None
        cells = (
            f"{memory / 2**30:g} GiB" if memory else "-",
            f"{bandwidth / 1e9:g} GB/s" if bandwidth else "-",
            f"{rate / 1e9:.3g} GFLOP/s" if rate else "-",
            f"{gpu / 1e12:.2f} TFLOP/s" if gpu else "-",
            "in scope" if any(board.backends[key].in_scope for key in on_gpu) else "no",
        )
        lines.append(
            f"{name:<28}{cells[0]:>8}  {cells[1]:>10}  {cells[2]:>12}  {cells[3]:>12}  {cells[4]}"
        )
    lines += ["", f"{'microcontroller':<28}{'RAM':>8}  {'flash':>10}  {'clock':>12}  floats"]
    for name in microcontroller_names():
        part = load_microcontroller(name)
        ram, flash, clock = (
            each.value or 0 for each in (part.ram_bytes, part.flash_bytes, part.cpu.clock_hz)
        )
        floats = "by software" if part.cpu.fpu == "none" else f"{part.cpu.fpu} precision"
        lines.append(
            f"{name:<28}{f'{ram / 2**10:g} KiB':>8}  {f'{flash / 2**20:g} MiB':>10}  "
            f"{f'{clock / 1e6:g} MHz':>12}  {floats}"
        )
    lines += [
        "",
        "Peak rates in float32; `--show NAME` tells each figure's source, and how sure it is.",
    ]
    return "\n".join(lines)


def describe(budget: Budget | MicrocontrollerBudget) -> str:
    """Return the answer for one bundle and one board as text for a terminal."""
    from edgefold.devices.budget.budget import Budget

    if isinstance(budget, Budget):
        runner, memory, modes = budget.demand.backend, memory_lines(budget), _mode_lines(budget)
    else:
        runner, memory, modes = "as C", _firmware_lines(budget), []
    lines = [f"{budget.bundle} ({budget.precision}) on {budget.title}, {runner}"]
    lines += [f"state     {budget.keeps}", ""] if budget.keeps else [""]
    lines += [*memory, *_time_lines(budget), *modes]
    if isinstance(budget, Budget) and budget.flash:
        lines += ["", *flash_lines(budget.flash)]
    lines += ["", f"{'figures':<{WIDTH}}{show_figures(budget.figures)}"]
    for check in budget.checks:
        lines.append(f"{check.name:<{WIDTH}}{check.verdict}: {check.finding}")
        lines += [f"{'':<{WIDTH}}change: {check.change}"] if check.change else []
    lines += ["", f"{budget.verdict}   (a prediction from data sheets: no board was measured)"]
    return "\n".join(lines)


def flash_lines(flash: FlashBudget) -> list[str]:
    """Return a table of what loops with several settings write each day, and how long flash lasts.

    The settings of the command are marked.
    """
    demand = flash.demand
    sensors = f"{demand.n_streams} sensors" if demand.n_streams > 1 else "one sensor"
    parts = [f"{demand.rate_hz:g} rows/s of {sensors} from a {SOURCE_WORDS[demand.source]}"]
    parts.append(f"a snapshot of {format_bytes(flash.snapshot_file_bytes)}")
    if demand.has_output:
        parts.append(f"{flash.output_row_bytes:.0f} B a row of output")
    if demand.processes > 1:
        parts.append(f"{demand.processes} loops")
    journaled = any(setting.sync_s is not None for setting in flash.settings)
    shown = [
        name for name in FLASH_COLUMNS if journaled or name not in ("sync", "group", "journal")
    ]
    lines = [f"flash, predicted: {', '.join(parts)}", "written a day"]
    lines.append("  " + "".join(f"{name:>{FLASH_COLUMNS[name]}}" for name in shown))
    for setting in flash.settings:
        cells = {
            "every": f"{setting.every:,}",
            "sync": f"{setting.sync_s or 0:g} s",
            "group": f"{setting.group}",
            "snapshots": format_bytes(setting.snapshot_bytes),
            "output": format_bytes(setting.output_bytes),
            "journal": format_bytes(setting.journal_bytes),
            "file system": format_bytes(setting.file_system_bytes),
            "in all": format_bytes(setting.device_bytes),
            "years": _years(setting.flash_years),
        }
        line = "".join(f"{cells[name]:>{FLASH_COLUMNS[name]}}" for name in shown)
        lines.append(f"  {line}{'  <- your settings' * setting.is_asked}")
    lines.append(
        f"  years until {format_bytes(demand.flash_bytes)} are worn: {demand.endurance_cycles:,} "
        f"cycles, write amplification {demand.write_amplification:g}"
    )
    if journaled:
        lines.append(
            f"  group: messages that are forced to the disk together, {demand.window // 2} at most "
            f"with --window {demand.window}"
        )
    assumed = {
        "cycles": demand.endurance_cycles == ENDURANCE_CYCLES,
        "amplification": demand.write_amplification == AMPLIFICATION,
    }
    if names := " and ".join(name for name, is_default in assumed.items() if is_default):
        lines.append(f"  assumed: the {names}, unless the vendor states the same")
    lines.append("  file system: blocks that ext4 adds; whatever else writes there is not counted")
    return lines


def _years(years: float) -> str:
    return ">1,000" if years > 1000 else f"{years:.3g}"


def _firmware_lines(budget: MicrocontrollerBudget) -> list[str]:
    lines = []
    for title, parts in (("flash", budget.flash), ("RAM", budget.ram)):
        lines.append(f"{title:<28}at least, at most")
        for part in parts:
            low, high = f"{part.low_bytes / 1e3:.1f}", f"{part.high_bytes / 1e3:.1f} kB"
            span = high if part.low_bytes == part.high_bytes else f"{low} to {high}"
            lines.append(f"  {part.name:<26}{span}")
    return lines


def _time_lines(budget: Budget | MicrocontrollerBudget) -> list[str]:
    lines = ["", "time of a call              at least, at most"]
    lines += [f"  {name:<26}{show_range(taken)}" for name, taken in budget.steps.items()]
    lines.append(f"  {'an arrival':<26}{show_range(budget.arrival)}")
    every = budget.demand.predict_every
    predicts = "predict" if every == 1 else f"1/{every} of a prediction"
    if SEARCH in budget.steps:
        lines.append(
            f"  an arrival: a step, and in one row of {LOOK_EVERY} the search; after a gap"
        )
        lines.append("  a step more for each missing row")
    else:
        lines.append(f"  an arrival: {predicts} (refresh, query of one), then update")
    if budget.arrival.reason:
        lines.append(f"  no upper bound: {budget.arrival.reason}")
    return lines


def memory_lines(budget: Budget) -> list[str]:
    """Return lines on the bytes of memory: needed, enough to run well, and shown by `top`.

    Further lines give the parts of the needed memory.
    """
    footprint = budget.footprint
    kind = "at least" if footprint.unmeasured else "predicted"
    n = footprint.n_processes
    program = f"{n} processes of {footprint.program}" if n > 1 else footprint.program
    low, high = (f"{n_bytes / 1e6:.0f}" for n_bytes in footprint.looks_like_bytes)
    shared = "; files counted once" if n > 1 else ""
    lines = [
        f"memory, {kind}, of {program}{shared}",
        f"  {'needed':<26}{format_bytes(footprint.needed_bytes)}  with less it is killed",
        f"  {'to run well':<26}{format_bytes(footprint.to_run_well_bytes)}  with less it reads its "
        "libraries again and again",
        f"  {'looks like':<26}{low} to {high} MB  in `top`, by how the libraries lie in the page "
        "cache",
    ]
    lines += [
        f"  {f'{program} needs':<26}{format_bytes(n_bytes)}{'  each' if n > 1 else ''}"
        for program, n_bytes in budget.needed_by.items()
        if program != footprint.program
    ]
    lines.append("parts of what is needed")
    lines += [f"  {part.name:<26}{format_bytes(part.needed_bytes)}" for part in footprint.parts]
    for part in footprint.unmeasured:
        most = format_bytes(part.most_bytes)
        lines.append(f"  not measured              {part.name}: at most {most}, by what others")
        lines.append(f"                            report: {part.source}")
    lines.append(f"  constants measured on {footprint.baseline}")
    return lines


def show_figures(figures: dict[str, str]) -> str:
    """Return how many figures are confirmed, derived, unconfirmed or unknown; name the unconfirmed.

    `figures` has the status of each of a board's figures by its name.
    """
    from edgefold.devices.boards.board import STATUSES, UNCONFIRMED

    statuses = list(figures.values())
    counted = ", ".join(f"{statuses.count(each)} {each}" for each in STATUSES if each in statuses)
    names = [name for name, status in figures.items() if status == UNCONFIRMED]
    return (counted or "none is known") + (f": {', '.join(names)}" if names else "")


def _mode_lines(budget: Budget) -> list[str]:
    if not budget.modes:
        return []
    rate = budget.demand.rate_hz
    head = f"{'power mode':<18}{'watts':>6}   {'an arrival':<22}"
    head += f"{f'duty at {rate:g} Hz':<20}" if rate else ""
    lines = ["", f"{head}energy of an arrival (estimate)"]
    for mode in budget.modes:
        watts = f"{mode.power_w:g}" if mode.power_w else "-"
        line = f"  {mode.name:<16}{watts:>6}   {show_range(mode.arrival):<22}"
        if mode.duty:
            high = "?" if mode.duty[1] is None else f"{mode.duty[1]:.1%}"
            line += f"{f'{mode.duty[0]:.1%} to {high}':<20}"
        most_j = mode.energy_j[1] if mode.energy_j else None
        lines.append(line + ("unknown" if most_j is None else f"up to {format_energy(most_j)}"))
    lines.append(
        "  energy: the mode's watts times the arrival's time, from above; not a measurement"
    )
    return lines


def show_range(taken: Range) -> str:
    """Return both ends of a range of times as text; `?` or unknown where an end has no bound."""
    if not taken.low_s and taken.high_s is None:
        return "unknown"
    high = "?" if taken.high_s is None else format_time(taken.high_s)
    return f"{format_time(taken.low_s)} to {high}"


def asked(demand: Demand) -> str:
    """Return the demand in words."""
    words = [f"{demand.backend}"]
    if demand.memory_bytes is not None:
        words.append(f"at most {format_bytes(demand.memory_bytes)}")
    if demand.processes > 1:
        words.append(f"{demand.processes} processes")
    if demand.rate_hz is not None:
        every = "each" if demand.predict_every == 1 else f"every {demand.predict_every}"
        words.append(f"{demand.rate_hz:g} arrivals a second, a prediction for {every}")
    if demand.power_w is not None:
        words.append(f"at most {demand.power_w:g} W")
    return "; ".join(words)


def sweep_table(answers: Answers, demand: Demand) -> str:
    """Return a table with a line for each board and bundle, and the numbers of verdicts."""
    from edgefold.devices.boards.board import UNCONFIRMED
    from edgefold.devices.budget.budget import Budget

    names = [len(name) for row in answers.values() for name in row]
    wide, long = max(map(len, answers)) + 2, max(names) + 2
    lines = [
        f"asked: {asked(demand)}",
        "",
        f"{'board':<{wide}}{'bundle':<{long}}{'verdict':<14}{'needed':>9}  {'to run well':>11}  "
        f"{'update':<20}{'an arrival':<22}why not",
    ]
    for board, row in answers.items():
        for name, budget in row.items():
            reasons = "; ".join(c.name for c in budget.checks if c.verdict != "FITS")
            update = next(budget.steps[step] for step in ("update", "step") if step in budget.steps)
            if isinstance(budget, Budget):
                sizes = (budget.footprint.needed_bytes, budget.footprint.to_run_well_bytes)
            else:
                sizes = (budget.ram_bytes, budget.flash_bytes)
            lines.append(
                f"{board:<{wide}}{name:<{long}}{budget.verdict:<14}{format_bytes(sizes[0]):>9}  "
                f"{format_bytes(sizes[1]):>11}  {show_range(update):<20}"
                f"{show_range(budget.arrival):<22}{reasons}".rstrip()
            )
    counts = [budget.verdict for row in answers.values() for budget in row.values()]
    counted = ", ".join(f"{counts.count(verdict)} {verdict}" for verdict in EXIT_CODES)
    if not all(isinstance(budget, Budget) for row in answers.values() for budget in row.values()):
        lines += ["", "of microcontrollers: RAM and flash at most, in the columns of memory"]
    lines += ["", f"{counted}; predictions from data sheets: no board was measured"]
    for board, row in answers.items():
        recalled = {n for b in row.values() for n, how in b.figures.items() if how == UNCONFIRMED}
        if recalled:
            lines.append(f"unconfirmed of {board}: {', '.join(sorted(recalled))}")
    return "\n".join(lines)
