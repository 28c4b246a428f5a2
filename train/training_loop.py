"""Train a model: seeded, with checkpoints that resume exactly, on CPU, one GPU, or several.

Timeline of one run:

    warm-up (linear) ──> cosine decay to 0 ──> last checkpoint, resume file removed
      again for each stage, if the model's training has several (`StreamingModel.n_stages`)
      every log_every: a line in history.jsonl and on the progress bar of a terminal
      every save_every seconds, on Ctrl-C and on SIGTERM: a checkpoint that resumes to the same bits

The loss is that of the model (`StreamingModel.loss`), whatever the task. The task evaluates.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import edgefold.train.checkpoints as checkpoints
from edgefold.runtime.errors import TrainingError
from edgefold.runtime.files import naming
from edgefold.runtime.stop_signal import StopSignal
from edgefold.train.batch import Batch
from edgefold.train.contract import StreamingModel, is_filter
from edgefold.train.cuda_graphs import CapturedSteps, CudaGraphs
from edgefold.train.denormals import denormals_flushed
from edgefold.train.distributed import LocalLauncher, launcher
from edgefold.train.muon import Muon
from edgefold.train.progress import ProgressLines
from edgefold.train.steps import Losses, PlainSteps, Steps
from edgefold.train.tasks.contract import Task

OPTIMIZERS = ("adam", "muon")


@dataclass(frozen=True, slots=True)
class FitConfig:
    """Holds the settings of a training: its length, its learning rate and more.

    Attributes:
        steps: Number of steps of the optimiser.
        batch: Number of training tasks that each process draws for a step. Gradients are averaged
            over processes, so that two of them take the step of one with twice the batch.
        learning_rate: Highest learning rate of Adam.
        warmup: Number of first steps in which the learning rate rises.
        clip_norm: Norm to which a larger gradient is shortened; None to shorten none.
        seed: Seed of the batches and of the other random numbers of a training.
        threads: Number of CPU threads of torch.
        log_every: Number of steps between two lines of history.jsonl.
        save_every_s: Least number of seconds between two checkpoints.
        compile: Whether torch.compile compiles the loss.
        optimizer: "adam", or "muon" for Muon on hidden matrices and Adam on all others.
        weight_decay: Weight decay of the matrices that Muon moves.
    """

    steps: int
    batch: int = 16
    learning_rate: float = 1e-3
    warmup: int = 200
    clip_norm: float | None = 1.0
    seed: int = 0
    threads: int = 1
    log_every: int = 50
    save_every_s: float = 60.0
    compile: bool = False
    optimizer: str = "adam"
    weight_decay: float = 0.0

    def rate(self, step: int) -> float:
        """Return the learning rate at a step: a linear rise, then a cosine to 0 at the end."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def machine() -> str:
    """Return a line of text on the machine: its GPU or processor, and the version of torch."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    return f"{device or platform.machine()}, torch {torch.__version__}"


def _trim_history(path: Path, step: int) -> None:
    """Remove the lines of history.jsonl that were logged after a step, and incomplete lines.

    Args:
        path: Path of history.jsonl.
        step: Step of the checkpoint from which training goes on.
    """

    def stays(line: str) -> bool:
        try:
            return bool(json.loads(line)["step"] <= step)
        except (KeyError, TypeError, ValueError):  # a power cut tears the last line
            return False

    text = path.read_text(errors="replace") if path.exists() else ""
    lines = [line for line in text.splitlines() if stays(line)]
    checkpoints.write_whole(path, "".join(f"{line}\n" for line in lines))


def fit(
    model: StreamingModel,
    task: Task,
    config: FitConfig,
    run: Path,
    command: str = "",
    resume: bool = False,
    say: Callable[[str], None] | None = None,
) -> bool:
    """Train a model until the last step or until the user asks to stop.

    Under `torchrun` or `accelerate launch` a process can call this only once, because it closes the
    connections to the other processes at the end.

    Args:
        model: The model, which starts from its weights, or from the run's checkpoint with `resume`.
        task: The task that draws the batches.
        config: Length, learning rate, seed and more.
        run: Folder of the run; made if missing.
        command: Command line that the user typed, kept in config.json.
        resume: Go on from the run's checkpoint. The remaining steps equal those of a run that was
            never stopped, bit for bit on the same machine.
        say: Takes a line of text on the progress now and then, where no terminal shows a bar.

    Returns:
        Whether training reached its last step.

    Raises:
        CheckpointError: `resume` is set, and the run has no readable checkpoint.
        TrainingError: The gradient is not finite, or the model does not fit the task.
        CheckpointError, OSError: A file cannot be written.
    """
    if task.prediction and model.prediction.name != task.prediction:
        raise TrainingError(
            f"the task takes models of {task.prediction} predictions, and those of this "
            f"{type(model).__name__} are {model.prediction.name}; choose another with --model."
        )
    if task.filters and not is_filter(model):
        raise TrainingError(
            f"the task is for models that answer each token at once, with step(), and "
            f"{type(model).__name__} has none; choose another with --model."
        )
    columns = [(of.n_inputs, of.n_outputs) for of in (model, task)]
    if columns[0] != columns[1] and (columns[0][0] != columns[1][0] or not is_filter(model)):
        raise TrainingError(
            f"the model has (n_inputs, n_outputs) = {columns[0]} and the task {columns[1]}; "
            "make them equal (of a filter n_inputs alone)."
        )
    with denormals_flushed():
        training = TrainingProcess(model, task, config, run, command)
        training.prepare_task(say or (lambda _: None))
        first = training.resume() if resume else training.start()
        finished = training.run_from(first, say)
        training.process.close()
        return finished


class _Loss(torch.nn.Module):
    """Wraps a model so that its loss is the `forward` of a module.

    Several processes share their gradients only through a `forward`.
    """

    def __init__(self, model: StreamingModel, generator: torch.Generator):
        super().__init__()
        self.model, self.generator = model, generator

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.model.loss(Batch(*tensors), self.generator)


class TrainingProcess:
    """Runs the part of a training that one process does, and writes the files of the run.

    Args:
        model: The model that is trained.
        task: The task that draws the batches.
        config: Settings of the training.
        run: Folder of the run; made if missing.
        command: Command line that the user typed.

    Attributes:
        captures: Whether steps are captured as CUDA graphs: in a process of its own on a GPU.
    """

    def __init__(
        self, model: StreamingModel, task: Task, config: FitConfig, run: Path, command: str
    ):
        torch.set_num_threads(config.threads)
        self.process = launcher()
        self.main = self.process.index == 0
        weights = list(model.parameters())
        if not weights:  # nothing to train: the run keeps the model's settings and the task
            config, weights = replace(config, steps=0), [torch.nn.Parameter(torch.zeros(1))]
        self.task, self.config, self.run, self.command = task, config, run, command
        run.mkdir(parents=True, exist_ok=True)
        # To the device first: a restored optimiser keeps its moments where its parameters are.
        self.model = model.to(self.process.device)
        on_one_gpu = self.process.device.type == "cuda" and isinstance(self.process, LocalLauncher)
        self.captures = on_one_gpu and config.steps > 0
        how: dict[str, Any] = {"fused": True, "capturable": True} if self.captures else {}
        self.optimizer = (
            Muon(self.model, config.learning_rate, matrix_decay=config.weight_decay, **how)
            if config.optimizer == "muon" and config.steps
            else torch.optim.Adam(weights, lr=config.learning_rate, **how)
        )
        seed = config.seed + 1000003 * self.process.index
        self.generator = torch.Generator().manual_seed(seed)
        self.has_config = False
        self.spent_s = 0.0
        self.started_s = time.monotonic()

    def prepare_task(self, say: Callable[[str], None]) -> None:
        """Let the task prepare its files: once a run, so the other processes wait for the first."""
        if self.main:
            self.task.prepare(say)
        self.process.any(False)  # a barrier
        if not self.main:
            self.task.prepare(lambda _: None)

    def start(self) -> int:
        """Remove the history of an older run and prepare the model; return the first step, 0."""
        if self.main:
            (self.run / "history.jsonl").unlink(missing_ok=True)
        self._prepare(self.model.prepare, self.config.seed)
        return 0

    def stage_of(self, step: int) -> range:
        """Return the steps of the stage to which a step belongs."""
        n, steps = self.model.n_stages, self.config.steps
        starts = [k * steps // n for k in range(n)]
        first = max(start for start in starts if start <= step)
        return range(first, min((start for start in starts if start > step), default=steps))

    def rate(self, step: int) -> float:
        """Return the learning rate at a step: each stage has a rise and a fall of its own."""
        stage = self.stage_of(step)
        return replace(self.config, steps=len(stage)).rate(step - stage.start)

    def _begin_stages(self, step: int) -> bool:
        """Prepare the model for the stages that begin at a step; `start` prepares the first.

        Returns:
            Whether a stage begins.
        """
        n, steps = self.model.n_stages, self.config.steps
        begun = [stage for stage in range(1, n) if stage * steps // n == step]
        for stage in begun:
            self._prepare(partial(self.model.prepare_stage, stage), self.config.seed + stage)
        return bool(begun)

    def _prepare(self, prepare: Callable[..., None], seed: int) -> None:
        """Let a model set what gradients do not change.

        It is the same on every process, and apart from the batches of the steps.
        """
        generator = torch.Generator().manual_seed(seed)
        draw = partial(self.task.training_batch, generator=generator)
        prepare(lambda n: draw(n).to(self.process.device), generator)

    def resume(self) -> int:
        """Load the checkpoint of the run; return the step to go on from."""
        first = checkpoints.load_progress(
            self.run, self.model, self.optimizer, self.generator, self.process.index
        )
        self.has_config = True
        self.spent_s = checkpoints.read_config(self.run)["training"].get("duration_s", 0.0)
        if self.main:
            _trim_history(self.run / "history.jsonl", first)
        return first

    def save(self, step: int) -> None:
        """Write a checkpoint after a number of steps; all processes must call this together."""
        states = self.process.gather(self.generator.get_state())
        if not self.main:
            return
        training = {
            **asdict(self.config),
            "steps_done": step,
            "duration_s": round(self.spent_s + time.monotonic() - self.started_s, 1),
            "machine": machine(),
            "command": self.command,
        }
        if not self.has_config:  # an older run's settings, which the new weights do not fit
            (self.run / checkpoints.CONFIG).unlink(missing_ok=True)
        checkpoints.save_progress(self.run, step, self.model, self.optimizer, states)
        checkpoints.write_config(self.run, self.model, self.task.describe(), training)
        self.has_config = True

    def run_from(self, first: int, say: Callable[[str], None] | None = None) -> bool:
        """Train from the step `first` on, to the last step or until the user asks to stop.

        Args:
            first: Number of steps that are already done.
            say: Takes a line of text on the progress, where no terminal shows a bar.

        Returns:
            Whether the last step was reached.
        """
        from tqdm import tqdm

        config, process = self.config, self.process
        loss_of, optimizer = self.loss_and_optimizer()
        take_step = self.steps(loss_of, optimizer)
        live = self.main and sys.stderr.isatty()
        bar = tqdm(
            total=config.steps, initial=first, unit="step", dynamic_ncols=True, disable=not live
        )
        quiet = live or not self.main
        lines = None if quiet or say is None else ProgressLines(say, config.steps, first)
        saved_s, step = time.monotonic(), first
        losses = Losses(self.run, first, take_step.at_once)
        log = self.run / "history.jsonl"
        with (
            StopSignal() as stopping,
            bar,
            naming(log),
            log.open("a") as history,
        ):
            while step < config.steps and not process.any(stopping()):
                if self._begin_stages(step):  # another function: graphs of the last one are stale
                    take_step = self.steps(loss_of, optimizer)
                pair = self._step(step, take_step, optimizer)
                losses.add(pair)
                step += 1
                bar.update()
                if lines:
                    lines.step(pair[0])
                if step % config.log_every and step < config.steps:
                    continue
                rate = float(f"{self.rate(step):.2e}")
                shown = {"loss": round(losses.mean(), 4), "rate": rate}
                bar.set_postfix(shown)
                if self.main:
                    history.write(json.dumps({"step": step, **shown}) + "\n")
                    history.flush()
                if process.any(time.monotonic() - saved_s > config.save_every_s):
                    self.save(step)
                    saved_s = time.monotonic()
            losses.read()
            self.save(step)
        finished = step >= config.steps
        if finished and self.main:
            (self.run / checkpoints.RESUME).unlink(missing_ok=True)
        return finished

    def loss_and_optimizer(self) -> tuple[Callable[[Batch], torch.Tensor], Any]:
        """Return the loss of a batch and the optimiser, as this process's launcher wraps them."""
        loss = _Loss(self.model, self.generator)
        trained, optimizer = self.process.prepare(loss, self.optimizer)

        def loss_of(batch: Batch) -> torch.Tensor:
            loss: torch.Tensor = trained(*batch.tensors())
            return loss

        return torch.compile(loss_of) if self.config.compile else loss_of, optimizer

    def steps(self, loss_of: Callable[[Batch], torch.Tensor], optimizer: Any) -> Steps:
        """Return what takes the steps of this process."""
        config, weights = self.config, list(self.model.parameters())
        most = math.inf if config.clip_norm is None else config.clip_norm
        if self.captures:
            graphs = CudaGraphs(self.process.device)
            return CapturedSteps(loss_of, weights, optimizer, self.generator, most, graphs)
        return PlainSteps(loss_of, weights, optimizer, self.process, most)

    def _step(self, step: int, take_step: Steps, optimizer: Any) -> torch.Tensor:
        """Draw a batch and move the weights by one step; return loss and norm of the gradient."""
        batch = self.task.training_batch(self.config.batch, self.generator)
        _require_batch(batch, self.task, self.model)
        for group in optimizer.param_groups:
            rate = self.rate(step) * group.get("rate_factor", 1.0)
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        return take_step(batch)


