"""Narrow element types: how graphs are narrowed, and what that costs."""
