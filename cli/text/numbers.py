"""Write numbers with their units as text."""

from __future__ import annotations

import math


def format_energy(energy_j: float, half_width_j: float | None = None) -> str:
    """Write an energy in J, mJ or µJ, with half the width of its interval where one is given."""
    size = max(abs(energy_j), half_width_j or 0.0)
    for unit, scale in (("J", 1.0), ("mJ", 1e-3), ("µJ", 1e-6)):
        if size >= 0.9995 * scale or unit == "µJ":  # 999.6 µJ is 1 mJ, not 1e+03 µJ
            break
    if half_width_j is None:
        return f"{energy_j / scale:{'.3g' if size < 1000 * scale else ',.0f'}} {unit}"
    digits = 1 if half_width_j <= 0 else max(0, 1 - math.floor(math.log10(half_width_j / scale)))
    return f"{energy_j / scale:,.{digits}f} ± {half_width_j / scale:,.{digits}f} {unit}"


def format_share(share: float | None) -> str:
    """Write a share in percent; None, from a division by 0, becomes "beyond all measure"."""
    return "beyond all measure" if share is None else f"{share * 100:.1f} %"


def format_time(seconds: float | None) -> str:
    """Write a time with three digits and a unit; None is a dash."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * scale:  # 999.6 µs is 1 ms, not 1e+03 µs
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds:.0f} s"
    return f"{seconds * 1e9:.0f} ns"


def format_bytes(n_bytes: float) -> str:
    """Write a size in GB (1e9 bytes), MB or kB."""
    if abs(n_bytes) >= 1e9:
        return f"{n_bytes / 1e9:.1f} GB"
    if abs(n_bytes) >= 1e6:
        return f"{n_bytes / 1e6:.1f} MB"
    return f"{n_bytes / 1e3:.1f} kB" if n_bytes else "0 kB"
