"""Write the doctor's record as text for a terminal: plain ASCII, aligned, wrapped, no colours."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from edgefold.cli.text.numbers import format_bytes
from edgefold.devices.machine.clocks import core_span
from edgefold.runtime.errors import Remedy
from edgefold.runtime.series.durations import duration
from edgefold.runtime.stream.memory_estimate import MEASURED_PAGE_BYTES

LABEL = 22
OF_BROKER = "safer"
"""The kind of advice that belongs to the broker."""
TITLES = {
    "needed": "needed: without it nothing runs",
    OF_BROKER: "messages that the broker may lose, and the line that prevents it",
    "more": "would bring more backends or figures",
    "steadier": "would make figures steadier",
}


def render(record: dict[str, Any], advice: Mapping[str, Sequence[Remedy]], width: int = 100) -> str:
    """Return the whole report as text: the machine and advice on it, the broker, the verdict."""
    title = "backends that open" + (f" {record['bundle']}" if record["bundle"] else "")
    sections = (
        ("machine", [*_machine(record["machine"]), *_condition(record["condition"])]),
        ("software", _software(record["software"])),
        (title, _entries(record["backends"])),
        ("power meters", _entries(record["power"])),
        ("memory meters", _entries(record["memory"])),
    )
    lines = [*_sections(sections, width)]
    lines += _advice([kind for kind in TITLES if kind != OF_BROKER], advice, width)
    if broker := record.get("broker"):  # it was asked for, so it stands where it is seen
        lines += _sections([(f"broker {broker['name']}", _broker(broker))], width)
        lines += _advice([OF_BROKER], advice, width)
    return "\n".join([*lines, *_verdict(record)]) + "\n"


def _sections(
    sections: Iterable[tuple[str, Iterable[tuple[str, str]]]], width: int
) -> Iterator[str]:
    """Yield the lines of sections, each a title and rows of label and text."""
    for title, rows in sections:
        yield title
        for label, text in rows:
            yield from _row(label, text, width)
        yield ""


def _row(label: str, text: str, width: int) -> list[str]:
    indent = " " * (LABEL + 2)
    return textwrap.wrap(
        text,
        max(width, LABEL + 30),
        initial_indent=f"  {label:<{LABEL - 1}} ",  # a long label keeps a blank behind it
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [f"  {label}"]


def _machine(machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "board", machine["board"] or "not shown"
    jetson = machine["jetson"]
    system = f"Linux {machine['kernel']}, {machine['architecture']}"
    if jetson:
        pack = f" (JetPack {jetson['jetpack']})" if jetson["jetpack"] else ""
        system += f"; Jetson Linux {jetson['linux']}{pack}"
    yield "system", system + ("; a virtual machine" if machine["virtual"] else "")
    model = f"{machine['cpu_model']}, " if machine["cpu_model"] else ""
    yield "processor", f"{model}{machine['n_cores']} cores usable"
    yield "memory", _memory(machine)
    yield from _clocks(machine)
    if mode := machine["power_mode"]:
        choices = ", ".join(f"{number} {name}" for number, name in mode["choices"].items())
        yield "power mode", f"{mode['mode']} {mode['name'] or ''} (of {choices or 'unknown'})"
    if machine["nvidia_driver"]:
        yield "NVIDIA driver", machine["nvidia_driver"]
    yield "temperature", _temperature(machine)
    if machine["throttle_flags"] is not None:
        yield "firmware reports", ", ".join(machine["throttle_flags"]) or "no throttling"
    busiest = ", ".join(f"{p['name']} {p['cpu_percent']:.0f} %" for p in machine["busiest"])
    yield (
        "load",
        f"{machine['load_average'][0]:.2f}" + (f"; busy now: {busiest}" if busiest else ""),
    )


def _broker(broker: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not broker["answers"]:
        yield "answers", f"no   {broker['reason']}"
    if limits := broker.get("mqtt"):
        yield from _mqtt(limits)
    if log := broker.get("jetstream"):
        yield from _jetstream(log)
    if settings := broker.get("mosquitto"):
        yield from _mosquitto(settings)
    elif broker.get("mqtt"):
        place = "found here" if broker["is_local"] else "on this machine"
        yield (
            "its configuration",
            f"not {place}: what it keeps over a restart or a power cut is not known. For a "
            "mosquitto run this on its machine, or name a copy with --broker-config",
        )


def _mqtt(limits: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "answers", f"yes  {limits['version'] or 'it does not say its version'}"
    for topic, granted in limits["topics"].items():
        yield "topic", f"{topic}: {granted}"
    expiry_s, packet = limits["session_expiry_s"], limits["maximum_packet_bytes"]
    yield "session", "kept for ever" if expiry_s is None else f"kept for {duration(expiry_s)}"
    yield (
        "messages",
        (
            f"quality of service up to {limits['maximum_qos']}, "
            f"{limits['receive_maximum']:,} at a time without an acknowledgement, "
            + (f"at most {format_bytes(packet)}" if packet else "no limit of size")
        ),
    )
    grants = {
        "retained messages": limits["retain"],
        "wildcards": limits["wildcard_subscriptions"],
        "shared subscriptions": limits["shared_subscriptions"],
    }
    yield "grants", ", ".join(f"{name} {'yes' if has else 'no'}" for name, has in grants.items())


def _mosquitto(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "its configuration", ", ".join(settings["files"])
    kept = {name: value for name, value in settings.items() if name not in ("files", "ports")}
    kept["autosave_interval"] = f"{settings['autosave_interval']:g}"
    kept["persistent_client_expiration"] = settings["persistent_client_expiration"] or "never"
    words = (f"{n} {str(v).lower() if isinstance(v, bool) else v}" for n, v in kept.items())
    yield "says", ", ".join(words)


def _jetstream(log: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "answers", f"yes  {log['version']}"
    size = f"{log['n_messages']:,} messages, {format_bytes(log['bytes'])} now"
    yield "stream", f"{log['stream']}, in {log['storage']}, replicas {log['replicas']}; {size}"
    limits = [
        f"{log['max_messages']:,} messages" if log["max_messages"] else "",
        format_bytes(log["max_bytes"]) if log["max_bytes"] else "",
        duration(log["max_age_s"]) if log["max_age_s"] else "",
    ]
    shown = ", ".join(filter(None, limits)) or "none"
    yield "limits", f"{shown}; retention {log['retention']}, discard {log['discard']}"
    yield "forced to the disk", f"after {log['sync_interval'] or 'a time that is not known here'}"
    yield "consumer", log["consumer"]


def _memory(machine: dict[str, Any]) -> str:
    total, available = machine["memory_bytes"], machine["memory_available_bytes"]
    if total is None:
        return "not shown"
    free = "not shown" if available is None else format_bytes(available)
    pages = f"pages of {machine['page_bytes'] // 1024} KiB"
    if machine["page_bytes"] != MEASURED_PAGE_BYTES:
        pages += f", estimates were measured with {MEASURED_PAGE_BYTES // 1024} KiB"
    return f"{format_bytes(total)}, {free} available; {pages}"


def _clocks(machine: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for group in machine["cpu_clocks"]:
        now = [hz for hz in group["current_hz"] if hz is not None]
        spread = {_mhz(min(now)), _mhz(max(now))} if now else {"not shown"}
        yield (
            f"clock of core {core_span(group['cores'])}",
            _clock(" to ".join(sorted(spread)), group),
        )
    if not machine["cpu_clocks"]:
        hz = machine["frequency_hz"]
        yield "clock", f"{_mhz(hz)}, its rule is not shown" if hz else "not shown"
    if gpu := machine["gpu_clock"]:
        now_hz = gpu["current_hz"]
        mask = gpu["units_off"] or "0"
        off = "" if mask.strip("0x") == "" else f", units off in this power mode: mask {mask}"
        yield f"clock of {gpu['name']}", _clock(_mhz(now_hz) if now_hz else "off now", gpu) + off
    cap = machine["memory_cap_hz"]
    capped = f", at most {_mhz(cap)} in this power mode" if cap else ""
    if machine["memory_clock_hz"]:
        yield "clock of the memory", _mhz(machine["memory_clock_hz"]) + capped
    elif machine["jetson"]:
        yield "clock of the memory", f"not shown (root alone may read it){capped}"


def _clock(now: str, rule: dict[str, Any]) -> str:
    low, high = rule["min_hz"], rule["max_hz"]
    allowed = f", {_mhz(low)} to {_mhz(high)} allowed" if low and high else ""
    limit = rule.get("limit_hz")
    capped = f" (the silicon's limit is {_mhz(limit)})" if limit and high and limit > high else ""
    return f"{now}{allowed}{capped}, governor {rule['governor'] or 'not shown'}"


def _mhz(hz: float) -> str:
    return f"{hz / 1e6:.0f} MHz"


def _temperature(machine: dict[str, Any]) -> str:
    now, limit = machine["temperature_celsius"], machine["throttle_temperature_celsius"]
    text = "not shown" if now is None else f"{now:.0f} C"
    text += f"; clocks are lowered from {limit:.0f} C on" if limit is not None else ""
    silent = ", ".join(machine["silent_zones"])
    return text + (f"; no answer, as while a part is off: {silent}" if silent else "")


def _condition(condition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield label and text on throttled clocks, and conditions that `profile` cannot see here."""
    lowered = [
        f"{name} in state {state:.0f}" for name, state in condition["cooling"].items() if state
    ]
    counted = [f"{name} {count:,.0f}" for name, count in condition["counters"].items() if count]
    words = [*lowered, *(f"{text} since the boot" for text in counted)]
    if words or condition["cooling"] or condition["counters"]:
        none = "none now" + ", none counted since the boot" * bool(condition["counters"])
        yield "throttling", "; ".join(words) or none
    if condition["untold"]:
        yield "cannot be told", "; ".join(condition["untold"])


