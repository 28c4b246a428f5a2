"""Write the C around the general model of sensors: its clock, its seasons and its alarms."""
