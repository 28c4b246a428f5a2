"""Profiles of boards: data sheets as data."""
