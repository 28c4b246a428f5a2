"""Turn the times of a sensor's rows into slots: find its pace, its gaps and its season."""
