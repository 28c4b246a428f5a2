"""The tables of the papers, as they print them: rows of models, columns, mean and deviation.

A line of a table is a row's name in the paper, then in brackets the model of ours with its
settings, or nothing where we have no such model, then a cell for each column. "-" is a cell that
the paper leaves open, because the authors could not run the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgefold.train.published import SEQUENCES

CMANP = "Feng et al. 2024 (constant memory attention)"
LBANP = "Feng et al. 2023 (latent bottlenecks)"
TCA = "Feng et al. 2024 (tree cross attention)"
NYSTROM = "Carreto Picón et al. 2024 (continual Nyström)"

Cell = tuple[float, float] | None
"""Mean and deviation over the paper's seeds."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row of a table.

    Attributes:
        title: Name in the paper.
        model: Name of our model, or "" where we have none.
        settings: Its settings beside those of the preset `paper`, as NAME=VALUE.
        cells: By column.
    """

    title: str
    model: str
    settings: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def slug(self) -> str:
        """Name of the row in names of files."""
        return "-".join([self.model, *(word.replace("=", "") for word in self.settings)])


@dataclass(frozen=True, slots=True)
class Column:
    """A score of a table.

    Attributes:
        title: As the papers name it.
        place: Of our score in what `edgefold evaluate --json` writes, as "rbf.log_likelihood".
        factor: Number that our score is multiplied by.
        low_is_good: Whether less is better.
    """

    title: str
    place: str
    factor: float = 1.0
    low_is_good: bool = False


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of the papers, and how a row of it is trained and scored here.

    Attributes:
        title: What is measured, for a heading.
        source: Papers and numbers of their tables.
        unit: Of the cells, in words.
        columns: What is compared.
        task: Words behind `edgefold train`.
        steps: Of the papers' training; 0 where they state none.
        text: The rows.
        data: What has to be downloaded first, and from where; "" if nothing.
        option: Option of `edgefold train` that takes the path of the data.
        hours: What the authors say that their training took, if they do.
    """

    title: str
    source: str
    unit: str
    columns: tuple[Column, ...]
    task: tuple[str, ...]
    steps: int
    text: str
    data: str = ""
    option: str = ""
    hours: str = ""

    @property
    def rows(self) -> list[PublishedRow]:
        """The rows in the order of the paper."""
        return [_row(line) for line in self.text.strip().splitlines()]


def _row(line: str) -> PublishedRow:
    title, _, rest = line.partition("[")
    words, _, cells = rest.partition("]")
    model, *settings = words.split() or [""]
    return PublishedRow(title.strip(), model, tuple(settings), tuple(map(_cell, cells.split())))


def _cell(word: str) -> Cell:
    if word == "-":
        return None
    mean, _, deviation = word.partition("±")
    return float(mean), float(deviation or "nan")


SEQUENCE_MODELS: Final = {
    "Att": "window-transformer",
    "AttCo": "continual-transformer",
    "AttNy": "window-nystrom n_landmarks={}",
    "AttNyFix": "window-nystrom n_landmarks={} landmarks=fixed",
    "AttCoNyCont": "continual-nystrom n_landmarks={}",
    "AttCoNyFix": "continual-nystrom n_landmarks={} landmarks=fixed",
}
"""Models of ours by the names of Carreto Picón et al., with the number of landmarks left open."""


def _sequence_rows(key: str) -> str:
    """Return the rows of a table of `SEQUENCES`, whose names are as "AttNy-4, 2 layers"."""
    lines = []
    for title, numbers in SEQUENCES[key].items():
        name, _, layers = title.partition(", ")
        kind, _, n_landmarks = name.partition("-")
        model = f"{SEQUENCE_MODELS[kind].format(n_landmarks)} n_layers={layers.split()[0]}"
        cells = (f"{m}±{d}" for m, d in zip(numbers[::2], numbers[1::2], strict=True))
        lines.append(f"{title} [{model}] {' '.join(cells)}")
    return "\n".join(lines)


