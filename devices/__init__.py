"""Describe boards, predict budgets and read meters; nothing here knows how a model works."""

from typing import TYPE_CHECKING

from edgefold.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from edgefold.devices.boards.board import Board as Board
    from edgefold.devices.boards.board import board_names as board_names
    from edgefold.devices.boards.board import load_board as load_board
    from edgefold.devices.budget.budget import Budget as Budget
    from edgefold.devices.budget.budget import judge as judge
    from edgefold.devices.budget.checks import Demand as Demand
    from edgefold.devices.machine.machine import Machine as Machine
    from edgefold.devices.machine.machine import read_machine as read_machine
    from edgefold.devices.memory.monitor import MemoryMonitor as MemoryMonitor
    from edgefold.devices.memory.monitor import MemorySurvey as MemorySurvey
    from edgefold.devices.memory.monitor import monitor_memory as monitor_memory
    from edgefold.devices.memory.process import MemoryReading as MemoryReading
    from edgefold.devices.memory.process import ProcessMemory as ProcessMemory
    from edgefold.devices.power.energy import EnergyMeter as EnergyMeter
    from edgefold.devices.power.figure import EnergyFigure as EnergyFigure
    from edgefold.devices.power.probe import choose_sensor as choose_sensor
    from edgefold.devices.power.probe import probe_sensors as probe_sensors
    from edgefold.devices.power.sampler import Sampler as Sampler
    from edgefold.devices.profile.profile import Measurement as Measurement
    from edgefold.devices.profile.record import ProfileOptions as ProfileOptions
else:
    __all__, __getattr__ = lazy_names(
        __name__,
        {
            "boards.board": "Board board_names load_board",
            "budget.budget": "Budget judge",
            "budget.checks": "Demand",
            "machine.machine": "Machine read_machine",
            "memory.monitor": "MemoryMonitor MemorySurvey monitor_memory",
            "memory.process": "MemoryReading ProcessMemory",
            "power.energy": "EnergyMeter",
            "power.figure": "EnergyFigure",
            "power.probe": "choose_sensor probe_sensors",
            "power.sampler": "Sampler",
            "profile.profile": "Measurement",
            "profile.record": "ProfileOptions",
        },
    )
