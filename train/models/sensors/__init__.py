"""Hold the general model of sensors: online experts, their calibrated mixture, and a network."""
