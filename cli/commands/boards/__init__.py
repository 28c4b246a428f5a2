"""Carry out commands on boards at a distance: deploy, and --on of profile and doctor."""
