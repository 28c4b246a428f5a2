"""Write a paced profile (measured while rows arrive at fixed rates) as text."""

from __future__ import annotations

from typing import Any

from edgefold.cli.text.numbers import format_energy, format_time
from edgefold.cli.text.validity import validity_lines

WHAT = {
    "row": "predict, then learn (query with its refresh, then update)",
    "step": "one step of the filter",
}
MAX_CLOCKS = 6  # of a line; the record has all


def paced_lines(paced: dict[str, Any]) -> list[str]:
    """Return lines with latency, energy and clocks, and on which backend needs less power."""
    runs = paced["runs"]
    ended = "; ended by Ctrl-C" if paced["interrupted"] else ""
    width = max([len(run["backend"]) for run in runs] + [7])
    head = (
        f"  {'rate':>8}  {'backend':<{width}}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}"
        f"{'wake p50':>10}{'wake p99':>10}{'timer p50':>11}{'timer p99':>11}"
        f"{'late':>7}{'skipped':>9}{'of':>8}{'CPU':>7}"
    )
    lines = [
        f"paced: {WHAT[paced['what']]}, asleep between arrivals{ended}",
        f"  {governor_line(paced['governor'])}",
        *(f"  {line}" for line in disturbance_lines(paced)),
        "",
        head,
        *(f"  {_latency(run, width)}" for run in runs),
        "  p50 to max: from the moment the arrival was due to the answer. wake: from when the "
        "process woke. timer: how late it woke.",
        *(f"  {line}" for line in notes(runs)),
        "",
        *energy_lines(paced, width),
        *clock_lines(runs, width),
    ]
    lines += [f"  {line}" for line in crossing_lines(paced)]
    lines += [f"  not measured: {label}: {why}" for label, why in paced["refused"].items()]
    return lines


def _latency(run: dict[str, Any], width: int) -> str:
    latency = run["latency"]
    due, wake, timer = (latency[name] for name in ("from_due", "from_wake", "timer"))
    times = [due[f"{q}_s"] for q in ("p50", "p90", "p99", "max")]
    share = run["cpu_share"]
    return (
        f"{format_rate(run['rate_hz']):>8}  {run['backend']:<{width}}"
        + "".join(f"{format_time(time_s):>9}" for time_s in times)
        + "".join(f"{format_time(wake[f'{q}_s']):>10}" for q in ("p50", "p99"))
        + "".join(f"{format_time(timer[f'{q}_s']):>11}" for q in ("p50", "p99"))
        + f"{latency['n_late']:>7,}{latency['n_skipped']:>9,}{latency['n']:>8,}"
        + f"{'-' if share is None else f'{share * 100:.1f} %':>7}"
    )


def format_rate(rate_hz: float) -> str:
    """Write a rate of arrivals in Hz."""
    return f"{rate_hz:g} Hz"


def governor_line(governor: dict[str, Any]) -> str:
    """Return a line on governors, power mode and temperatures, and what changed while measuring."""
    before, after = governor["before"], governor["after"]
    names = (
        ("CPU governor", before["cpu_governor"]),
        ("GPU governor", before["gpu_governor"]),
        ("power mode", (before["power_mode"] or {}).get("name")),
    )
    words = [f"{what} {name}" for what, name in names if name]
    degrees = [g["temperature_celsius"] for g in (before, after)]
    if None not in degrees:
        words.append(f"{degrees[0]:.0f} °C before, {degrees[1]:.0f} °C after")
    keys = ("cpu_governor", "gpu_governor", "power_mode")
    moved = [key.replace("_", " ") for key in keys if before[key] != after[key]]
    if moved:
        words.append(f"CHANGED meanwhile: {', '.join(moved)}")
    return "; ".join(words) or "this machine shows no governor and no power mode"


def disturbance_lines(paced: dict[str, Any]) -> list[str]:
    """Return lines on whether and by what the measurement was disturbed, each line once."""
    return list(dict.fromkeys(validity_lines(paced["validity"])))


def notes(runs: list[dict[str, Any]]) -> list[str]:
    """Return lines on runs with too few arrivals for p99, and on runs with skipped arrivals."""
    lines = []
    few = [run for run in runs if run["latency"]["from_due"]["p99_s"] is None]
    for run in few:
        lines.append(
            f"{format_rate(run['rate_hz'])}, {run['backend']}: {run['latency']['n']} arrivals are "
            f"too few for p99; --paced-seconds {100 / run['rate_hz']:.0f} gives 100"
        )
    for run in runs:
        latency = run["latency"]
        if latency["n_skipped"]:
            lines.append(
                f"{format_rate(run['rate_hz'])}, {run['backend']}: {latency['n_skipped']:,} "
                "arrivals were skipped, because others were still worked on"
            )
    return lines


