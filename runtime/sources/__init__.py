"""Give a loop its rows: from files, pipes and message brokers."""
