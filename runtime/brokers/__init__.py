"""Connect to message brokers, for the sources and sinks of a loop."""