def energy_lines(paced: dict[str, Any], width: int) -> list[str]:
    """Return lines on each run's power and energy above idle; labels take `width` characters."""
    lines = []
    for run in paced["runs"] if paced["sensor"] else ():
        energy = run["energy"]
        start = f"  {format_rate(run['rate_hz']):>8}  {run['backend']:<{width}}"
        if energy is None:
            reason = run["energy_reason"] or "ended before a block was measured"
            lines.append(f"{start}  power unavailable: {reason}")
            continue
        power = format_power(energy["power_above_idle_w"], energy["power_interval_95_w"])
        joules = format_energy(energy["energy_j"], energy["energy_interval_95_j"])
        lines.append(
            f"{start}  {power} above idle ({energy['idle_power_w']:.3f} W), {joules} an arrival "
            f"(95 %; {energy['n_arrivals']:,} arrivals in {energy['duration_s']:.0f} s)"
        )
    return [*lines, f"  {sensor_line(paced)}"]


def sensor_line(paced: dict[str, Any]) -> str:
    """Return a line on the sensor that measured power, or that there is none."""
    if paced["sensor"] is None:
        return "power unavailable: there is no sensor; the reasons stand under energy"
    if paced["replay"]:
        return f"REPLAY of {paced['replay']}: not a measurement of this machine"
    return f"sensor: {paced['sensor']}: {paced['scope']}"


def format_power(power_w: float, half_width_w: float) -> str:
    """Write a power in W, mW or µW, with half the width of its interval."""
    return format_energy(power_w, half_width_w).replace("J", "W")


def clock_lines(runs: list[dict[str, Any]], width: int) -> list[str]:
    """Return lines on how often each clock was read; labels of runs take `width` characters."""
    lines = []
    for run in runs:
        for device, seen in run["clocks"].items():
            if not seen:
                continue
            total = sum(clock["n"] for clock in seen)
            often = sorted(seen, key=lambda clock: -clock["n"])[:MAX_CLOCKS]
            words = [
                f"{clock['frequency_hz'] / 1e6:.0f} MHz {clock['n'] / total:.0%}"
                if clock["frequency_hz"]
                else f"off {clock['n'] / total:.0%}"
                for clock in sorted(often, key=lambda clock: clock["frequency_hz"])
            ]
            more = f", {len(seen) - len(often)} more" if len(seen) > len(often) else ""
            lines.append(
                f"  {format_rate(run['rate_hz']):>8}  {run['backend']:<{width}}  "
                f"{device.upper()} clock: {', '.join(words)}{more} (seen {total} times)"
            )
    return lines or ["  clocks: this machine shows none"]


def crossing_lines(paced: dict[str, Any]) -> list[str]:
    """Return a sentence for each pair of backends: which one needs less power, at which rates."""
    return [crossing_sentence(crossing) for crossing in paced["crossings"]]


def crossing_sentence(crossing: dict[str, Any]) -> str:
    """Return a sentence on which of two backends needs less power, at which rates."""
    a, b, less, verdict = (crossing[key] for key in ("a", "b", "less", "verdict"))
    other = b if less == a else a
    rates = [d["rate_hz"] for d in crossing["differences"]]
    measured = ", ".join(f"{rate_hz:g}" for rate_hz in rates) + " Hz"
    if verdict == "none":
        return f"whether {a} or {b} needs less power cannot be told: {crossing['reason']}"
    if verdict == "unclear":
        return (
            f"whether {a} or {b} needs less power cannot be told: the 95 % intervals overlap at "
            f"{measured}; allow more with --paced-seconds"
        )
    if verdict == "mixed":
        words = [
            f"{d['less'] or 'neither'} at {d['rate_hz']:g} Hz" for d in crossing["differences"]
        ]
        return f"no single rate parts {a} from {b}; less power needs {', '.join(words)}"
    if verdict == "one":
        return f"{less} needs less power than {other} at {measured}: no crossing there"
    if verdict == "part":
        at = [f"{d['rate_hz']:g}" for d in crossing["differences"] if d["less"]]
        return (
            f"{less} needs less power than {other} at {', '.join(at)} Hz; at the other rates the "
            "95 % intervals overlap, so no crossing can be told"
        )
    return (
        f"from {crossing['rate_hz']:.3g} Hz on, {less} needs less power than {other} (95 %: from "
        f"{crossing['low_hz']:.3g} to {crossing['high_hz']:.3g} Hz, by straight lines between the "
        f"measured rates; measured: {other} less at {crossing['after_hz']:g} Hz, {less} less at "
        f"{crossing['until_hz']:g} Hz)"
    )
