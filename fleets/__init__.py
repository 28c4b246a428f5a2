"""Condition models on tables larger than memory, on several processes or machines."""

from typing import TYPE_CHECKING

from edgefold.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from edgefold.fleets.conditioning.condition import Conditioned as Conditioned
    from edgefold.fleets.conditioning.condition import ConditionedState as ConditionedState
    from edgefold.fleets.conditioning.condition import ConditionOptions as ConditionOptions
    from edgefold.fleets.conditioning.condition import condition as condition
    from edgefold.fleets.tables.batches import LakeBatch as LakeBatch
    from edgefold.fleets.tables.batches import read_batches as read_batches
    from edgefold.fleets.tables.lake import Lake as Lake
    from edgefold.fleets.tables.lake import LakeFile as LakeFile
    from edgefold.fleets.tables.lake import open_lake as open_lake
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "conditioning.condition": "Conditioned ConditionedState ConditionOptions condition",
            "tables.batches": "LakeBatch read_batches",
            "tables.lake": "Lake LakeFile open_lake",
        },
    )
