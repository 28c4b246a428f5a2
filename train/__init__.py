"""Define models of streams in PyTorch and the tasks they learn from, and train the models."""

from typing import TYPE_CHECKING

from edgefold.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from edgefold.train.batch import Batch as Batch
    from edgefold.train.checkpoints import load_model as load_model
    from edgefold.train.contract import Cache as Cache
    from edgefold.train.contract import Prediction as Prediction
    from edgefold.train.contract import Ring as Ring
    from edgefold.train.contract import State as State
    from edgefold.train.contract import StreamingModel as StreamingModel
    from edgefold.train.contract import advance as advance
    from edgefold.train.load import load_class as load_class
    from edgefold.train.load import load_weights as load_weights
    from edgefold.train.models.events.event_model import EventModel as EventModel
    from edgefold.train.models.registry import create_model as create_model
    from edgefold.train.tasks.contract import Episode as Episode
    from edgefold.train.tasks.contract import Score as Score
    from edgefold.train.tasks.contract import Task as Task
    from edgefold.train.tasks.contract import TaskStreams as TaskStreams
    from edgefold.train.training_loop import FitConfig as FitConfig
    from edgefold.train.training_loop import fit as fit
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "batch": "Batch",
            "checkpoints": "load_model",
            "load": "load_class load_weights",
            "contract": "Cache Prediction Ring State StreamingModel advance",
            "models.events.event_model": "EventModel",
            "models.registry": "create_model",
            "tasks.contract": "Episode Score Task TaskStreams",
            "training_loop": "FitConfig fit",
        },
    )
