"""Turn times into slots of a sensor, with its pace, gaps and season."""
