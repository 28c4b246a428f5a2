"""Measure the memory of a process, of the GPU and of the machine."""
