"""Define the task of simulated events whose exact likelihood is known: a Hawkes process with marks.

Each event of mark j causes, on average, `branching` others, half of mark j and half of the next
mark, at times after it that are exponential with the rate `decay`. In addition events come on their
own, more of the first mark than of the last. Sequences begin empty and end with a number of events.

Simulation is exact (Dassios and Zhao 2013, with one decay for all marks): the intensity of all
marks is mu + S exp(-decay t) until the next event, so the gap is the smaller one of an exponential
time of rate mu and a time that the part S may or may not bring; the mark is drawn by the
intensities at that moment. The simulator's own likelihood is the ceiling of what a model can reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgefold.runtime.errors import TrainingError
from edgefold.runtime.options import option
from edgefold.train.batch import Batch
from edgefold.train.models.events.event_model import EventModel, event_batch
from edgefold.train.models.events.hawkes import Hawkes
from edgefold.train.models.events.poisson import Poisson
from edgefold.train.tasks.events.event_scores import HeldOutEvents
from edgefold.train.tasks.events.event_task import EVALUATION_BATCH, EventTask

MOST_BATCHES = 100
"""Largest number of batches of an evaluation: 3,200 sequences, enough to see a difference of 0.001
nats."""
N_FITTED = 512
"""Number of sequences to which the Poisson process of the comparison is fitted."""


@dataclass(frozen=True, slots=True)
class HawkesSetting:
    """Holds the settings of the simulated process.

    Attributes:
        n_marks: K, the number of marks.
        base: Mean number of events that nothing caused, of all marks, in a unit of time.
        branching: Mean number of events that one event causes, below 1.
        decay: 1 / mean time until a caused event.
        n_events: N, the number of events of a sequence.
    """

    n_marks: int = 3
    base: float = 0.6
    branching: float = 0.7
    decay: float = 2.0
    n_events: int = 100

    def __post_init__(self) -> None:
        if self.n_marks < 1 or self.n_events < 2:
            raise TrainingError(
                f"{self.n_marks} marks and {self.n_events} events were asked for; there must be at "
                "least one mark and two events."
            )
        if not (self.base > 0 and self.decay > 0 and 0 <= self.branching < 1):
            raise TrainingError(
                f"--base {self.base:g} and --decay {self.decay:g} must be positive and --branching "
                f"{self.branching:g} from 0 to below 1: else the events never end."
            )

    @property
    def rates(self) -> Tensor:
        """Return how many events of each mark nothing causes, in a unit of time, (K,).

        The rates fall linearly from the first mark to the last.
        """
        weights = torch.arange(self.n_marks, 0, -1, dtype=torch.float64)
        return self.base * weights / weights.sum()

    @property
    def caused(self) -> Tensor:
        """Return the mean number of events of mark k that an event of mark j causes, (K, K).

        Rows are j, columns are k.
        """
        same = torch.eye(self.n_marks, dtype=torch.float64)
        return self.branching * (same + same.roll(1, 1)) / 2

    @property
    def mean_gap(self) -> float:
        """Return the mean time between two events in the long run."""
        return (1 - self.branching) / self.base


def simulate(setting: HawkesSetting, n_sequences: int, generator: torch.Generator) -> Tensor:
    """Simulate n_sequences = B sequences of N events; return (B, N, 2), float64.

    Columns are the gap (time since the event before), in the setting's unit of time, and the mark.
    """
    rates, jumps = setting.rates, setting.caused * setting.decay
    excited = torch.zeros(n_sequences, setting.n_marks, dtype=torch.float64)
    rows = []
    for _ in range(setting.n_events):
        draws = torch.rand(3, n_sequences, generator=generator, dtype=torch.float64)
        uncaused, other = -torch.log1p(-draws[:2])  # exponential, mean 1
        # The part that is excited brings an event with probability 1 - exp(-S / decay).
        left = 1 - setting.decay * other / excited.sum(1).clamp(min=1e-300)
        caused = torch.where(left > 0, -left.clamp(min=1e-300).log() / setting.decay, torch.inf)
        gap = torch.minimum(uncaused / rates.sum(), caused)
        excited = excited * torch.exp(-setting.decay * gap)[:, None]
        cumulated = (rates + excited).cumsum(1)
        mark = (draws[2, :, None] * cumulated[:, -1:] >= cumulated[:, :-1]).sum(1)
        excited = excited + jumps[mark]
        rows.append(torch.stack([gap, mark.double()], -1))
    return torch.stack(rows, 1)


OWN = HawkesSetting()


@dataclass(frozen=True, slots=True)
class HawkesOptions:
    """Holds the options of `edgefold train hawkes`; see `HawkesSetting`."""

    title: ClassVar[str] = "simulated process"
    marks: int = option(f"kinds of events ({OWN.n_marks})", default=OWN.n_marks)
    events: int = option(f"events of a sequence ({OWN.n_events})", default=OWN.n_events)
    branching: float = option(
        f"events that one event causes on average, below 1 ({OWN.branching:g}); half of them are "
        "of its own mark and half of the next one",
        default=OWN.branching,
    )
    decay: float = option(
        f"1 / mean time until an event that another one caused ({OWN.decay:g})", default=OWN.decay
    )
    base: float = option(
        f"events that nothing caused, of all marks, in a unit of time ({OWN.base:g})",
        default=OWN.base,
    )


class HawkesTask(EventTask):
    """Draws endless sequences of events from one simulated Hawkes process."""

    option_class = HawkesOptions
    name = "hawkes"
    about = """\
Learn events from a simulator whose exact likelihood is known: a Hawkes process, in which events
cause others. `edgefold evaluate` shows how far a model is from the exact likelihood, which nothing
exceeds, and from a Poisson process. `--model hawkes` finds the simulator itself in a minute."""

    def __init__(self, setting: HawkesSetting | None = None):
        self.setting = setting or HawkesSetting()
        names = tuple(f"{number}" for number in range(self.setting.n_marks))
        super().__init__(self.setting.mean_gap, names)

    @classmethod
    def from_options(cls, args: HawkesOptions, kept: dict[str, Any] | None = None) -> HawkesTask:
        if kept:
            return cls(HawkesSetting(**kept["setting"]))
        return cls(HawkesSetting(args.marks, args.base, args.branching, args.decay, args.events))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "setting": asdict(self.setting)}

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        return event_batch(self._draw(n_tasks, generator))

    def held_out(self, n_batches: int, seed: int) -> list[HeldOutEvents]:
        generator = torch.Generator().manual_seed(20240606 + seed)
        drawn = [
            self._draw(EVALUATION_BATCH, generator) for _ in range(min(n_batches, MOST_BATCHES))
        ]
        return [HeldOutEvents(events, events[..., 0] >= 0) for events in drawn]  # all count

    def references(self) -> Mapping[str, EventModel]:
        """Return the simulator and a Poisson process fitted to other sequences, by name."""
        setting, unit = self.setting, self.time_scale
        events = self._draw(N_FITTED, torch.Generator().manual_seed(20240605))
        return {
            "the simulator": Hawkes.of(
                setting.rates * unit, setting.caused, torch.tensor([setting.decay * unit])
            ),
            "a Poisson process": Poisson.fitted(events.flatten(0, 1), setting.n_marks),
        }

    def _draw(self, n_sequences: int, generator: torch.Generator) -> Tensor:
        """Simulate n_sequences sequences (B, N, 2) with gaps in scaled units, float32."""
        events = simulate(self.setting, n_sequences, generator)
        return (events / torch.tensor([self.time_scale, 1.0])).float()