LOG_LIKELIHOOD = "log-likelihood of a target, nats"
EVENT_COLUMNS = (
    Column("RMSE", "events.gap_rmse", low_is_good=True),
    Column("NLL", "events.log_likelihood", factor=-1.0, low_is_good=True),
    Column("ACC", "events.accuracy"),
)
COPY_STEPS, EVENT_STEPS = 100_000, 100_000
"""Steps of a training for which the papers state no number: that of their other tasks."""


def _copy_table(length: int, *perceiver: tuple[float, float]) -> PublishedTable:
    """Return the table of a length; cells of Perceiver IO with 16, 32, 64 and 128 latents."""
    models = (*(f"perceiver-io n_latents={n}" for n in (16, 32, 64)), "perceiver-io")
    rows = [
        f"Perceiver IO ({n}) [{model}] {mean}±{deviation}"
        for n, model, (mean, deviation) in zip((16, 32, 64, 128), models, perceiver, strict=True)
    ]
    rows.insert(0, "Cross Attention [retreever n_encoder_layers=0 full=true] 100.0±0.0")
    rows.append("TCA [retreever n_encoder_layers=0] 100.0±0.0")
    return PublishedTable(
        f"copy task, N = {length}",
        f"{TCA}, tables 1, 8 and 9",
        "right answers, %",
        (Column("accuracy", "copy.accuracy", 100),),
        ("copy", "--length", str(length)),
        COPY_STEPS,
        "\n".join(rows),
    )


CELEBA_DATA = "img_align_celeba.zip and list_eval_partition.txt of CelebA"

