"""Which columns of a published table an evaluation does not write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.papers.papers_page import value_at
from benchmarks.papers.published_tables import TABLES


def missing_columns(table: str, scores: Mapping[str, Any]) -> list[str]:
    """Return the titles of a table's columns that have no place in an evaluation's scores."""
    return [c.title for c in TABLES[table].columns if value_at(scores, c.place) is None]
