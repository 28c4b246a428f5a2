"""Figures of records, their comparison, and gates on them."""