TABLES: Final[Mapping[str, PublishedTable]] = {
    "gp": PublishedTable(
        "1-D meta-regression",
        f"{CMANP}, table 4; {LBANP}, table 2; {TCA}, table 13",
        LOG_LIKELIHOOD,
        (
            Column("RBF", "rbf.log_likelihood"),
            Column("Matern 5/2", "matern52.log_likelihood"),
        ),
        ("gp",),
        100_000,
        """
CNP [cnp] 0.26±0.02 0.04±0.02
NP [np] 0.27±0.01 0.07±0.01
BNP [bnp] 0.38±0.02 0.18±0.02
CANP [canp] 0.79±0.00 0.62±0.00
ANP [anp] 0.81±0.00 0.63±0.00
BANP [banp] 0.82±0.01 0.66±0.00
TNP-D [tnp-d] 1.39±0.00 0.95±0.01
EQTNP [eqtnp] 1.32±0.01 0.92±0.01
LBANP (8) [lbanp n_latents=8] 1.20±0.02 0.75±0.02
LBANP (128) [lbanp] 1.27±0.02 0.85±0.02
CMANP [cmanp] 1.24±0.01 0.80±0.01
Perceiver IO (4) [perceiver-io n_latents=4] 1.02±0.03 0.56±0.03
Perceiver IO (32) [perceiver-io n_latents=32] 1.25±0.04 0.78±0.05
Perceiver IO (128) [perceiver-io] 1.29±0.04 0.84±0.04
Transformer + Cross Attention [transformer-ca] 1.35±0.02 0.91±0.02
ReTreever [retreever] 1.25±0.02 0.81±0.02
ReTreever-Full [retreever full=true] 1.33±0.02 0.90±0.01
TNP-ND [tnp-nd] 1.46±0.00 1.02±0.00
LBANP-ND [lbanp-nd] 1.24±0.03 0.78±0.02
CMANP-AND [cmanp-and] 1.48±0.03 0.96±0.01
TNP-A [tnp-a] 1.63±0.00 1.21±0.00
""",
        hours="2.5 hours on a GTX 1080 Ti or Tesla P100 (tree cross attention, C.3)",
    ),
    "emnist": PublishedTable(
        "image completion, EMNIST",
        f"{CMANP}, table 3; {LBANP}, tables 3 and 7; {TCA}, table 15",
        LOG_LIKELIHOOD,
        (
            Column("seen classes", "seen classes (0-9).log_likelihood"),
            Column("unseen classes", "unseen (10-46).log_likelihood"),
        ),
        ("images", "--source", "emnist"),
        48_000,
        """
CNP [cnp] 0.73±0.00 0.49±0.01
NP [np] 0.79±0.01 0.59±0.01
BNP [bnp] 0.88±0.01 0.73±0.01
CANP [canp] 0.94±0.01 0.82±0.01
ANP [anp] 0.98±0.00 0.89±0.00
BANP [banp] 1.01±0.00 0.94±0.00
TNP-D [tnp-d] 1.46±0.01 1.31±0.00
EQTNP [eqtnp] 1.44±0.00 1.27±0.00
LBANP (8) [lbanp n_latents=8] 1.34±0.01 1.05±0.01
LBANP (128) [lbanp] 1.39±0.01 1.17±0.01
CMANP [cmanp] 1.36±0.01 1.09±0.01
Perceiver IO [perceiver-io] 1.25±0.00 -
Transformer + Cross Attention [transformer-ca] 1.41±0.00 -
ReTreever [retreever] 1.30±0.01 -
TNP-ND [tnp-nd] 1.50±0.00 1.31±0.00
LBANP-ND (8) [lbanp-nd n_latents=8] 1.38±0.01 1.06±0.01
LBANP-ND (128) [lbanp-nd] 1.42±0.01 1.14±0.01
LBANP-END (8) [lbanp-end n_latents=8 n_target_latents=8] 1.39±0.01 1.06±0.01
LBANP-END (128) [lbanp-end] 1.42±0.02 1.14±0.04
CMANP-AND [cmanp-and] 1.48±0.03 1.19±0.03
TNP-A [tnp-a] 1.54±0.01 1.41±0.01
""",
        data="the balanced split of EMNIST",
        option="--folder",
        hours="1.75 hours on a GTX 1080 Ti or Tesla P100 (tree cross attention, C.3)",
    ),
    "celeba-32": PublishedTable(
        "image completion, CelebA of 32 x 32",
        f"{CMANP}, table 3; {LBANP}, tables 3, 6 and 7; {TCA}, table 14",
        "log-likelihood of a pixel, nats",
        (Column("CelebA 32", "held out.log_likelihood"),),
        ("images", "--source", "celeba", "--size", "32"),
        365_400,
        """
CNP [cnp] 2.15±0.01
NP [np] 2.48±0.02
BNP [bnp] 2.76±0.01
CANP [canp] 2.66±0.01
ANP [anp] 2.90±0.00
BANP [banp] 3.09±0.00
TNP-D [tnp-d] 3.89±0.01
EQTNP [eqtnp] 3.91±0.10
LBANP-L (8) [lbanp n_latents=8 queries=last] 3.35±0.01
LBANP (8) [lbanp n_latents=8] 3.50±0.05
LBANP-L (128) [lbanp queries=last] 3.78±0.03
LBANP (128) [lbanp] 3.97±0.02
CMANP [cmanp] 3.93±0.05
Perceiver IO [perceiver-io] 3.20±0.01
Transformer + Cross Attention [transformer-ca] 3.88±0.01
ReTreever [retreever] 3.52±0.01
ReTreever-Full [retreever full=true] 3.77±0.01
TNP-ND [tnp-nd] 5.48±0.02
LBANP-ND (8) [lbanp-nd n_latents=8] 5.14±0.01
LBANP-ND (128) [lbanp-nd] 5.57±0.03
LBANP-END (8) [lbanp-end n_latents=8 n_target_latents=8] 5.14±0.02
LBANP-END (128) [lbanp-end] 5.60±0.02
CMANP-AND [cmanp-and] 6.31±0.04
TNP-A [tnp-a] 5.82±0.01
""",
        data=CELEBA_DATA,
        option="--folder",
        hours="15 hours on a GTX 1080 Ti or Tesla P100 (tree cross attention, C.3)",
    ),
    "celeba-64": PublishedTable(
        "image completion, CelebA of 64 x 64",
        f"{CMANP}, table 3; {LBANP}, tables 3, 6 and 7",
        "log-likelihood of a pixel, nats",
        (Column("CelebA 64", "held out.log_likelihood"),),
        ("images", "--source", "celeba", "--size", "64", "--batch", "50"),
        730_600,
        """
CNP [cnp] 2.43±0.00
NP [np] 2.60±0.01
BNP [bnp] 2.97±0.00
CANP [canp] 3.15±0.00
ANP [anp] -
BANP [banp] -
TNP-D [tnp-d] 5.41±0.01
EQTNP [eqtnp] 5.29±0.02
LBANP-L (8) [lbanp n_latents=8 queries=last] 4.10±0.04
LBANP (8) [lbanp n_latents=8] 4.39±0.02
LBANP-L (128) [lbanp queries=last] 4.90±0.05
LBANP (128) [lbanp] 5.09±0.02
CMANP [cmanp] 5.02±0.14
LBANP-END (8) [lbanp-end n_latents=8 n_target_latents=8] 5.36±0.03
LBANP-END (128) [lbanp-end] 6.06±0.03
CMANP-AND [cmanp-and] 6.96±0.07
""",
        data=CELEBA_DATA,
        option="--folder",
    ),
    "celeba-128": PublishedTable(
        "image completion, CelebA of 128 x 128",
        f"{CMANP}, table 3; {LBANP}, table 3",
        "log-likelihood of a pixel, nats",
        (Column("CelebA 128", "held out.log_likelihood"),),
        ("images", "--source", "celeba", "--size", "128", "--batch", "25"),
        1_461_200,
        """
CNP [cnp] 2.55±0.02
NP [np] 2.67±0.01
LBANP (8) [lbanp n_latents=8] 4.94±0.03
LBANP (128) [lbanp] 5.84±0.01
CMANP [cmanp] 5.55±0.01
CMANP-AND [cmanp-and] 7.15±0.14
""",
        data=CELEBA_DATA,
        option="--folder",
    ),
    "wheel": PublishedTable(
        "contextual bandits: the wheel",
        f"{CMANP}, table 7; {LBANP}, table 4",
        "cumulative regret of 2,000 steps, % of the uniform policy's",
        tuple(
            Column(f"delta = {delta}", f"{delta}", low_is_good=True)
            for delta in (0.7, 0.9, 0.95, 0.99, 0.995)
        ),
        ("wheel",),
        100_000,
        """
CNP [cnp] 4.08±0.29 8.14±0.33 8.01±0.40 26.78±0.85 38.25±1.01
CANP [canp] 8.08±9.93 11.69±11.96 24.49±13.25 47.33±20.49 49.59±17.87
NP [np] 1.56±0.13 2.96±0.28 4.24±0.22 18.00±0.42 25.53±0.18
ANP [anp] 1.62±0.16 4.05±0.31 5.39±0.50 19.57±0.67 27.65±0.95
BNP [bnp] 62.51±1.07 57.49±2.13 58.22±2.27 58.91±3.77 62.50±4.85
BANP [banp] 4.23±16.58 12.42±29.58 31.10±36.10 52.59±18.11 49.55±14.52
TNP-D [tnp-d] 1.18±0.94 1.70±0.41 2.55±0.43 3.57±1.22 4.68±1.09
EQTNP [eqtnp] 0.75±0.15 1.37±0.22 2.04±0.09 7.87±0.45 11.15±0.13
LBANP (8) [lbanp n_latents=8] 1.28±0.22 1.83±0.24 2.09±0.16 7.43±0.47 10.41±0.20
LBANP (128) [lbanp] 1.11±0.36 1.75±0.22 1.65±0.23 6.13±0.44 8.76±0.15
CMANP [cmanp] 0.93±0.12 1.56±0.10 1.87±0.32 9.04±0.42 13.02±0.03
TNP-ND [tnp-nd] 1.76±0.61 1.41±0.98 1.61±1.65 4.98±2.84 7.22±3.28
TNP-A [tnp-a] 3.67±4.88 4.04±2.38 4.29±2.36 5.79±5.27 9.29±7.62
""",
    ),
    "copy-256": _copy_table(256, (15.16, 0.03), (34.75, 39.14), (27.10, 21.23), (63.50, 39.37)),
    "copy-512": _copy_table(512, (13.41, 0.15), (19.41, 12.07), (14.00, 0.72), (13.23, 0.42)),
    "human-activity": PublishedTable(
        "human activity, class of each window",
        f"{TCA}, table 16",
        "right answers, %",
        (Column("accuracy", "human-activity.accuracy", 100),),
        ("human-activity",),
        100_000,
        """
RNN-Impute [] 85.9±0.4
RNN-Decay [] 86.0±0.5
RNN GRU-D [] 86.2±0.5
IP-Nets [] 86.9±0.7
SeFT [] 81.5±0.2
ODE-RNN [] 88.5±0.8
L-ODE-RNN [] 83.8±0.4
L-ODE-ODE [] 87.0±2.8
mTAND-Enc [] 90.7±0.2
Transformer + Cross Attention [transformer-ca] 89.1±1.3
Perceiver IO [perceiver-io] 87.6±0.4
ReTreever [retreever] 88.9±0.4
""",
        data="ConfLongDemo_JSI.txt of the UCI archive, Localization Data for Person Activity",
        option="--file",
        hours="0.75 hours on a GTX 1080 Ti or Tesla P100 (tree cross attention, C.3)",
    ),
    "mooc": PublishedTable(
        "next events, Mooc",
        f"{CMANP}, table 6",
        "error of the gap (RMSE), nats an event, right marks",
        EVENT_COLUMNS,
        ("events",),
        EVENT_STEPS,
        """
THP [thp] 0.202±0.017 0.267±0.164 0.336±0.007
CMHP [cmhp] 0.168±0.011 -0.040±0.620 0.237±0.024
""",
        data="mooc.csv of the JODIE data",
        option="--csv",
    ),
    "reddit": PublishedTable(
        "next events, Reddit",
        f"{CMANP}, tables 5 and 6",
        "error of the gap (RMSE), nats an event, right marks",
        EVENT_COLUMNS,
        ("events",),
        EVENT_STEPS,
        """
THP [thp] 0.238±0.028 0.268±0.098 0.610±0.002
CMHP [cmhp] 0.262±0.037 0.528±0.209 0.609±0.003
""",
        data="reddit.csv of the JODIE data",
        option="--csv",
    ),
    "gtzan": PublishedTable(
        "music genres, GTZAN",
        f"{NYSTROM}, table III",
        "right answers, %",
        (Column("accuracy", "gtzan.accuracy", 100),),
        ("sequences", "--source", "gtzan"),
        0,
        _sequence_rows("gtzan"),
        data="VGGish features of GTZAN",
        option="--folder",
    ),
    **{
        f"thumos14-{of}": PublishedTable(
            f"actions online, THUMOS14, features of {title}",
            f"{NYSTROM}, table IV",
            "mean average precision, %",
            (
                Column("mAP", "thumos14.mean_ap", 100),
                Column("cmAP", "thumos14.mean_cap", 100),
            ),
            ("sequences", "--source", "thumos14", "--pretrained", of),
            0,
            _sequence_rows(f"thumos14-{of}"),
            data=f"features of THUMOS14, of a network trained on {title}",
            option="--folder",
        )
        for of, title in (("kinetics", "Kinetics"), ("anet", "ActivityNet"))
    },
}