def _software(software: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "Python", f"{software['python']}, {software['executable']}"
    packages = software["packages"]
    yield from ((name, version) for name, version in packages.items() if version)
    if missing := [name for name, version in packages.items() if not version]:
        yield "not installed", ", ".join(missing)
    yield from _entries([software["onnxruntime"]])
    kept = software["cache"]
    if kept["folder"]:
        size = f"{kept['n_files']:,} files, {format_bytes(kept['bytes'])}"
        yield "cache", f"{kept['folder']}, {size if kept['n_files'] else 'empty'}"


def _entries(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield a row for each tried backend or meter: its figures, or why there are none."""
    for entry in entries:
        if not entry.get("reads", entry.get("opens")):
            place = entry.get("crashed_in")
            at = f" at the graph {place['graph']} ({place['doing']})" if place else ""
            yield entry["name"], f"no   {entry['reason']}{at}"
            continue
        words = [f"{entry['version']} on {entry['device']}"] if "device" in entry else []
        if "providers" in entry:
            words = [f"{entry['version']} with {', '.join(entry['providers'])}"]
        if "power_w" in entry:
            words.append(f"{entry['power_w']:.3f} W")
        if "memory_bytes" in entry:
            words.append(format_bytes(entry["memory_bytes"]))
        words += [entry["detail"]] if "detail" in entry else []
        yield entry["name"], f"yes  {', '.join(words)}".rstrip()


def _advice(
    kinds: Iterable[str], advice: Mapping[str, Sequence[Remedy]], width: int
) -> Iterator[str]:
    for kind in kinds:
        if not advice.get(kind):
            continue
        yield TITLES[kind]
        for remedy in advice[kind]:
            yield from textwrap.wrap(
                remedy.what, width, initial_indent="  - ", subsequent_indent="    "
            )
            if remedy.command:
                yield f"        {remedy.command}"
        yield ""


def _verdict(record: dict[str, Any]) -> Iterator[str]:
    opened = [entry["name"] for entry in record["backends"] if entry["opens"]]
    power = [meter["name"] for meter in record["power"] if meter["reads"]]
    yield f"runs        {'yes, on ' + ', '.join(opened) if opened else 'no: no backend opens'}"
    yield f"energy      {'yes, by ' + ', '.join(power) if power else 'no meter reads'}"