def _require_batch(batch: Batch, task: Task, model: StreamingModel) -> None:
    """Refuse a batch whose tensors do not have the task's sizes; y of a filter may have any shape.

    Raises:
        TrainingError: The task did not return a Batch, or its tensors have other shapes.
    """
    name = type(task).__name__
    if not isinstance(batch, Batch):
        raise TrainingError(f"{name}.training_batch() gave {type(batch).__name__}; return a Batch.")
    sizes = dict.fromkeys(("x_context", "x_target"), task.n_features or task.n_inputs)
    if not is_filter(model):
        sizes |= {"y_context": task.n_outputs, "y_target": task.n_outputs}
    for part, n_columns in sizes.items():
        tensor = getattr(batch, part)
        if not isinstance(tensor, torch.Tensor):
            raise TrainingError(
                f"{name}.training_batch() gave {part} as {type(tensor).__name__}; give a tensor: "
                "torch.as_tensor() makes one."
            )
        if tensor.ndim != 3 or tensor.shape[-1] != n_columns:
            raise TrainingError(
                f"{name}.training_batch() gave {part} of shape {tuple(tensor.shape)}; with "
                f"{'n_features' if task.n_features else 'n_inputs'} = {sizes['x_context']} and "
                f"n_outputs = {task.n_outputs} it must be "
                f"(tasks, points, {n_columns})."
            )
