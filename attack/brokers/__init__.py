"""Real brokers, the network before them, publishers and the schedules by which they are broken."""
