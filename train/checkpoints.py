"""Write and read training runs on disk: safetensors and JSON, never pickle, each file whole.

    runs/x/
      config.json         model, task and training settings: what rebuilds the model
      model.safetensors   the weights that export reads
      resume.safetensors  weights, optimiser moments and generator states; present while unfinished
      history.jsonl       one line per logged step

A checkpoint is three files. Each is written next to its target under another name, then renamed:

    resume.safetensors ──> model.safetensors ──> config.json ──> (at the end) resume file removed

So a folder with a config.json holds a checkpoint. While the resume file is there, only its `step`
says how far the training is: a training that is killed between any two of these writes resumes from
it. Without the resume file the training is finished, and the weights are the final ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgefold.runtime.errors import CheckpointError, ModelError
from edgefold.runtime.files import replacing, write_atomic
from edgefold.train.contract import StreamingModel
from edgefold.train.models.registry import MODELS, create_model

SCHEMA = 1
CONFIG, WEIGHTS, RESUME = "config.json", "model.safetensors", "resume.safetensors"


def write_whole(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old content or the new one, never half of it."""
    write_atomic(path, text.encode())


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file atomically.

    Args:
        path: Path of the file.
        tensors: Tensors by name.
        metadata: Texts by name. The order of several entries in the file is by chance, and so are
            the file's bytes then.

    Raises:
        CheckpointError, OSError: The file system refused to write; an older file is intact.
    """
    with replacing(path) as beside:
        try:
            save_file({n: t.detach().contiguous() for n, t in tensors.items()}, beside, metadata)
        except SafetensorError as error:
            raise CheckpointError(
                f"{path} cannot be written ({error}); free some space or choose another --out. "
                "An older checkpoint is intact: continue from it with --resume."
            ) from error


def _digest(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of the names, types, shapes and bytes of tensors, as hexadecimal text."""
    digest = sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file; return its tensors by name and its metadata.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
        tensors = load_file(path)
        if "sha256" in metadata and metadata["sha256"] != _digest(tensors):
            raise ValueError("its checksum does not match")
        return tensors, metadata
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing; is {path.parent} a run folder?") from None
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be read as safetensors ({error}); train again or restore a copy."
        ) from error


def write_config(
    run: Path, model: StreamingModel, task: dict[str, Any], training: dict[str, Any]
) -> None:
    """Write config.json, which holds what is needed to rebuild the model and repeat the training.

    Args:
        run: Folder of the run.
        model: The model; its kind and its settings are stored.
        task: Description of the task.
        training: Settings and progress of the training.
    """
    config = {
        "schema": SCHEMA,
        "model": {"kind": model.name or type(model).__name__, **model.settings()},
        "task": task,
        "training": training,
    }
    write_whole(run / CONFIG, json.dumps(config, indent=2) + "\n")


def read_config(run: Path) -> dict[str, Any]:
    """Read the config.json of a run folder and return its content.

    Raises:
        CheckpointError: The file is missing, is not JSON, has another schema, or lacks model, task
            or training.
    """
    path = run / CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing; is {run} a run folder? One that was stopped before its first "
            "checkpoint is trained again, without --resume."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON ({error}); restore it from a copy.") from error
    schema = config.get("schema") if isinstance(config, dict) else None
    if schema != SCHEMA:
        raise CheckpointError(
            f"{path} has schema {schema}, this version reads {SCHEMA}; train again."
        )
    lacking = [n for n in ("model", "task", "training") if not isinstance(config.get(n), dict)]
    task = {} if lacking else config["task"]
    if not lacking and not isinstance(task.get("name"), str):
        lacking = ["task.name"]
    if not isinstance(task.get("features", {}), dict):
        lacking = ["task.features"]
    if lacking:
        raise CheckpointError(f"{path} lacks {', '.join(lacking)}; restore it from a copy.")
    return config


