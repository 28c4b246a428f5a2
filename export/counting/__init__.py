"""What graphs cost, counted before they run."""
