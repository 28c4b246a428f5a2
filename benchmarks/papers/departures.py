"""How much does each of our departures from the published models bring?

    published form at the size of `small` ──> each departure alone ──> all of them, that is `small`

Each is trained on gp by the papers' recipe from two seeds, for the same number of steps, and scored
on the same batches: what a departure brings is the difference of scores. The settings by which
`small` departs from `paper` are read off the presets (`departures_of`).

    python -m benchmarks departures --models cmanp canp

What is recorded is not trained again; after Ctrl-C the same command goes on where it was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.models.trainings import (
    evaluated,
    execute_missing,
    exit_telling,
    recorded,
    train_words,
)
from benchmarks.papers.departures_table import ALL, PUBLISHED, UNSCORED, departures_of, word
from benchmarks.record import RECORDS, ROOT, Record, arguments, conditions, finish
from benchmarks.tables import as_text

QUESTION = "How much does each of our departures from the published models bring?"
MODELS = (
    *("cmanp", "cmanp-and", "lbanp-end", "perceiver-io", "tnp-d", "bnp", "canp"),
    *("transformer-ca", "retreever", "convcnp"),
)
"""Models that together have every departure but `UNSCORED`."""
N_STEPS, N_BATCHES = 3_000, 500


@dataclass(frozen=True, slots=True)
class Variant:
    """A model with some of its departures, trained from one seed.

    Attributes:
        model: Name of the model.
        variant: The departure that it has, as NAME=VALUE, or `PUBLISHED` or `ALL`.
        seed: Of weights and batches.
        n_steps, n_batches: Of training and evaluation.
    """

    model: str
    variant: str
    seed: int
    n_steps: int = N_STEPS
    n_batches: int = N_BATCHES

    @property
    def name(self) -> str:
        """Name of its record and its folder."""
        return f"{self.model}-{self.variant.replace('=', '-')}-{self.n_steps}-{self.seed}"

    def training(self, folder: Path) -> list[str]:
        """Return the command that trains it, or goes on."""
        options = {"model": self.model, "preset": "small", "recipe": "paper", "seed": self.seed}
        options |= {"steps": self.n_steps, "threads": 1}
        settings = list[str]()
        for setting, (published, ours) in departures_of(self.model).items():
            if self.variant not in (ALL, f"{setting}={word(ours)}"):
                settings += ["--set", f"{setting}={word(published)}"]
        return train_words(["gp"], options, folder, settings)

    def score(self, folder: Path, log: Path) -> Record:
        """Return the log-likelihoods of `edgefold evaluate`."""
        return evaluated(folder, self.n_batches, log)

    def facts(self) -> Record:
        """Return what the record tells of the run."""
        return asdict(self)


def variants(model: str, seeds: int, n_steps: int, n_batches: int) -> list[Variant]:
    """Return the published form of a model, each departure alone, and all together."""
    own = departures_of(model).items()
    single = [f"{name}={word(ours)}" for name, (_, ours) in own if name not in UNSCORED]
    all_together = [ALL] if len(single) > 1 else []
    return [
        Variant(model, variant, seed, n_steps, n_batches)
        for variant in (PUBLISHED, *single, *all_together)
        for seed in range(seeds)
    ]


def main() -> None:
    """Train what is not recorded, and record the table."""
    parser = arguments(__doc__ or "", "departures")
    parser.add_argument(
        "--models",
        nargs="+",
        default=list(MODELS),
        help="default: those that together have every departure",
    )
    parser.add_argument("--seeds", type=int, default=2, help="how many; default 2")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; default 1")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "departures")
    parser.add_argument("--records", type=Path, default=RECORDS / "departures", help="one a run")
    args = parser.parse_args()
    n_steps, n_batches = (2, 2) if args.quick else (N_STEPS, N_BATCHES)
    if args.quick:  # a smoke run keeps nothing
        args.runs = args.records = args.runs / "quick"
    wanted = [
        variant
        for model in args.models
        for variant in variants(model, args.seeds, n_steps, n_batches)
    ]
    before = conditions(threads=args.jobs)
    failed = execute_missing(wanted, args.runs, args.records, args.jobs)
    runs = list(recorded(wanted, args.records).values())
    data = {"steps": n_steps, "n_batches": n_batches, "runs": runs}
    finish(args, "departures", QUESTION, before, data, [], as_text)
    exit_telling(failed, args.runs)


if __name__ == "__main__":
    main()
