"""Hold the states of fixed size that take points one by one: sums, attention and buffers."""
