"""Profiles of boards, from their data sheets."""
