"""Define the record of `edgefold budget --sweep`."""

from __future__ import annotations

from typing import Annotated

from edgefold.devices.budget.budget import Budget
from edgefold.devices.budget.microcontroller import MicrocontrollerBudget

BudgetSweep = Annotated[
    dict[
        str,
        Annotated[
            dict[
                str,
                Annotated[
                    Budget | MicrocontrollerBudget, "The answer for one bundle on one board."
                ],
            ],
            "By bundle.",
        ],
    ],
    "By board.",
]
"""Type of the record of `edgefold budget --sweep`: budgets by board, then by bundle."""
