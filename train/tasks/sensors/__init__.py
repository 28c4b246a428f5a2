"""The task that trains the general model of sensors: made-up streams and pieces of real ones."""
