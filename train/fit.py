"""The training loop: seeded, checkpointed, resuming exactly, on CPU, one GPU, or several.

Timeline of one run:

    warm-up (linear) ──> cosine decay to 0 ──> last checkpoint, resume file removed
      every log_every: a line in history.jsonl and on the progress bar
      every save_every seconds, on Ctrl-C and on SIGTERM: a checkpoint that resumes to the same bits

A model's loss is its negative log-likelihood per target, whatever the task. Evaluation is
`edgefold.train.evaluate`.
"""

from __future__ import annotations

import json
import math
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from edgefold.train import checkpoints
from edgefold.train.models.cmanp import Cmanp
from edgefold.train.tasks.batch import Batch


class Task(Protocol):
    """What the loop needs of a task."""

    name: str
    n_inputs: int
    n_outputs: int

    def training_batch(self, n_tasks: int, generator: torch.Generator) -> Batch:
        """A batch of training tasks drawn from the generator alone."""

    def describe(self) -> dict[str, Any]:
        """What config.json keeps of the task: enough to rebuild it and to scale raw values."""


@dataclass(frozen=True, slots=True)
class FitConfig:
    """How long and how fast to train. `batch` is tasks a step and process."""

    steps: int
    batch: int = 16
    learning_rate: float = 1e-3
    warmup: int = 200
    clip_norm: float = 1.0
    seed: int = 0
    threads: int = 2
    log_every: int = 50
    save_every_s: float = 60.0
    compile: bool = False

    def rate(self, step: int) -> float:
        """Learning rate at a step: linear warm-up, then a cosine to 0 at the last step."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether SIGINT or SIGTERM came; a second SIGINT interrupts."""
    came: list[int] = []

    def note(signum: int, frame: object) -> None:
        if came and signum == signal.SIGINT:
            raise KeyboardInterrupt
        came.append(signum)

    before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(came)
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def machine() -> str:
    """One line on what trains: processor or GPU, and torch's version."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    return f"{device or platform.machine()}, torch {torch.__version__}"


class _Local:
    """One process, one device: what accelerate's Accelerator gives, without it."""

    is_main_process = True
    process_index = 0

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def prepare(self, model: Any, optimizer: Any) -> tuple[Any, Any]:
        return model.to(self.device), optimizer

    def unwrap_model(self, model: Any) -> Any:
        return model

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()


def _launcher() -> Any:
    """accelerate's Accelerator under `accelerate launch` (several GPUs), else one local device."""
    if not torch.distributed.is_torchelastic_launched():
        return _Local()
    from accelerate import Accelerator

    return Accelerator()


def _trim_history(path: Path, step: int) -> None:
    """Forget the lines logged after the checkpoint that training goes on from."""
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in lines if json.loads(line)["step"] <= step]
    checkpoints.write_whole(path, "".join(f"{line}\n" for line in kept))


def fit(
    model: Cmanp, task: Task, config: FitConfig, run: Path, command: str = "", resume: bool = False
) -> bool:
    """Train until the last step or until asked to stop.

    Args:
        model: Starts from its weights, or from the run's checkpoint with `resume`.
        task: Draws the batches.
        config: Length, rate, seed.
        run: Folder of the run; made if missing.
        command: What the user typed, kept in config.json.
        resume: Go on from the run's checkpoint. The remaining steps equal those of a run that was
            never stopped, bit for bit on the same machine.

    Returns:
        Whether training reached its last step.

    Raises:
        CheckpointError: `resume` without a readable checkpoint.
    """
    from tqdm import tqdm

    torch.set_num_threads(config.threads)
    launcher = _launcher()
    run.mkdir(parents=True, exist_ok=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    generator = torch.Generator().manual_seed(config.seed + 1000003 * launcher.process_index)
    first = 0
    if resume:
        first = checkpoints.load_progress(run, model, optimizer, generator)
        spent_s = checkpoints.read_config(run)["training"].get("duration_s", 0.0)
        _trim_history(run / "history.jsonl", first)
    else:
        spent_s = 0.0
        (run / "history.jsonl").unlink(missing_ok=True)
    trained, optimizer = launcher.prepare(model, optimizer)
    started_s = time.monotonic()

    def loss_of(batch: Batch) -> torch.Tensor:
        prediction = trained(batch.x_context, batch.y_context, batch.x_target, batch.mask)
        return -prediction.log_likelihood(batch.y_target).mean()

    step_loss = torch.compile(loss_of) if config.compile else loss_of

    def save(step: int) -> None:
        if launcher.is_main_process:
            plain = launcher.unwrap_model(trained)
            training = {
                **asdict(config),
                "steps_done": step,
                "duration_s": round(spent_s + time.monotonic() - started_s, 1),
                "machine": machine(),
                "command": command,
            }
            checkpoints.write_config(run, plain, task.describe(), training)
            checkpoints.save_progress(run, step, plain, optimizer, generator)

    bar = tqdm(
        total=config.steps,
        initial=first,
        unit="step",
        dynamic_ncols=True,
        disable=not (launcher.is_main_process and sys.stderr.isatty()),
    )
    saved_s, step = time.monotonic(), first
    losses: list[float] = []
    with stop_requests() as stopping, bar, (run / "history.jsonl").open("a") as history:
        while step < config.steps and not stopping():
            batch = task.training_batch(config.batch, generator).to(launcher.device)
            for group in optimizer.param_groups:
                group["lr"] = config.rate(step)
            loss = step_loss(batch)
            optimizer.zero_grad(set_to_none=True)
            launcher.backward(loss)
            norm = torch.nn.utils.clip_grad_norm_(trained.parameters(), config.clip_norm)
            if not torch.isfinite(norm):
                raise FloatingPointError(
                    f"the gradient is not finite at step {step}; lower --learning-rate, then "
                    f"resume from the last checkpoint in {run}."
                )
            optimizer.step()
            losses.append(loss.item())
            step += 1
            bar.update()
            if step % config.log_every == 0 or step == config.steps:
                mean = sum(losses) / len(losses)
                shown = {"loss": round(mean, 4), "rate": float(f"{config.rate(step):.2e}")}
                losses.clear()
                bar.set_postfix(shown)
                if launcher.is_main_process:
                    history.write(json.dumps({"step": step, **shown}) + "\n")
                    history.flush()
            if time.monotonic() - saved_s > config.save_every_s and step % config.log_every == 0:
                save(step)
                saved_s = time.monotonic()
        save(step)
    finished = step >= config.steps
    if finished and launcher.is_main_process:
        (run / "resume.safetensors").unlink(missing_ok=True)
    return finished
