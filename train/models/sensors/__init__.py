"""The general model of sensor streams: online experts, their calibrated mixture, a network."""
