"""Replay a bundle's recorded stream, and compare two backends tensor by tensor."""
