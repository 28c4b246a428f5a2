"""Find a user's class by its file or its module, and give a model its weights.

    examples/gru.py:Gru            a file
    my_package.my_module:MyModel   an installed module, or one in the current folder

Loading a file runs it: only on the machine that trains and exports, never on a device.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import safetensors.torch
from torch import nn

from edgefold.runtime.errors import CheckpointError, EdgefoldError, ModelError

Base = TypeVar("Base")

SHOWN = 4
"""Number of names that an error lists at most: more would not help."""


def load_class(spec: str) -> type[Any]:
    """Return the class that "path/to/file.py:Class" or "package.module:Class" names.

    Raises:
        ModelError: There is no such file, module or class, or the file does not run; the error then
            names file and line.
    """
    source, _, name = spec.rpartition(":")
    if not source or not name.isidentifier():
        raise ModelError(
            f"{spec!r} does not name a class; write path/to/file.py:Class or package.module:Class."
        )
    path = Path(source).expanduser()
    is_file = path.suffix == ".py" or path.is_file()
    if is_file and not path.is_file():
        raise ModelError(f"{source} is not a file; give the path of a Python file.")
    with _importable(path.parent if is_file else Path.cwd()):
        try:
            module = _run_file(path) if is_file else importlib.import_module(source)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{source}.".startswith(f"{error.name}."):
                raise failure_of(f"loading {source}", error, path) from error
            raise ModelError(
                f"there is no module {error.name}; is {source} installed, or in this folder?"
            ) from None
        except (Exception, SystemExit) as error:
            raise failure_of(f"loading {source}", error, path) from error
    cls = getattr(module, name, None)
    if not inspect.isclass(cls):
        names = [n for n, value in vars(module).items() if _is_own_class(value, module)]
        raise ModelError(f"{source} has no class {name}; it has {', '.join(names) or 'none'}.")
    return cls


def load_registered(
    kind: str, name: str, registry: Mapping[str, str], base: type[Base]
) -> type[Base]:
    """Return the class that has a name in a registry, or that a user names as in `load_class`.

    Args:
        kind: Word for such a class in errors, as "model".
        name: A name of the registry, "file.py:Class" or "package.module:Class".
        registry: Places of such classes, "package.module:Class", by name.
        base: Class from which it must derive.

    Raises:
        ModelError: Nothing has this name, or the class does not derive from the base.
    """
    if name not in registry and ":" not in name:
        raise ModelError(
            f"no {kind} is called {name!r}; take one of {', '.join(registry)}, or your own as "
            f"my_{kind}.py:My{kind.capitalize()}."
        )
    cls = load_class(registry.get(name, name))
    if not issubclass(cls, base):
        place, page = base.__module__, ""
        if kind == "model":
            place, page = "edgefold.train", "; docs/your-own-model.md shows one"
        how = f"from {place} import {base.__name__}"
        raise ModelError(
            f"{name} is not a {base.__name__}; derive the class from it: `{how}`, then "
            f"`class {cls.__name__}({base.__name__}):`{page}."
        )
    return cls


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Turn texts "name=value" into arguments by name; a value that is not JSON stays a string.

    Raises:
        ModelError: A text has no name or no equals sign.
    """
    arguments: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise ModelError(f"the setting {setting!r} is not name=value, as width=128.")
        try:
            arguments[name] = json.loads(value)
        except json.JSONDecodeError:
            arguments[name] = value
    return arguments


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the weights of a model from a safetensors file.

    Raises:
        CheckpointError: The file is missing, damaged, or of another model; the error then names the
            weights that differ.
    """
    try:
        tensors = safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise CheckpointError(f"there is no file {path}; give the file of the weights.") from None
    except Exception as error:
        raise CheckpointError(
            f"{path} is not a safetensors file ({error}); write one with "
            "safetensors.torch.save_file(model.state_dict(), PATH)."
        ) from error
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    if problems := _differences(expected, shapes):
        raise CheckpointError(
            f"{path} is not of this {type(model).__name__}: {'; '.join(problems)}. Build the model "
            "with the settings that it was trained with."
        )
    model.load_state_dict(tensors)


def _differences(
    expected: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Return texts on how the shapes of a file differ from the expected ones, both by name."""
    groups = {
        "it lacks": [name for name in expected if name not in shapes],
        "it has besides": [name for name in shapes if name not in expected],
        "other shapes": [
            f"{name} {shapes[name]} for {shape}"
            for name, shape in expected.items()
            if shapes.get(name, shape) != shape
        ],
    }
    return [
        f"{what} {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}"
        for what, names in groups.items()
        if names
    ]


def _run_file(path: Path) -> ModuleType:
    """Run a Python file as a module with a name of its own; an unchanged file runs only once."""
    content = path.read_bytes()
    digest = hashlib.sha256(bytes(path.resolve()) + content).hexdigest()[:12]
    name = f"edgefold_user_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} is not a Python file; its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let a Python file import modules from a folder, its own, while the context is open."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def _is_own_class(value: object, module: ModuleType) -> bool:
    return inspect.isclass(value) and value.__module__ == module.__name__


@contextmanager
def blamed(what: str, *names: str | None) -> Iterator[None]:
    """Turn an error that comes out of a user's own file into a ModelError that names the line.

    Args:
        what: Words for what was tried, with which the error begins.
        names: Classes as file.py:Class; names of another form are ignored.
    """
    try:
        yield
    except EdgefoldError:
        raise
    except Exception as error:
        ran = {
            Path(frame.filename).resolve() for frame in traceback.extract_tb(error.__traceback__)
        }
        for name in names:
            path = Path((name or "").rpartition(":")[0])
            if path.resolve() in ran:
                raise failure_of(what, error, path) from error
        raise


def failure_of(what: str, error: BaseException, path: Path) -> ModelError:
    """Return a ModelError for an error of a user's file, with the line of the file that failed.

    Args:
        what: Words for what was tried.
        error: The error; a ModelError is returned as it is.
        path: Path of the user's file.
    """
    if isinstance(error, ModelError):
        return error
    place, resolved = "", path.resolve()
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}: "
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename).resolve() == resolved:
                place = f"{path}:{frame.lineno}: "
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return ModelError(f"{what} failed: {place}{type(error).__name__}: {message}")
