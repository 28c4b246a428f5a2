"""Histories of states that learn rows, are saved, restored and merged: no row counts twice."""

from attack.kinds.provenance.cases import Cases

__all__ = ["Cases"]
