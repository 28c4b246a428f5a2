"""Condition models on tables larger than memory, on several processes or machines."""
