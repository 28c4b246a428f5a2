"""The command line; imports each part only inside the command that needs it."""
