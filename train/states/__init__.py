"""Streaming states of fixed size: sums, attention and buffers that take points one by one."""
