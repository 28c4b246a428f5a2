"""Read power and energy sensors, each in a file of its own."""
