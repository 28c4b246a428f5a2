"""Define the subcommands of `edgefold`, each in a file of its own."""
