"""Describe the records of the commands as dataclasses, and derive JSON Schemas from these."""
