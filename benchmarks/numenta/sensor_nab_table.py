"""The tables of `benchmarks.numenta.sensor_nab`: our two detectors, and published ones."""

from __future__ import annotations

from benchmarks.record import Record
from benchmarks.table import Table

PROFILES = {
    "standard": "standard",
    "reward_low_FP_rate": "reward low FP",
    "reward_low_FN_rate": "reward low FN",
}
PARTS = {"all": "all {} files", "unread": "{} files that training has not read"}
OTHERS = {
    "ARTime": "ARTime",
    "numenta": "Numenta HTM",
    "contextOSE": "CAD OSE",
    "knncad": "KNN CAD",
    "randomCutForest": "Random Cut Forest",
    "windowedGaussian": "Windowed Gaussian",
    "skyline": "Etsy Skyline",
    "random": "random numbers, one seed",
}
"""Published detectors that are shown; all of the published ones check the scorer."""


def sensor_nab(data: Record) -> list[Table]:
    """Our scores, and the published ones beside what the same scorer gives."""
    kinds = {"surprise": "surprise", "alarm": f"alarm at {data['rate']:g}"}
    ours = [
        [f"{name}, {files.format(data[part]['n_files'])}", *_cells(data[part], kind)]
        for part, files in PARTS.items()
        for kind, name in kinds.items()
    ]
    note = (
        "0 is a silent detector, 100 a perfect one. Surprise: -log10 of the p-value, at the one "
        "threshold that scores best by the labels. Alarm: as told, no threshold is sought. "
        "Windows, and rows outside of them, are those detected in the standard profile. "
        f"{data['n_refused']:,} rows were refused. All rows took {data['took_s'] / 60:.1f} minutes "
        f"on {data['backend']}."
    )
    header = ["detector", *PROFILES.values(), "windows", "rows outside"]
    others = [
        [
            *(name, *(f"{data['others'][key]['published'][one]:.1f}" for one in PROFILES)),
            f"{data['others'][key]['best']['standard']:.1f}",
        ]
        for key, name in OTHERS.items()
        if key in data["others"]
    ]
    source = (
        "Published: `results/final_results.json` of numenta/NAB. Scored here: the anomaly scores "
        "that it stores, at the best threshold; it sought some of its thresholds coarsely. Its "
        "README gives random numbers 11.0 in the standard profile, the mean over seeds."
    )
    tables = [Table(header, ours, note)]
    if others:
        head = ["published", *PROFILES.values(), "standard, scored here"]
        tables.append(Table(head, others, source))
    return tables


def _cells(part: Record, kind: str) -> list[str]:
    """A detector's scores, and what it detects in the standard profile."""
    standard = part[kind]["standard"]
    return [
        *(f"{part[kind][profile]['score']:.1f}" for profile in PROFILES),
        f"{standard['n_found']} of {part['n_windows']}",
        f"{standard['n_false']:,} of {part['n_outside']:,}",
    ]