def build_model(model: dict[str, Any], named: str | None = None) -> StreamingModel:
    """Make a model from the `model` part of config.json, with fresh weights.

    Args:
        model: The kind of the model, under "kind", and its settings.
        named: Name of the model that the user gives. A run folder never chooses code to import:
            unless its kind comes with Edgefold, the user must name it.

    Raises:
        CheckpointError: The user must name the kind, or names another one, or the settings do not
            fit the model.
    """
    settings = dict(model)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or (kind not in MODELS and named is None):
        raise CheckpointError(
            f"the run's model is {kind!r}, which does not come with edgefold; name its class "
            "with --model my_model.py:MyModel."
        )
    if named is not None and kind in MODELS and named != kind:
        raise CheckpointError(f"the run's model is {kind!r}, and --model names {named!r}.")
    try:
        return create_model(named or str(kind), settings)
    except ModelError as error:
        raise CheckpointError(f"the run's model settings do not fit: {error}") from error


def load_model(
    run: Path, named: str | None = None, settings: Mapping[str, Any] | None = None
) -> tuple[StreamingModel, dict[str, Any]]:
    """Load the trained model of a run folder; return it in evaluation mode, and the run's config.

    Args:
        run: The folder.
        named: Class of a model of the user's own, as file.py:Class.
        settings: Settings of the model that replace those of the run; only such that change no
            weight, as a capacity.

    Raises:
        CheckpointError: A file is missing or damaged, or does not fit the model.
    """
    config = read_config(run)
    config["model"] |= settings or {}
    model = build_model(config["model"], named)
    tensors, _ = load_tensors(run / WEIGHTS)
    try:
        model.load_state_dict(model.upgraded(tensors))
    except RuntimeError as error:
        other = f"with {dict(settings)}" if settings else "config.json"
        raise CheckpointError(f"{run}/model.safetensors does not fit {other}: {error}") from error
    return model.eval(), config


def take_weights(model: StreamingModel, run: Path) -> tuple[int, int]:
    """Copy the weights of a run into a model where names and shapes agree; others stay as they are.

    Returns:
        How many tensors were taken, and how many the model has.

    Raises:
        CheckpointError: The run's weights cannot be read, or none of them fits.
    """
    stored = model.upgraded(load_tensors(run / WEIGHTS)[0])
    weights = model.state_dict()
    fitting = {
        k: stored[k]
        for k, weight in weights.items()
        if k in stored and stored[k].shape == weight.shape
    }
    if not fitting:
        raise CheckpointError(f"no weights of {run} fit {model.summary}: names or shapes differ.")
    model.load_state_dict(weights | fitting)
    return len(fitting), len(weights)


def save_progress(
    run: Path,
    step: int,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    generator_states: list[Tensor],
) -> None:
    """Write the resume file, from which training goes on exactly, and then the file of the weights.

    Args:
        run: Folder of the run.
        step: Number of steps that are done.
        model: The model.
        optimizer: Its optimiser, whose moments are stored.
        generator_states: State of the random generator of each process.
    """
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        for name, moment in moments.items():
            tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(moment)
    tensors |= {f"generator.{index}": state for index, state in enumerate(generator_states)}
    save_tensors(run / RESUME, tensors, {"step": str(step), "sha256": _digest(tensors)})
    weights = dict(model.state_dict())
    save_tensors(run / WEIGHTS, weights, {"sha256": _digest(weights)})


def load_progress(
    run: Path,
    model: StreamingModel,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    process: int = 0,
) -> int:
    """Restore model, optimiser and generator from the resume file; return the step to go on from.

    Args:
        run: Folder of the run.
        model: Receives the stored weights.
        optimizer: Receives the stored moments.
        generator: Receives the stored state.
        process: Number of this process, from 0 on.

    Raises:
        CheckpointError: The file is missing, damaged, of another model, or of fewer processes.
    """
    tensors, metadata = load_tensors(run / RESUME)
    weights = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    try:
        model.load_state_dict(model.upgraded(weights))
    except RuntimeError as error:
        raise CheckpointError(f"{run}/resume.safetensors is of another model: {error}") from error
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, moment = name.split(".")
            moments.setdefault(int(index), {})[moment] = tensor
    if not metadata.get("step", "").isdigit():
        raise CheckpointError(f"{run}/resume.safetensors names no step; restore it from a copy.")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    if f"generator.{process}" not in tensors:
        n_processes = sum(name.startswith("generator") for name in tensors)
        raise CheckpointError(
            f"{run}/resume.safetensors was written by {n_processes} processes; resume with as many."
        )
    generator.set_state(tensors[f"generator.{process}"])
    return int(metadata["step"])
