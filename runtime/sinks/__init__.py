"""Take the rows and alarms that a loop writes: to files, pipes and message brokers."""
