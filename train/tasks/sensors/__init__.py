"""Define the task that trains the general model of sensors, on made-up streams and real ones."""
