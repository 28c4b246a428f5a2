"""Run units of work on processes that may die, so that each counts once."""
