"""Power and energy sensors, one file each."""
